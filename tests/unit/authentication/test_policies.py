"""Policies: which claims are whose."""

from typing import Any

import pytest

from gateway.authentication.policies import PolicyTable, TokenPolicy, TokenRefused
from gateway.catalog.catalog import Recipient

ISSUER = "https://idp.example.com/"
ALICE, BOB = Recipient("alice", frozenset()), Recipient("bob", frozenset())
CLAIMS = {"iss": ISSUER, "sub": "a", "aud": "gateway"}


def policy(
    claim: str = "sub", subject: str = "a", audience: str = "gateway", issuer: str = ISSUER, **claims: str
) -> TokenPolicy:
    return TokenPolicy(issuer, claim, subject, frozenset({audience}), tuple(sorted(claims.items())))


def refusal(table: PolicyTable, claims: dict[str, Any]) -> TokenRefused:
    with pytest.raises(TokenRefused) as refused:
        table.recipient(claims)
    return refused.value


@pytest.mark.parametrize(
    ("found", "claims"),
    [
        (policy(), {}),
        (policy(), {"aud": ["other", "gateway"]}),
        (policy("groups", "g1"), {"groups": ["g0", "g1"]}),
        (policy("roles", "reader"), {"roles": "reader"}),
        (policy("azp", "client"), {"azp": "client"}),
        (policy("https://example.com/team", "x"), {"https://example.com/team": ["x"]}),
        (policy(tid="t1"), {"tid": "t1"}),
        (policy(scp="read"), {"scp": "openid read"}),
        (policy(scope="read"), {"scope": ["openid", "read"]}),
        (policy(tid="t1", scp="read"), {"tid": "t1", "scp": "read"}),
        (policy("email", "a@b"), {"email": "a@b", "email_verified": True}),
        (policy(email="a@b"), {"email": "a@b", "email_verified": "true"}),
    ],
)
def test_a_policy_accepts_its_claims(found: TokenPolicy, claims: dict[str, Any]) -> None:
    assert PolicyTable([(found, ALICE)]).recipient({**CLAIMS, **claims}) is ALICE


@pytest.mark.parametrize(
    ("found", "claims", "reason"),
    [
        (policy(), {"sub": "b"}, "subject"),
        (policy(), {"sub": "A"}, "subject"),
        (policy(), {"sub": ["a"]}, "subject"),
        (policy(), {"sub": None}, "subject"),
        (policy(subject="7"), {"sub": 7}, "subject"),
        (policy("azp", "client"), {"azp": ["client"]}, "subject"),
        (policy("groups", "g1"), {"groups": {"g1": 1}}, "subject"),
        (policy("groups", "g1"), {"groups": "g1 g2"}, "subject"),
        (policy("groups", "1"), {"groups": [1]}, "subject"),
        (policy(issuer="https://idp.example.com"), {}, "subject"),
        (policy(audience="other"), {}, "audience"),
        (policy(), {"aud": None}, "audience"),
        (policy(), {"aud": {"gateway": 1}}, "audience"),
        (policy(), {"aud": "gateway "}, "audience"),
        (policy(tid="t1"), {"tid": "t2"}, "subject"),
        (policy(tid="t1"), {}, "subject"),
        (policy(tid="t1"), {"tid": ["t1"]}, "subject"),
        (policy(scp="read"), {"scp": "reader"}, "subject"),
        (policy("email", "a@b"), {"email": "a@b"}, "subject"),
        (policy("email", "a@b"), {"email": "a@b", "email_verified": 1}, "subject"),
        (policy("email", "a@b"), {"email": "a@b", "email_verified": False}, "subject"),
        (policy("email", "a@b"), {"email": "a@b", "email_verified": None}, "subject"),
        (policy(email="a@b"), {"email": "a@b", "email_verified": "false"}, "subject"),
    ],
)
def test_other_claims_are_refused(found: TokenPolicy, claims: dict[str, Any], reason: str) -> None:
    assert refusal(PolicyTable([(found, ALICE)]), {**CLAIMS, **claims}).reason == reason


def test_a_token_of_two_recipients_is_refused_and_both_are_named() -> None:
    table = PolicyTable([(policy(), ALICE), (policy("groups", "g"), BOB)])
    assert table.recipient(CLAIMS) is ALICE
    refused = refusal(table, {**CLAIMS, "groups": ["g"]})
    assert (refused.reason, str(refused)) == (
        "subject",
        "policies of several recipients accept the token: alice, bob",
    )


def test_two_policies_of_one_recipient_may_accept_a_token() -> None:
    table = PolicyTable([(policy(), ALICE), (policy("groups", "g"), ALICE)])
    assert table.recipient({**CLAIMS, "groups": ["g"]}) is ALICE


def test_groups_that_the_provider_left_out_are_explained() -> None:
    table = PolicyTable([(policy("groups", "g"), ALICE)])
    refused = refusal(table, {**CLAIMS, "_claim_names": {"groups": "src1"}})
    assert "left out groups" in str(refused)
