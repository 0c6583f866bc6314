"""The protocol's table of errors as a whole: every row on every route that it applies to.

Rows that apply to any route run here over the whole route table, so that no new route is left out. Rows
about one route's own parameters have the tests that `HELD_BY` names. `HELD_BY` is compared with the table of
docs/errors.md.
"""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestClient, unused_port
from support.gateway_app import PREFIX, Clock, bearer, error_of, serve
from tables.small_tables import FIRST_MS, SECRET_PLACE, configuration
from tools import ROOT

from gateway.app import routes
from gateway.web.error_response import STATUS_OF

Client = TestClient[Any, Any]
Expected = tuple[int, str]

UNAUTHENTICATED: Expected = (401, "UNAUTHENTICATED")
MISSING: Expected = (404, "RESOURCE_DOES_NOT_EXIST")
INVALID: Expected = (400, "INVALID_PARAMETER_VALUE")
UNSUPPORTED: Expected = (400, "UNSUPPORTED_OPERATION")
UNAVAILABLE: Expected = (503, "TEMPORARILY_UNAVAILABLE")

PAGE = ROOT / "docs/errors.md"

EVERY_ROUTE = "test_every_route_through_every_row"
NO_HTTP = "test_invalid_http_gets_a_protocol_error_and_is_not_stored_or_logged"
HELD_BY = {
    "no token": EVERY_ROUTE,
    "a token request of": "test_every_failed_authentication_has_one_answer",
    "a token request without": "test_errors_are_those_of_oauth",
    "a token request with another": "test_errors_are_those_of_oauth",
    "a token request over": "test_errors_are_those_of_oauth",
    "token requests": "test_guesses_are_limited_and_hold_no_other_client_back",
    "a client address": "test_networks_keep_a_recipient_out_and_trusted_proxies_are_believed",
    "a token, recipient or grant": "test_a_whole_answer_is_not_sent_once_access_is_revoked",
    "a share, schema or table": EVERY_ROUTE,
    "a grant whose condition": "test_a_rule_that_the_table_does_not_decide_refuses_its_recipient_alone",
    "an unknown path": EVERY_ROUTE,
    "a method": EVERY_ROUTE,
    "`maxResults`": EVERY_ROUTE,
    "`pageToken`": EVERY_ROUTE,
    "a body that is not": "test_a_body_that_cannot_be_read",
    "a body over": "test_a_body_over_a_mebibyte",
    "bytes that are not": NO_HTTP,
    "a request line with": "test_other_versions_and_transfer_codings_are_refused_in_http_1_1",
    "another transfer coding": "test_other_versions_and_transfer_codings_are_refused_in_http_1_1",
    "a body that does not": "test_a_stalled_client_is_disconnected_and_costs_others_nothing",
    "an unknown field": "test_unknown_fields_are_ignored",
    "more than one of": "test_query_values_outside_of_the_accepted_range_are_refused",
    "negative `version`": "test_query_values_outside_of_the_accepted_range_are_refused",
    "`version` or `timestamp`": "test_history_that_is_not_shared",
    "a version before": "test_before_the_first_shared_version",
    "a version that is newer": "test_the_error_of_a_missing_version_names_the_available_ones",
    "a timestamp that": "test_parameters_outside_of_the_accepted_range_are_refused",
    "a starting timestamp": "test_accepted_versions_and_timestamps_beyond_the_ends_of_the_log",
    "`startingTimestamp`": "test_history_that_is_not_shared",
    "`startingVersion` after": "test_query_values_outside_of_the_accepted_range_are_refused",
    "`/changes` without": "test_parameters_outside_of_the_accepted_range_are_refused",
    "a range": "test_a_remove_without_its_add_in_the_log_is_a_distinct_error",
    "`refreshToken`": "test_query_values_outside_of_the_accepted_range_are_refused",
    "`fileidhash`": "test_an_unknown_scheme_of_file_ids",
    "`delta-sharing-capabilities`": "test_capabilities_that_cannot_be_read",
    "a response format": "test_a_format_or_feature_that_was_not_announced",
    "temporary credentials of a table": EVERY_ROUTE,
    "a query of a table": "test_a_table_with_directory_access_only_has_no_urls",
    "a `location`": "test_a_location_is_one_of_the_tables_roots",
    "temporary credentials for a recipient": "test_networks_that_a_store_cannot_hold_are_refused",
    "a reader feature": EVERY_ROUTE,
    "a table whose catalog": "test_a_managed_table_without_its_catalog_is_refused",
    "an answer with more files": "test_an_answer_above_the_number_of_remote_signatures_is_refused",
    "a predicate hint": "test_a_hint_never_fails_a_request",
    "a missing table": EVERY_ROUTE,
    "sources of a log": "test_an_answer_that_contradicts_the_checksum_file_is_an_error_with_a_status",
    "a corrupt log": "test_a_corrupt_log_names_a_request_to_quote",
    "a log that names": "test_without_allowed_roots_a_clone_is_refused",
    "a store that denies": "test_refused_keys_are_reported_as_the_providers_on_every_route",
    "a catalog of a table that denies": "test_refusals_of_the_catalog",
    "a catalog of a table that is": "test_a_catalog_that_is_away_is_a_503_without_its_host_until_it_is_back",
    "a store that is": EVERY_ROUTE,
    "a rate": "test_a_quick_recipient_gets_429_with_a_time_and_others_are_not_held",
    "a query or a request for metadata": "test_a_request_over_the_limit_gets_retry_after_and_then_succeeds",
    "a list of schemas": "test_a_storage_that_fails_keeps_what_was_known_and_is_counted",
    "a request over": "test_native_work_ends_at_the_deadline_of_its_request",
    "a token that is not known while": "test_a_long_outage_ends_what_the_database_gave_and_nothing_else",
    "an audit record": "test_requests_continue_while_the_audit_disk_is_full_unless_audit_fails_closed",
    "the URL of a data file that was": "test_an_expired_url_is_refused",
    "the URL of a data file that is": "test_a_signed_url_of_no_file_of_the_table_is_not_found",
    "a precondition": "test_pages_of_an_allowed_origin_may_read_every_answer",
    "a range of a data file": "test_a_range_that_cannot_be_satisfied",
    "anything else": "test_a_defect_is_named_by_its_request_id_alone",
}


