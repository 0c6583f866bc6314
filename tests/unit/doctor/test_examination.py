"""The doctor with servers of several implementations, and with their refusals."""

import base64
import json
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from support.findings import Examine, failed, steps, warned
from support.http_service import Request, Response, json_response
from support.sharing_server import PREFIX, SIGNATURE, STORED_FILE, TABLE, SharingServer

from gateway.doctor import examination

ALL_STEPS = [
    "profile", "clients", "clock", "shares", "schemas", "tables", "version", "metadata", "query parquet",
    "query delta", "file",
]  # fmt: skip


@pytest.fixture
def profile(sharing_server: SharingServer, tmp_path: Path) -> Path:
    return sharing_server.profile(tmp_path / "acme.share")


def test_a_share_that_can_be_read_has_no_problem(profile: Path, examine: Examine) -> None:
    assert steps(examine(profile)) == [(name, "ok") for name in ALL_STEPS]
    assert steps(examine(f"{profile}#SALES.Public.orders")) == [(name, "ok") for name in ALL_STEPS]


def test_requests_have_the_form_of_clients(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    examine(profile)
    sent = {(one.method, one.path): one for one in sharing_server.http.requests}
    query = sent["POST", f"{TABLE}/query"]
    assert json.loads(query.body) == {"limitHint": 1}
    assert query.headers["content-type"].startswith("application/json")
    stored = sent["GET", STORED_FILE]
    assert stored.headers["range"] == "bytes=0-3"
    assert stored.query == {"X-Amz-Signature": SIGNATURE}
    queries = [one for one in sharing_server.http.requests if one.path == f"{TABLE}/query"]
    formats = [one.headers.get("delta-sharing-capabilities", "").partition(";")[0] for one in queries]
    assert formats == ["", "responseformat=delta"]


@pytest.mark.parametrize(
    ("status", "body", "headers", "owner", "message", "advice"),
    [
        (
            401,
            {"errorCode": "UNAUTHENTICATED", "message": "no"},
            {},
            "provider",
            "401 UNAUTHENTICATED: no",
            "new",
        ),
        # As Databricks writes it.
        (
            403,
            {"error_code": "PERMISSION_DENIED", "message": "IP 192.0.2.1 is blocked", "details": []},
            {},
            "provider",
            "403 PERMISSION_DENIED: IP 192.0.2.1 is blocked",
            "networks of the recipient",
        ),
        # As catalogs of Iceberg write it.
        (
            403,
            {"error": {"message": "no", "type": "ForbiddenException", "code": 403}},
            {},
            "provider",
            "403 ForbiddenException: no",
            "networks",
        ),
        (403, "Forbidden", {}, "network", "with 403", "web filter"),
        (404, {"errorCode": "X", "message": "no"}, {}, "recipient", "404 X: no", "path of the endpoint"),
        (404, "Not Found", {}, "recipient", "with 404", "/delta-sharing"),
        (
            429,
            {"errorCode": "RESOURCE_EXHAUSTED"},
            {"Retry-After": "7"},
            "recipient",
            "429",
            "wait 7 seconds",
        ),
        (
            500,
            {"errorCode": "INTERNAL_ERROR", "message": "oh"},
            {"X-Request-Id": "abc"},
            "provider",
            "500 INTERNAL_ERROR: oh (request id abc)",
            "log",
        ),
        (502, "", {}, "provider", "with 502", "load balancer"),
        (503, {"errorCode": "TEMPORARILY_UNAVAILABLE"}, {}, "provider", "503", "try again"),
        (407, "", {}, "network", "requires a login", "HTTPS_PROXY"),
        (200, "<html>log in</html>", {}, "network", "HTML page with status 200", "login page"),
        (403, "<!DOCTYPE html><p>blocked", {}, "network", "HTML page with status 403", "web filter"),
        (302, "", {"Location": "https://portal.example/x?token=1"}, "network", "to portal.example", "log in"),
        (301, "", {"Location": "/elsewhere"}, "recipient", "to another path", "profile"),
        (301, "", {"Location": "http://["}, "recipient", "to another path", "profile"),
        (200, {"items": [1]}, {}, "recipient", "not follow Delta Sharing", "endpoint"),
        (200, "OK", {}, "recipient", "not follow Delta Sharing", "endpoint"),
        (200, {"items": []}, {}, "provider", "no share", "grant"),
        (200, {}, {}, "provider", "no share", "grant"),
    ],
)
def test_a_refused_list_of_shares_says_why_and_who_mends_it(
    sharing_server: SharingServer,
    profile: Path,
    examine: Examine,
    *,
    status: int,
    body: Any,
    headers: dict[str, str],
    owner: str,
    message: str,
    advice: str,
) -> None:
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    sharing_server.answers[f"{PREFIX}/shares"] = Response(status, content, headers)
    found = failed(examine(profile))
    assert found.step == "server"
    assert found.owner == owner
    assert message in found.message
    assert advice in found.advice


def test_a_wrong_prefix_is_corrected(sharing_server: SharingServer, tmp_path: Path, examine: Examine) -> None:
    profile = sharing_server.profile(tmp_path / "a.share", endpoint=sharing_server.http.url)
    found = failed(examine(profile))
    assert found.owner == "recipient"
    assert found.advice == f"write {sharing_server.endpoint} as the endpoint of the profile"


def test_a_refused_identity_token_shows_its_claims(
    sharing_server: SharingServer, tmp_path: Path, examine: Examine
) -> None:
    fields = {"iss": "https://login.example/tenant/v2.0", "aud": ["api://x/y"], "sub": "job", "exp": 1}
    claims = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")
    profile = sharing_server.profile(tmp_path / "a.share", bearerToken=f"eyJhbGciOiJub25lIn0.{claims}.c2ln")
    findings = examine(profile)
    ended, refused = [one for one in findings if one.status == "fail"]
    assert ended.message == "the token ended on 1970-01-01 00:00 UTC"
    assert "iss https://login.example/tenant/v2.0, aud ['api://x/y'], sub job" in refused.advice


@pytest.mark.parametrize("end", [True, "1", None, [], 4e9])
def test_an_end_that_is_no_past_time_does_not_end_a_token(
    sharing_server: SharingServer, tmp_path: Path, examine: Examine, end: Any
) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": end}).encode()).decode().rstrip("=")
    profile = sharing_server.profile(tmp_path / "a.share", bearerToken=f"eyJhbGciOiJub25lIn0.{claims}.c2ln")
    assert failed(examine(profile)).step == "server"


@pytest.mark.parametrize(
    ("minutes", "status", "words"),
    [(0, "ok", "within a minute"), (-6, "warn", "6 minutes ahead of"), (30, "fail", "30 minutes behind")],
)
def test_the_clock_is_compared_with_the_server(
    sharing_server: SharingServer,
    profile: Path,
    examine: Examine,
    *,
    minutes: int,
    status: str,
    words: str,
) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(minutes=minutes), usegmt=True)
    content = json.dumps({"items": [{"name": "sales"}]}).encode()
    sharing_server.answers[f"{PREFIX}/shares"] = Response(200, content, {"Date": date})
    (found,) = [one for one in examine(profile) if one.step == "clock"]
    assert (found.status, words in found.message) == (status, True), found


