"""Session policies: exactly one directory, for keys with every character that a policy gives a meaning."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from support.aws_identity import ROLE, Session, Sts, new_session, running_sts

from gateway.config import Location, loads
from gateway.config.networks import parse_networks
from gateway.config.secret import Secret
from gateway.config.storages.s3 import S3Entry
from gateway.config.storages.session_policy import partition_of, session_policy
from gateway.storage.aws import roles
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.aws.roles import TokenServices
from gateway.storage.aws.vendor import issued_session, session_name
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential

HOSTILE = ["t", "a*b", "a?b", "a$b", "a${aws:username}b", 'a"b', "a'b", "a%20b", "a b", "é", "a\\b", "${*}"]
HOSTILE += ["x/y*/z?$"]
NEIGHBOURS = ["t2", "aXb", "ab", "a*bc", "x/y1/z2$", "a${x}b", "$", "other", "T", "a*", "x"]
KEYS = S3Credentials(Secret("AKIA"), Secret("secret"), source="tests")


Issue = Callable[[CredentialRequest, S3Credentials], TemporaryCredential]


def policy_of(key: str, *, is_aws: bool = True, networks: tuple[str, ...] = ()) -> dict[str, Any]:
    location = Location("s3", "bucket", key)
    text = session_policy(location, parse_networks(networks), partition="aws", is_aws=is_aws)
    found: dict[str, Any] = json.loads(text)
    return found


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern of IAM matches, as AWS documents it: `${*}`, `${?}` and `${$}` are the characters."""
    parts = re.split(r"(\$\{[*?$]\}|\*|\?)", pattern)
    assert not any("${" in part for part in parts[::2]), "a variable"
    forms = {"*": ".*", "?": ".", "${*}": r"\*", "${?}": r"\?", "${$}": r"\$"}
    return (
        re.fullmatch("".join(forms.get(part) or re.escape(part) for part in parts), text, re.DOTALL)
        is not None
    )


def may_read(policy: dict[str, Any], key: str) -> bool:
    return any(
        one["Action"] == "s3:GetObject" and matches(one["Resource"], f"arn:aws:s3:::bucket/{key}")
        for one in policy["Statement"]
    )


def may_list(policy: dict[str, Any], prefix: str) -> bool:
    return any(
        one["Action"] == "s3:ListBucket"
        and one["Resource"] == "arn:aws:s3:::bucket"
        and matches(one["Condition"]["StringLike"]["s3:prefix"], prefix)
        for one in policy["Statement"]
    )


@pytest.mark.parametrize("key", HOSTILE)
def test_a_policy_permits_its_directory_and_no_other(key: str) -> None:
    policy = policy_of(key)
    for below in ("_delta_log/0.json", "part-0.parquet", "p=*/x", ""):
        assert may_read(policy, f"{key}/{below}")
        assert may_list(policy, f"{key}/{below}")
    for other in {*HOSTILE, *NEIGHBOURS} - {key}:
        assert not may_read(policy, f"{other}/x"), other
        assert not may_list(policy, f"{other}/"), other
    # The listing of a prefix without its slash shows the names of neighbours.
    for prefix in ("", key, key[:1] if len(key) > 1 else ""):
        assert not may_list(policy, prefix)
    assert not may_read(policy, key)
    assert {one["Effect"] for one in policy["Statement"]} == {"Allow"}
    assert {one["Action"] for one in policy["Statement"]} == {"s3:GetObject", "s3:ListBucket", "kms:Decrypt"}


def test_objects_are_decrypted_through_s3_alone_and_without_a_condition_on_addresses() -> None:
    *_, decrypting = policy_of("a*b", networks=("192.0.2.0/24",))["Statement"]
    assert decrypting["Condition"] == {
        "StringLike": {
            "kms:ViaService": ["s3.*.amazonaws.com"],
            "kms:EncryptionContext:aws:s3:arn": ["arn:aws:s3:::bucket/a${*}b/*", "arn:aws:s3:::bucket"],
        }
    }


def test_other_stores_get_no_statement_about_kms() -> None:
    assert [one["Action"] for one in policy_of("t", is_aws=False)["Statement"]] == [
        "s3:GetObject",
        "s3:ListBucket",
    ]


