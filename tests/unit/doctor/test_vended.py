"""Temporary credentials of a table: their answer, and the list of the log with them."""

import time
from pathlib import Path
from typing import Any

import pytest
from support.findings import Examine, failed, steps
from support.http_service import Response, json_response
from support.sharing_server import PREFIX, TABLE, SharingServer

from gateway.doctor import transport

VEND = f"{TABLE}/temporary-table-credentials"
KEYS = {
    "accessKeyId": "AKIAEXAMPLE",
    "secretAccessKey": "a-vended-secret",
    "sessionToken": "a-vended-session",
}
BUCKET = "/bucket"


def credentials(**changes: Any) -> dict[str, Any]:
    fields = {
        "location": "s3://bucket/private-directory/t",
        "awsTempCredentials": KEYS,
        "expirationTime": int(time.time() * 1000) + 3_600_000,
        **changes,
    }
    return {name: value for name, value in fields.items() if value is not None}


@pytest.fixture
def profile(sharing_server: SharingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A profile of a server whose table has both access modes; the store is the same server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", sharing_server.http.url)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    item = {"name": "orders", "schema": "public", "share": "sales", "accessModes": ["url", "dir"]}
    sharing_server.answers[f"{PREFIX}/shares/sales/all-tables"] = json_response({"items": [item]})
    sharing_server.answers[BUCKET] = Response(200, b"<ListBucketResult/>")
    return sharing_server.profile(tmp_path / "a.share")


@pytest.mark.parametrize("wrapped", [True, False])
def test_the_log_is_listed_with_vended_keys(
    sharing_server: SharingServer, profile: Path, examine: Examine, wrapped: bool
) -> None:
    answer = {"credentials": credentials()} if wrapped else credentials()
    sharing_server.answers[VEND] = json_response(answer)
    findings = examine(profile)
    assert steps(findings)[-1] == ("credentials", "ok")
    assert "awsTempCredentials list the log of the table" in findings[-1].message
    (sent,) = [one for one in sharing_server.http.requests if one.path == BUCKET]
    assert sent.query == {"list-type": "2", "max-keys": "1", "prefix": "private-directory/t/_delta_log/"}
    assert sent.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/")
    assert "/eu-central-1/s3/aws4_request" in sent.headers["authorization"]
    assert sent.headers["x-amz-security-token"] == KEYS["sessionToken"]
    (asked,) = [one for one in sharing_server.http.requests if one.path == VEND]
    assert (asked.method, asked.body) == ("POST", b"")


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%23b", "a b", "#", "ü"])
def test_a_location_has_its_key_as_it_is(
    sharing_server: SharingServer, profile: Path, examine: Examine, name: str
) -> None:
    location = f"s3://bucket/private-directory/{name}/t"
    sharing_server.answers[VEND] = json_response({"credentials": credentials(location=location)})
    findings = examine(profile)
    assert steps(findings)[-1] == ("credentials", "ok")
    (sent,) = [one for one in sharing_server.http.requests if one.path == BUCKET]
    assert sent.query["prefix"] == f"private-directory/{name}/t/_delta_log/"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (json_response({"credentials": credentials(awsTempCredentials=None)}), "exactly one kind"),
        (json_response({"credentials": credentials(gcpOauthToken={"oauthToken": "x"})}), "exactly one kind"),
        (json_response({"credentials": credentials(awsTempCredentials={})}), "all fields of awsTemp"),
        (json_response({"credentials": credentials(expirationTime=None)}), "location and expirationTime"),
        (json_response({"credentials": credentials(expirationTime=1)}), "ended on 1970-01-01"),
        (json_response({"credentials": credentials(location="bucket/t")}), "without a location"),
        (json_response({"credentials": credentials(location="s3://[b/t")}), "without a location"),
        (json_response([]), "exactly one kind"),
        (json_response({"errorCode": "X", "message": "no"}, 403), "403 X: no"),
    ],
)
def test_an_answer_without_usable_credentials_fails(
    sharing_server: SharingServer, profile: Path, examine: Examine, answer: Response, message: str
) -> None:
    sharing_server.answers[VEND] = answer
    found = failed(examine(profile))
    assert found.step == "credentials"
    assert message in found.message


