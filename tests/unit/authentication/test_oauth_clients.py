"""OAuth clients and their access tokens, without a server."""

import pytest
from support.instructions import instructions

from gateway.authentication import oauth_clients
from gateway.authentication.access_tokens import access_credential, issue
from gateway.authentication.credential_table import token_hash
from gateway.authentication.oauth_clients import (
    AuthenticatedClient,
    ClientRefused,
    ClientSecret,
    ClientTable,
    OAuthClient,
)
from gateway.authentication.policies import TokenRefused
from gateway.authentication.sealed_tokens import Sealer
from gateway.catalog.catalog import Recipient
from gateway.config import Secret, TokenKey

NOW_MS = 1_700_000_000_000
ALICE = Recipient("alice", frozenset({"sales"}))
OLD, NEW = (ClientSecret(token_hash(name), end) for name, end in (("old", NOW_MS + 90_000), ("new", None)))
CLIENT = OAuthClient("c1", ALICE, (OLD, NEW))
TABLE = ClientTable([CLIENT])
SEALER = Sealer([TokenKey("k1", Secret("a secret for the tests"))])


def issued(secret: ClientSecret = NEW, *, sealer: Sealer = SEALER, lifetime_seconds: int = 3600) -> str:
    found = AuthenticatedClient(CLIENT, secret)
    return issue(sealer, found, now_ms=NOW_MS, lifetime_seconds=lifetime_seconds).text


def refusal(token: str, table: ClientTable = TABLE, *, now_ms: int = NOW_MS) -> str:
    with pytest.raises(TokenRefused) as refused:
        access_credential(SEALER, table, token, now_ms=now_ms)
    return refused.value.reason


@pytest.mark.parametrize(("secret", "known"), [("old", OLD), ("new", NEW)])
def test_a_client_has_two_secrets_during_a_rotation(secret: str, known: ClientSecret) -> None:
    assert TABLE.authenticate("c1", token_hash(secret), now_ms=NOW_MS) == AuthenticatedClient(CLIENT, known)


@pytest.mark.parametrize(
    ("client", "secret", "now_ms", "reason"),
    [
        ("c1", "another", NOW_MS, "secret"),
        ("c1", "", NOW_MS, "secret"),
        ("C1", "new", NOW_MS, "client"),
        ("", "new", NOW_MS, "client"),
        ("c1", "old", NOW_MS + 90_000, "expired"),
    ],
)
def test_another_client_or_secret_is_refused(client: str, secret: str, now_ms: int, reason: str) -> None:
    with pytest.raises(ClientRefused) as refused:
        TABLE.authenticate(client, token_hash(secret), now_ms=now_ms)
    assert refused.value.reason == reason


def steps(client_id: str) -> list[tuple[str, int]]:
    """Every instruction that a refusal of a wrong secret runs."""
    table = ClientTable([OAuthClient("c1", ALICE, (NEW,))])
    return instructions(
        oauth_clients,
        lambda: table.authenticate(client_id, token_hash("another"), now_ms=NOW_MS),
        raises=ClientRefused,
    )


def test_an_unknown_client_is_refused_by_the_same_work_as_one_with_another_secret() -> None:
    known, unknown = steps("c1"), steps("c2")
    assert len(known) > 20
    # The instructions differ in the name of the reason alone.
    assert len(known) == pytest.approx(len(unknown), abs=2)
    assert {function for function, _ in known} == {function for function, _ in unknown}


def test_an_access_token_is_its_recipients_until_it_ends() -> None:
    token = issued(lifetime_seconds=600)
    found = access_credential(SEALER, TABLE, token, now_ms=NOW_MS + 599_999)
    assert found is not None
    assert (found.recipient, found.expires_ms) == (ALICE, NOW_MS + 600_000)
    assert found.identity == (("clientId", "c1"), ("secretId", NEW.id))
    assert refusal(token, now_ms=NOW_MS + 600_000) == "expired"


def test_a_token_ends_no_later_than_its_secret() -> None:
    found = issue(SEALER, AuthenticatedClient(CLIENT, OLD), now_ms=NOW_MS, lifetime_seconds=3600)
    assert found.lifetime_seconds == 90
    assert refusal(found.text, now_ms=NOW_MS + 90_000) == "expired"


def test_a_credential_ends_with_a_secret_whose_end_was_moved() -> None:
    token = issued(lifetime_seconds=3600)
    table = ClientTable([OAuthClient("c1", ALICE, (ClientSecret(NEW.sha256, NOW_MS + 600_000),))])
    found = access_credential(SEALER, table, token, now_ms=NOW_MS)
    assert found is not None
    assert found.expires_ms == NOW_MS + 600_000


@pytest.mark.parametrize("left_ms", [999, 0, -500])
def test_a_secret_that_ends_within_the_second_issues_no_token(left_ms: int) -> None:
    secret = ClientSecret(NEW.sha256, NOW_MS + left_ms)
    with pytest.raises(ClientRefused, match="expired"):
        issue(SEALER, AuthenticatedClient(CLIENT, secret), now_ms=NOW_MS, lifetime_seconds=3600)


@pytest.mark.parametrize(
    "clients",
    [
        [],
        [OAuthClient("c2", ALICE, (NEW,))],
        [OAuthClient("c1", Recipient("bob", frozenset()), (NEW,))],
        [OAuthClient("c1", ALICE, (OLD,))],
        [OAuthClient("c1", ALICE, (ClientSecret(NEW.sha256, NOW_MS),))],
    ],
    ids=["no client", "another client", "another recipient", "no such secret", "an ended secret"],
)
def test_a_token_ends_with_its_client_and_with_its_secret(clients: list[OAuthClient]) -> None:
    assert refusal(issued(), ClientTable(clients)) == "client"


def test_a_token_of_another_key_or_use_is_refused_with_the_reason() -> None:
    assert refusal(issued(sealer=Sealer([TokenKey("k1", Secret("another secret of the tests"))]))) == "key"
    page = SEALER.seal("page", "", {"client": "c1"}, expires_ms=NOW_MS + 1000)
    assert refusal(page) == "key"
    token = issued()
    other = "A" if token[-5] != "A" else "B"
    assert refusal(f"{token[:-5]}{other}{token[-4:]}") == "key"


@pytest.mark.parametrize("text", ["", "a.b.c", "abc", "AQ", "token-of-alice", "\udcff", "A" * 9000])
def test_another_text_is_no_access_token(text: str) -> None:
    assert access_credential(SEALER, TABLE, text, now_ms=NOW_MS) is None


def test_a_token_of_a_key_that_no_longer_seals_is_accepted() -> None:
    token = issued()
    keys = [
        TokenKey("k2", Secret("a second secret of tests")),
        TokenKey("k1", Secret("a secret for the tests")),
    ]
    assert access_credential(Sealer(keys), TABLE, token, now_ms=NOW_MS) is not None


def test_no_text_of_a_secret_or_token_is_printed() -> None:
    found = issue(SEALER, AuthenticatedClient(CLIENT, NEW), now_ms=NOW_MS, lifetime_seconds=60)
    for value in (found, CLIENT, NEW):
        assert found.text not in repr(value)
        assert NEW.sha256.hex() not in repr(value)
        assert repr(NEW.sha256) not in repr(value)