@pytest.mark.parametrize("path", [f"{PREFIX}/shares", STORED_FILE])
@pytest.mark.parametrize("date", ["Mon, 01 Jan 2024 00:00:00 +99999999999999999", "Mon, 99 Foo 0000", ""])
def test_a_date_that_cannot_be_read_is_ignored(
    sharing_server: SharingServer, profile: Path, examine: Examine, path: str, date: str
) -> None:
    sharing_server.answers[path] = json_response({"errorCode": "X", "message": "no"}, 403)
    before = failed(examine(profile))
    refusal = sharing_server.answers[path]
    sharing_server.answers[path] = Response(refusal.status, refusal.body, {"Date": date})
    assert failed(examine(profile)) == before


def test_a_run_of_many_slow_answers_ends(
    sharing_server: SharingServer, profile: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "TIMEOUTS_OF_RUN", 0.5)

    def slow(_: Request) -> Response:
        time.sleep(0.15)
        return json_response({"items": [{"name": "sales"}], "nextPageToken": "x"})

    for route in ("shares", "shares/sales/schemas", "shares/sales/all-tables"):
        sharing_server.answers[f"{PREFIX}/{route}"] = slow
    findings = examine(profile, timeout_seconds=6)
    found = failed(findings)
    assert found.step == "doctor"
    assert found.message == "the examination was ended after 3 seconds, before its last step"
    assert ("shares", "ok") in steps(findings)