@dataclass(frozen=True)
class Call:
    """A request that is answered well, to be spoiled by a row."""

    method: str
    path: str
    headers: dict[str, str]

    def of_table(self, name: str) -> "Call":
        return replace(self, path=self.path.replace("/tables/whole", f"/tables/{name}"))

    def plus(self, parameter: str) -> "Call":
        return replace(self, path=f"{self.path}{'&' if '?' in self.path else '?'}{parameter}")


WELL = {
    f"{route.method} {route.path}": Call(
        route.method,
        route.path.replace(":.+", "").format(
            share="s", schema="d", table="whole", volume="files", id="1", root="r", key="k"
        )
        + ("?startingVersion=0" if route.path.endswith("/changes") else ""),
        bearer(),
    )
    for route in routes(PREFIX)
}
OPEN = {
    f"GET {path}"
    for path in ("/healthz", "/readyz", f"{PREFIX}/openapi.json", f"{PREFIX}/files/{{root}}/{{key:.+}}")
}
NAMED = set(WELL) - OPEN
OF_SHARES = {path for path in NAMED if "{share}" in path}
LISTED = ("/shares", "/schemas", "/tables", "/all-tables", "/volumes", "/all-volumes")
LISTINGS = {path for path in NAMED if path.endswith(LISTED)}
OF_VOLUMES = {path for path in NAMED if "{volume}" in path}
NAMES_ONLY = {f"GET {PREFIX}/shares/{{share}}/schemas/{{schema}}/tables/{{table}}"}
OF_TABLES = {path for path in NAMED if "{table}" in path}
# It knows no query of any table, so it looks at none.
# Its tables are in directories, for which there are no credentials.
ISSUING = {path for path in OF_TABLES if path.endswith("/temporary-table-credentials")}
READING = {path for path in OF_TABLES if not path.endswith("/queries/{id}")} - NAMES_ONLY - ISSUING
PAGED = {path for path in OF_TABLES if path.endswith("/changes")} | LISTINGS


@dataclass(frozen=True)
class Row:
    """One thing that is wrong, with the routes that it can be wrong with."""

    title: str
    paths: set[str]
    spoil: Callable[[Call], Call]
    expected: Expected
    header: str | None = None


def with_authorization(*value: str) -> Callable[[Call], Call]:
    headers = {"Authorization": value[0]} if value else {}
    return lambda call: replace(call, headers=headers)