def test_the_networks_of_a_recipient_limit_reading_and_listing() -> None:
    policy = policy_of("t", networks=("192.0.2.0/24", "2001:db8::/32"))
    for statement in policy["Statement"][:2]:
        assert statement["Condition"]["IpAddress"] == {"aws:SourceIp": ["192.0.2.0/24", "2001:db8::/32"]}


@pytest.mark.parametrize(
    ("role", "region", "expected"),
    [
        ("arn:aws:iam::1:role/r", "cn-north-1", "aws"),
        ("arn:aws-cn:iam::1:role/r", "cn-north-1", "aws-cn"),
        ("arn:aws-us-gov:iam::1:role/r", "us-gov-west-1", "aws-us-gov"),
        ("urn:sgws:identity::1:group/r", "us-gov-west-1", "aws-us-gov"),
        ("urn:sgws:identity::1:group/r", "us-east-1", "aws"),
        ("urn:sgws:identity::1:group/r", "eusc-de-east-1", "aws-eusc"),
    ],
)
def test_the_partition_of_resources_is_that_of_the_role(role: str, region: str, expected: str) -> None:
    assert partition_of(role, region) == expected
    policy = session_policy(Location("s3", "b", "t"), (), partition=expected, is_aws=True)
    assert f'"arn:{expected}:s3:::b/t/*"' in policy
    assert ("s3.*.amazonaws.com.cn" in policy) is (expected == "aws-cn")
    assert ("s3.*.amazonaws.eu" in policy) is (expected == "aws-eusc")


def test_a_session_is_named_by_its_recipient() -> None:
    assert session_name("alice@example.com") == "alice@example.com"
    assert session_name("Ä corp/eu") == "--corp-eu"
    assert session_name("x") == "x-"
    assert len(session_name("x" * 200)) == 64


class PoliciedSts(Sts):
    """A token service that keeps the forms of its requests."""

    forms: list[dict[str, str]]

    def _check(self, form: dict[str, str], seconds: int, *, is_chained: bool) -> None:
        self.forms = [*getattr(self, "forms", []), form]
        super()._check(form, seconds, is_chained=is_chained)


@pytest.fixture
def sts() -> Iterator[PoliciedSts]:
    with running_sts(PoliciedSts("AKIA", "secret")) as service:
        assert isinstance(service, PoliciedSts)
        yield service


def vendor(sts: Sts, services: TokenServices | None = None, **keys: str) -> Issue:
    entry = {"prefix": "s3://bucket/", "region": "eu-west-1", "roleArn": ROLE, "stsEndpoint": sts.url} | keys
    config = loads(
        f"version: 1\ngateway: {{anonymous: true, storages: [{json.dumps(entry)}]}}", environment={}
    )
    (storage,) = config.gateway.storages
    assert isinstance(storage, S3Entry)
    return partial(issued_session, storage, environment={}, region="eu-west-1", services=services)


def request(key: str = "t", seconds: int = 3600, **changes: Any) -> CredentialRequest:
    values = {"recipient": "alice", "networks": (), "seconds": seconds} | changes
    return CredentialRequest(Location("s3", "bucket", key), **values)


def test_a_credential_is_a_session_with_the_policy_and_the_end_that_the_provider_states(
    sts: PoliciedSts,
) -> None:
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=77)
    sts.issue = lambda _seconds: Session("ASIAID", "hidden-secret", "hidden-token", ends)
    issued = vendor(sts)(request(seconds=1800), KEYS)
    assert (issued.form, issued.key_id) == ("awsTempCredentials", "ASIAID")
    assert issued.expires_ms == int(ends.timestamp() * 1000)
    assert "hidden" not in repr(issued)
    (form,) = sts.forms
    assert (form["DurationSeconds"], form["RoleSessionName"], form["RoleArn"]) == ("1800", "alice", ROLE)
    assert json.loads(form["Policy"])["Statement"][0]["Resource"] == "arn:aws:s3:::bucket/t/*"