def test_lists_are_read_over_pages_and_bounded(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    page = {"items": [{"name": "sales"}], "nextPageToken": "a+b/="}
    sharing_server.answers[f"{PREFIX}/shares"] = json_response(page)
    (found,) = [one for one in examine(profile) if one.step == "shares"]
    assert found.message.startswith("10 or more: sales")
    asked = [one for one in sharing_server.http.requests if one.path == f"{PREFIX}/shares"]
    assert [one.query for one in asked] == [{}, *([{"pageToken": "a+b/="}] * 9)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("other.public.orders", "the share other is not granted; the recipient has sales"),
        ("sales.other.orders", "the schema other is not granted; the recipient has public"),
        ("sales.public.other", "the table other is not granted; the recipient has orders"),
    ],
)
def test_a_name_that_is_not_granted_is_named_with_those_that_are(
    profile: Path, examine: Examine, table: str, message: str
) -> None:
    found = failed(examine(f"{profile}#{table}"))
    assert found.message == message


def test_a_profile_without_a_table_takes_the_first_share_that_has_one(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    shares = [{"name": "empty"}, {"name": "sales"}]
    sharing_server.answers[f"{PREFIX}/shares"] = json_response({"items": shares})
    for route in ("schemas", "all-tables"):
        sharing_server.answers[f"{PREFIX}/shares/empty/{route}"] = json_response({})
    assert not [one for one in examine(profile) if one.status != "ok"]
    sharing_server.answers[f"{PREFIX}/shares/sales/all-tables"] = json_response({})
    assert warned(examine(profile)).message == "no table is in the first 2 shares"


def test_a_missing_version_header_is_named(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    sharing_server.answers[f"{TABLE}/version"] = Response(200, b"")
    assert "without the header Delta-Table-Version" in failed(examine(profile)).message


def test_a_table_without_the_parquet_format_can_be_read_in_the_delta_format(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    refusal = {"errorCode": "UNSUPPORTED_OPERATION", "message": "ask for deletionvectors"}

    def answer(request: Any) -> Response:
        is_delta = "responseformat=delta" in request.headers.get("delta-sharing-capabilities", "")
        return sharing_server._default(request) if is_delta else json_response(refusal, 400)

    sharing_server.answers[f"{TABLE}/query"] = answer
    found = warned(examine(profile))
    assert found.step == "query parquet"
    assert found.message.startswith("the table has no parquet format: 400 UNSUPPORTED_OPERATION")
    assert found.owner == "recipient"
    assert "responseFormat=delta" in found.advice


def test_a_server_of_the_parquet_format_alone_is_a_warning(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    lines = sharing_server.parquet()
    for route, kept in (("metadata", lines[:2]), ("query", lines)):
        sharing_server.say(f"{TABLE}/{route}", *kept, Delta_Table_Version="7")
    assert "only in the parquet format" in warned(examine(profile)).message


def test_a_format_that_is_refused_in_both_forms_fails(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    sharing_server.answers[f"{TABLE}/query"] = json_response({"errorCode": "X", "message": "no"}, 400)
    findings = [one for one in examine(profile) if one.status == "fail"]
    assert [one.step for one in findings] == ["query parquet", "query delta"]


@pytest.mark.parametrize(
    ("features", "status", "message"),
    [
        ([], "ok", "the table needs no reader feature"),
        (["v2Checkpoint"], "ok", "the table needs no reader feature"),
        (["columnMapping", "deletionVectors"], "ok", "read by Python 1.4, Spark 4"),
        (["variantType"], "ok", "read by Spark 4"),
        (["geospatial", "columnMapping"], "warn", "the table needs geospatial, which no client known"),
    ],
)
def test_the_reader_features_of_a_table_are_named_with_their_clients(
    sharing_server: SharingServer,
    profile: Path,
    examine: Examine,
    *,
    features: list[str],
    status: str,
    message: str,
) -> None:
    protocol = {"protocol": {"deltaProtocol": {"minReaderVersion": 3, "readerFeatures": features}}}
    sharing_server.say(f"{TABLE}/metadata", protocol, sharing_server.delta()[1])
    (found,) = [one for one in examine(profile) if one.step == "metadata"]
    assert (found.status, message in found.message) == (status, True), found


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"queryStatus": {"queryId": "q"}}], "later, although the request does not allow it"),
        ([{"metaData": {}}], "does not begin with protocol and metaData"),
        ([1], "does not begin with protocol and metaData"),
        (
            [{"protocol": {}}, {"metaData": {}}, {"endStreamAction": {"errorMessage": "lost"}}],
            "with the error lost",
        ),
        (
            [{"protocol": {}}, {"metaData": {}}, {"file": {"id": "x"}}],
            "a file of the parquet format has no URL",
        ),
        (
            [{"protocol": {}}, {"metaData": {"numFiles": 3}}],
            "without a file, and says that the table has some",
        ),
        ([{"protocol": {}}, {"metaData": {"numFiles": 0}}], "the table has no files"),
    ],
)
def test_an_answer_that_is_not_one_of_a_query_is_described(
    sharing_server: SharingServer, profile: Path, examine: Examine, lines: list[Any], message: str
) -> None:
    sharing_server.say(f"{TABLE}/query", *lines, delta_sharing_capabilities="responseformat=parquet")
    found = [one for one in examine(profile) if one.step == "query parquet"]
    assert message in found[0].message