def test_a_store_that_denies_vended_keys_is_explained(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    sharing_server.answers[VEND] = json_response({"credentials": credentials()})
    secret = KEYS["sessionToken"]
    body = f"<Error><Code>AccessDenied</Code><Message>{secret}</Message></Error>"
    sharing_server.answers[BUCKET] = Response(403, body.encode())
    found = failed(examine(profile))
    assert found.message == (
        "the store of the directory answers 403 AccessDenied: the store denies the request: the identity "
        "has no right"
    )
    assert secret not in repr(found)


def test_a_list_of_an_absent_bucket_is_about_no_file(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    sharing_server.answers[VEND] = json_response({"credentials": credentials()})
    sharing_server.answers[BUCKET] = json_response({"error": {"code": 404, "message": "no"}}, 404)
    assert "the bucket does not exist" in failed(examine(profile)).message


def test_the_region_of_a_bucket_comes_from_the_bucket(
    sharing_server: SharingServer, profile: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    monkeypatch.delenv("AWS_REGION")
    # The public host is not reached by tests: requests for it go to a proxy, which refuses.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    sharing_server.answers[VEND] = json_response({"credentials": credentials()})
    found = failed(examine(profile))
    assert (found.step, str(found.owner)) == ("credentials", "network")


class Recorded:
    """Keeps the request that the doctor sends to a store with a public address."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, server: SharingServer) -> None:
        self.url, self.headers = "", {}
        send = transport.Transport.send

        def redirected(this: Any, service: Any, method: str, url: str, **options: Any) -> Any:
            if url.startswith("https://"):
                self.url, self.headers = url, options.get("headers") or {}
                url, options["headers"] = f"{server.http.url}{BUCKET}", {}
            return send(this, service, method, url, **options)

        monkeypatch.setattr(transport.Transport, "send", redirected)


@pytest.mark.parametrize(
    ("location", "kind", "values", "url"),
    [
        (
            "abfss://c@acct.dfs.core.windows.net/private-directory/t",
            "azureUserDelegationSas",
            {"sasToken": "?sv=1&sig=abc%2Bdef"},
            (
                "https://acct.dfs.core.windows.net/c?resource=filesystem&recursive=false&maxResults=1"
                "&directory=private-directory%2Ft%2F_delta_log&sv=1&sig=abc%2Bdef"
            ),
        ),
        (
            "gs://bucket/private-directory/t",
            "gcpOauthToken",
            {"oauthToken": "ya29.example"},
            (
                "https://storage.googleapis.com/storage/v1/b/bucket/o"
                "?prefix=private-directory%2Ft%2F_delta_log%2F&maxResults=1"
            ),
        ),
        (
            "r2://bucket@acct.r2.cloudflarestorage.com/private-directory/t",
            "r2Credentials",
            KEYS,
            (
                "https://acct.r2.cloudflarestorage.com/bucket"
                "?list-type=2&max-keys=1&prefix=private-directory%2Ft%2F_delta_log%2F"
            ),
        ),
    ],
)
def test_the_log_is_listed_at_each_kind_of_store(
    sharing_server: SharingServer,
    profile: Path,
    examine: Examine,
    monkeypatch: pytest.MonkeyPatch,
    *,
    location: str,
    kind: str,
    values: dict[str, str],
    url: str,
) -> None:
    recorded = Recorded(monkeypatch, sharing_server)
    answer = credentials(location=location, awsTempCredentials=None, **{kind: values})
    sharing_server.answers[VEND] = json_response({"credentials": answer})
    findings = examine(profile)
    assert steps(findings)[-1] == ("credentials", "ok"), findings[-1]
    assert recorded.url == url
    assert not [value for value in values.values() if value in repr(findings)]