def test_the_role_of_directory_access_takes_precedence(sts: PoliciedSts) -> None:
    found = vendor(sts, roleArn="arn:aws:iam::123456789012:role/another", directoryRoleArn=ROLE)
    found(request(), KEYS)
    assert sts.forms[0]["RoleArn"] == ROLE


def test_a_policy_that_is_too_long_is_an_error_and_no_wider_one_is_requested(sts: PoliciedSts) -> None:
    with pytest.raises(CredentialsUnavailable, match="session policy has") as refused:
        vendor(sts)(request("k" * 2000), KEYS)
    assert refused.value.lasting
    assert not hasattr(sts, "forms")


def test_a_packed_policy_that_is_too_large_is_an_error_and_no_wider_one_is_requested(
    sts: PoliciedSts,
) -> None:
    sts.failures = [(400, "PackedPolicyTooLarge", "Packed policy consumes 107% of allotted space")]
    with pytest.raises(CredentialsUnavailable, match="PackedPolicyTooLarge") as refused:
        vendor(sts)(request(), KEYS)
    assert refused.value.lasting
    assert sts.sessions == []


def test_a_lifetime_over_that_of_the_role_names_the_key_to_change(sts: PoliciedSts) -> None:
    sts.longest_seconds = 3600
    with pytest.raises(CredentialsUnavailable, match="temporaryCredentialValiditySeconds"):
        vendor(sts)(request(seconds=7200), KEYS)


@pytest.mark.parametrize("key", ["", "a*b", "a?b", "a$b"])
def test_a_root_that_no_policy_of_the_store_can_name_is_refused_again_here(
    sts: PoliciedSts, key: str
) -> None:
    with pytest.raises(CredentialsUnavailable) as refused:
        vendor(sts)(request(key), KEYS)
    assert refused.value.lasting
    assert new_session(1).access_key_id != KEYS.access_key_id.reveal()
    assert sts.sessions == []


def test_many_sessions_of_the_same_keys_share_a_client(
    sts: PoliciedSts, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    make = roles._session

    def counted(*arguments: Any, **options: Any) -> Any:
        made.append(arguments)
        return make(*arguments, **options)

    monkeypatch.setattr(roles, "_session", counted)
    services = TokenServices()
    sharing = vendor(sts, services)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: sharing(request(key=f"t{n}"), KEYS), range(16)))
    assert (len(sts.sessions), len(made)) == (16, 1)
    renewed = replace(KEYS, secret_access_key=Secret("another"))
    with pytest.raises(CredentialsUnavailable):
        sharing(request(), renewed)
    assert len(made) == 2
    sharing(request(), KEYS)
    assert len(made) == 2
    monkeypatch.setattr(roles, "CLIENTS", 1)
    sharing(request(), KEYS)
    assert len(services._clients) == 1


@pytest.mark.parametrize(
    ("failure", "lasting"),
    [
        ((400, "InvalidParameterValue", ""), True),
        ((501, "NotImplemented", ""), True),
        ((405, "MethodNotAllowed", ""), True),
        ((403, "InvalidAccessKeyId", ""), True),
        ((403, "SignatureDoesNotMatch", "The request signature differs"), True),
        ((403, "SignatureDoesNotMatch", "Signature expired: 1 is now earlier than 2"), False),
        ((400, "Throttling", ""), False),
        ((400, "ExpiredToken", ""), False),
        ((403, "RequestExpired", ""), False),
        ((429, "Anything", ""), False),
        ((500, "InternalFailure", ""), False),
    ],
)
def test_an_error_of_the_client_is_lasting_unless_it_ends_by_itself(
    sts: PoliciedSts, failure: tuple[int, str, str], lasting: bool
) -> None:
    sts.failures = [failure] * 2
    with pytest.raises(CredentialsUnavailable) as refused:
        vendor(sts)(request(), KEYS)
    assert refused.value.lasting is lasting


@pytest.mark.parametrize("name", ["access_key_id", "secret_access_key", "session_token"])
def test_keys_that_are_missing_in_an_answer_are_an_error(sts: PoliciedSts, name: str) -> None:
    sts.issue = lambda seconds: replace(new_session(seconds), **{name: ""})
    with pytest.raises(CredentialsUnavailable):
        vendor(sts)(request(), KEYS)
