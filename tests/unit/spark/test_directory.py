"""What a read of a table's directory hands to Delta, by answers of a server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.scripted_server import HEAD, Answers, listening

from gateway.client.transport import HttpError
from gateway.spark.read.directory import NoDirectoryAccess, table_directory
from gateway.spark.read.options import ReadOptions

KEYS = {"accessKeyId": "an-id", "secretAccessKey": "a-secret", "sessionToken": "a-token"}
CREDENTIALS = {"location": "s3://lake/sales/orders", "awsTempCredentials": KEYS, "expirationTime": 1}


@pytest.fixture
def answers() -> Iterator[Answers]:
    with listening() as mine:
        yield mine


def options(answers: Answers, **given: str) -> ReadOptions:
    profile = {"shareCredentialsVersion": 1, "endpoint": answers.url, "bearerToken": "t"}
    return ReadOptions.parse({"profile": json.dumps(profile), "path": "s.d.t", **given})


def head(**metadata: Any) -> tuple[Any, ...]:
    return HEAD[0], {"metaData": HEAD[1]["metaData"] | {"accessModes": ["url", "dir"], **metadata}}


@pytest.mark.parametrize("form", ["awsTempCredentials", "r2Credentials"])
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_keys_are_those_of_the_bucket_and_of_nothing_else(answers: Answers, form: str, scheme: str) -> None:
    answers.say(*head(), **{"Delta-Table-Version": "7"})
    answers.say({"credentials": {"location": f"{scheme}://lake/sales/orders", form: KEYS}})
    found = table_directory(options(answers, timestampAsOf="2026-01-01T00:00:00Z"))
    assert (found.location, found.version) == ("s3a://lake/sales/orders", 7)
    assert found.options["versionAsOf"] == "7"
    secrets = {name: value for name, value in found.options.items() if value in KEYS.values()}
    assert {*secrets.values()} == {*KEYS.values()}
    assert {name.rpartition("fs.s3a.bucket.lake.")[0] for name in secrets} == {""}
    assert all(name.startswith("fs.") for name in found.options.keys() - {"versionAsOf"})
    assert "a-secret" not in repr(found)
    assert "a-token" not in repr(found)
    assert [path.partition("/tables/t/")[2].partition("?")[0] for path, _ in answers.requests] == [
        "metadata",
        "temporary-table-credentials",
    ]


def test_clients_of_other_keys_are_others(answers: Answers) -> None:
    ids = []
    for token in ("one", "other", "one"):
        answers.say(*head())
        answers.say({"credentials": CREDENTIALS | {"awsTempCredentials": KEYS | {"sessionToken": token}}})
        ids.append(table_directory(options(answers)).options["fs.unitycatalog.cred.context.id"])
    assert ids[0] == ids[2] != ids[1]
    assert "one" not in ids[0]


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"accessModes": ["url"]}, "does not offer directory access"),
        ({"accessModes": None}, "does not offer directory access"),
        ({"auxiliaryLocations": ["s3://lake/source"]}, "outside of its directory"),
    ],
)
def test_a_table_that_its_directory_does_not_hold_is_refused_before_keys_are_requested(
    answers: Answers, metadata: dict[str, Any], reason: str
) -> None:
    answers.say(*head(**metadata))
    with pytest.raises(NoDirectoryAccess, match=reason):
        table_directory(options(answers))
    assert len(answers.requests) == 1


@pytest.mark.parametrize(
    "credentials",
    [
        {"location": "abfss://c@a.dfs.core.windows.net/t", "azureUserDelegationSas": {"sasToken": "a-token"}},
        {"location": "gs://lake/t", "gcpOauthToken": {"oauthToken": "a-token"}},
        {"location": "gs://lake/t", "awsTempCredentials": KEYS},
    ],
)
def test_other_stores_are_refused_without_their_keys(answers: Answers, credentials: dict[str, Any]) -> None:
    answers.say(*head())
    answers.say({"credentials": credentials})
    with pytest.raises(NoDirectoryAccess, match="API of S3") as refused:
        table_directory(options(answers))
    assert "a-token" not in str(refused.value)


def test_options_without_effect_and_other_versions_are_refused(answers: Answers) -> None:
    with pytest.raises(ValueError, match="predicateHints has no effect"):
        table_directory(options(answers, predicateHints="a = 1"))
    assert answers.requests == []
    for name in ("expectedVersion", "versionAsOf"):
        answers.say(*head())
        with pytest.raises(NoDirectoryAccess, match="answered version 1, not 2"):
            table_directory(options(answers, **{name: "2"}))
    answers.say({"message": "not yours"}, status=403)
    with pytest.raises(HttpError, match="not yours"):
        table_directory(options(answers))