def test_a_large_answer_is_read_to_its_first_file(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    lines = sharing_server.parquet()
    many = [*lines, *([lines[2]] * 20_000)]
    sharing_server.say(f"{TABLE}/query", *many, delta_sharing_capabilities="responseformat=parquet")
    assert steps(examine(profile))[-1] == ("file", "ok")


def test_a_table_of_directory_access_alone_is_a_warning_for_clients_of_urls(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    protocol, metadata, _ = sharing_server.delta()
    metadata["metaData"]["accessModes"] = ["dir"]
    sharing_server.say(f"{TABLE}/metadata", protocol, metadata)
    found = warned(examine(profile))
    assert found.step == "query"
    assert "only by directory access" in found.message


XML = "<?xml version='1.0'?><Error><Code>{}</Code><Message>{}</Message></Error>"


@pytest.mark.parametrize(
    ("status", "body", "headers", "owner", "words"),
    [
        (403, XML.format("SignatureDoesNotMatch", "x"), {}, "provider", "the signature does not fit"),
        (403, XML.format("AccessDenied", "Access Denied"), {}, "provider", "the store denies"),
        (403, XML.format("AccessDenied", "Request has expired"), {}, "recipient", "the URL has ended"),
        (403, XML.format("RequestTimeTooSkewed", "x"), {}, "provider", "the clock of the signer"),
        (400, XML.format("ExpiredToken", "x"), {}, "provider", "have ended"),
        (403, "", {"x-ms-error-code": "AuthorizationFailure"}, "provider", "a network rule of the account"),
        (
            403,
            XML.format("AuthenticationFailed", "Signature not valid in the specified time frame"),
            {"x-ms-error-code": "AuthenticationFailed"},
            "recipient",
            "the URL has ended",
        ),
        (403, XML.format("SecurityPolicyViolated", "x"), {}, "provider", "a VPC service perimeter"),
        (403, XML.format("KMS.DisabledException", "x"), {}, "provider", "the key that encrypts"),
        (404, XML.format("NoSuchKey", "private-directory"), {}, "provider", "a data file is missing"),
        (403, "denied", {}, "provider", "the store, or something before it"),
        (418, json.dumps({"message": "a teapot"}), {}, "provider", "a teapot"),
        (403, "<html>blocked</html>", {}, "network", "an HTML page"),
        (200, "<html>blocked</html>", {}, "network", "an HTML page"),
        (206, "abcd", {}, "network", "are not a Parquet file"),
        (302, "", {"Location": "https://portal.example"}, "network", "redirected to portal.example"),
    ],
)
def test_a_refusal_of_the_store_says_why_and_who_mends_it(
    sharing_server: SharingServer,
    profile: Path,
    examine: Examine,
    *,
    status: int,
    body: str,
    headers: dict[str, str],
    owner: str,
    words: str,
) -> None:
    sharing_server.answers[STORED_FILE] = Response(status, body.encode(), headers)
    found = failed(examine(profile))
    assert (found.step, str(found.owner)) == ("file", owner)
    assert words in found.message


def test_a_clock_that_differs_hides_no_reason_of_the_store(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    date = format_datetime(datetime.now(UTC) - timedelta(minutes=6), usegmt=True)
    body = XML.format("AccessDenied", "Access Denied")
    sharing_server.answers[STORED_FILE] = Response(403, body.encode(), {"Date": date})
    found = failed(examine(profile))
    assert str(found.owner) == "provider"
    assert "the identity has no right; the clock of this machine is 6 minutes ahead of" in found.message
    assert "s3:GetObject" in found.advice


def test_a_store_that_ignores_ranges_and_short_urls_are_warnings(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    sharing_server.answers[STORED_FILE] = Response(200, b"PAR1" + bytes(1_000_000))
    assert "ignores ranges" in warned(examine(profile)).message
    ranged = {"Content-Range": "bytes 0-3/9"}
    sharing_server.answers[STORED_FILE] = Response(200, b"PAR1", ranged)
    assert "sends ranges with the status of whole files" in warned(examine(profile)).message
    del sharing_server.answers[STORED_FILE]
    protocol, metadata, file = sharing_server.parquet()
    file["file"]["expirationTimestamp"] = 0
    headers = {"delta_sharing_capabilities": "responseformat=parquet"}
    sharing_server.say(f"{TABLE}/query", protocol, metadata, file, **headers)
    messages = [one.message for one in examine(profile) if one.status == "warn"]
    assert messages[-1] == "URLs live for 0 minutes: Spark clients take them for expired"


@pytest.mark.parametrize(
    "url", ["s3://bucket/private-directory/x", "file:///private-directory/x", "http://[", "https://x:y"]
)
def test_a_location_instead_of_a_url_is_the_provider_s(
    sharing_server: SharingServer, profile: Path, examine: Examine, url: str
) -> None:
    protocol, metadata, file = sharing_server.parquet()
    file["file"]["url"] = url
    sharing_server.say(f"{TABLE}/query", protocol, metadata, file)
    found = [one for one in examine(profile) if one.step == "file"]
    assert found[0].message == "the server answers with a location instead of a URL"


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_table_whose_feed_is_on_but_not_shared_is_named(
    sharing_server: SharingServer, examine: Examine, tmp_path: Path, is_shared: bool
) -> None:
    protocol, metadata = sharing_server.delta()[:2]
    metadata["metaData"]["deltaMetadata"]["configuration"] = {"delta.enableChangeDataFeed": "true"}
    sharing_server.say(f"{TABLE}/metadata", protocol, metadata)
    if is_shared:
        sharing_server.say(f"{TABLE}/changes", protocol, metadata)
    else:
        refusal = {"errorCode": "INVALID_PARAMETER_VALUE", "message": "no history"}
        sharing_server.answers[f"{TABLE}/changes"] = json_response(refusal, 400)
    (found,) = (found for found in examine(sharing_server.profile(tmp_path / "p")) if found.step == "changes")
    if is_shared:
        assert (found.status, found.message) == ("ok", "its changes can be read")
    else:
        assert (found.status, found.owner) == ("warn", "provider")
        assert "sales.public.orders has a change data feed, and its changes cannot be read" in found.message
        assert "historyShared" in str(found.advice)