ROWS = [
    Row("no token", NAMED, with_authorization(), UNAUTHENTICATED, "WWW-Authenticate"),
    Row("malformed", NAMED, with_authorization("Basic abc"), UNAUTHENTICATED, "WWW-Authenticate"),
    Row("unknown token", NAMED, with_authorization("Bearer abc"), UNAUTHENTICATED, "WWW-Authenticate"),
    Row(
        "unknown share",
        OF_SHARES,
        lambda a: replace(a, path=a.path.replace("/shares/s", "/shares/none")),
        MISSING,
    ),
    Row("not granted", OF_SHARES, lambda a: replace(a, headers=bearer("bob")), MISSING),
    Row("unknown table", OF_TABLES, lambda a: a.of_table("none"), MISSING),
    Row("unknown volume", OF_VOLUMES, lambda a: replace(a, path=a.path.replace("/files", "/none")), MISSING),
    Row(
        "no token service",
        {path for path in OF_VOLUMES if path.endswith("-credentials")},
        lambda a: a,
        UNAVAILABLE,
        "Retry-After",
    ),
    Row("unknown path", set(WELL), lambda a: replace(a, path=f"{PREFIX}/none{a.path}"), MISSING),
    Row(
        "wrong method",
        set(WELL),
        lambda a: replace(a, method="DELETE"),
        (405, "UNSUPPORTED_OPERATION"),
        "Allow",
    ),
    Row("negative maxResults", LISTINGS, lambda a: a.plus("maxResults=-1"), INVALID),
    Row("maxResults is no integer", LISTINGS, lambda a: a.plus("maxResults=many"), INVALID),
    Row("malformed pageToken", PAGED, lambda a: a.plus("pageToken=none"), INVALID),
    Row("unknown feature", READING, lambda a: a.of_table("fancy"), UNSUPPORTED),
    Row("no directory access", ISSUING, lambda a: a, UNSUPPORTED),
    Row("no directory", READING, lambda a: a.of_table("absent"), MISSING),
    Row("nothing but a hint", READING, lambda a: a.of_table("empty"), MISSING),
    Row("storage is down", READING, lambda a: a.of_table("down"), UNAVAILABLE, "Retry-After"),
]


@pytest.fixture
async def client(tables: Path) -> AsyncIterator[Client]:
    started, _ = await serve(configuration(tables, unused_port()), clock=Clock(FIRST_MS + 86_400_000))
    yield started
    await started.close()


@pytest.mark.parametrize(
    ("row", "path"),
    [pytest.param(row, path, id=f"{row.title}-{path}") for row in ROWS for path in sorted(row.paths)],
)
async def test_every_route_through_every_row(client: Client, row: Row, path: str) -> None:
    call = row.spoil(WELL[path])
    has_json = call.method == "POST" and not call.path.endswith("/oauth/token")
    data = orjson.dumps({}) if has_json else None
    refused = await client.request(call.method, call.path, headers=call.headers, data=data)
    body = await refused.read()
    assert row.header is None or row.header in refused.headers
    assert refused.status == row.expected[0], body
    assert refused.headers["Content-Type"] == "application/json; charset=utf-8"
    if call.method == "HEAD":
        return
    assert error_of(body) == row.expected[1]
    assert SECRET_PLACE.encode() not in body


def rows_of_the_page() -> list[tuple[str, str, str]]:
    """Input, status and errorCode of each row of docs/errors.md."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.*?) ?\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [row for row in rows if row[0] not in {"input", "---"}]


def test_every_row_of_the_page_is_held_by_a_test() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    rows = rows_of_the_page()
    assert len(rows) == len(HELD_BY)
    for (row, _, _), (begins, test) in zip(rows, HELD_BY.items(), strict=True):
        assert row.startswith(begins), row
        assert f"def {test}(" in tests, test


def test_every_row_of_the_page_has_a_status_and_code_of_the_code() -> None:
    known = {(status, code) for status, code, _ in STATUS_OF.values()}
    listed = {(int(status), code.strip("`")) for _, status, code in rows_of_the_page() if code}
    assert listed == known, listed ^ known


def test_the_errors_page_lists_the_rows_of_these_tests() -> None:
    listed = {(int(status), code.strip("`")) for _, status, code in rows_of_the_page() if code}
    assert {row.expected for row in ROWS} <= listed
