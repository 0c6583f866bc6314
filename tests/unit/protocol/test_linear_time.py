"""Every parser of client text takes time in proportion to the text's length.

Each gets hostile texts: a prefix, a repeated unit, a suffix. A doubling of the length may take 2.5 times the
CPU time of this thread, which leaves other work of the machine out; a quadratic parser takes four times as
long, however often it is measured. Where one doubling takes more, the mean of two decides: buffers that grow
in steps, and caches that other work fills, cost a linear parser up to 2.6 times for one of them.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from yarl import URL

from gateway.app import routes
from gateway.authentication.credential_table import bearer_token
from gateway.authentication.sealed_tokens import Page, Refresh, Sealer
from gateway.catalog.catalog import Catalog
from gateway.config import TokenKey, loads
from gateway.config.networks import parse_networks
from gateway.config.secret import Secret
from gateway.errors import GatewayError
from gateway.protocol.capabilities import _capabilities, file_id_scheme
from gateway.protocol.parsing import parse_timestamp
from gateway.protocol.queries import ChangesQuery, ListQuery, TableQuery, TimeTravel
from gateway.routes import files
from gateway.tables.native import Snapshot
from gateway.tables.registry import Tables
from gateway.web import content_coding
from gateway.web import recorder as watch
from gateway.web.client_address import client_address
from gateway.web.router import Router

Parse = Callable[[str], object]

LENGTH = 1 << 13
MOST_GROWTH = 2.5
"""Of the CPU time, for a doubling of the length."""
DOUBLINGS = (1, 2)
CLOCKED_SECONDS = 0.0003
ROUNDS = 3
TRIES = 10

ANY = ["", "a", "1", "-", "=", ",", ";", '"', "\\", " "]
SEALER = Sealer([TokenKey("k1", Secret("a secret for the tests"))])
LOOPBACK = parse_networks(["127.0.0.0/8"])
ROUTER = Router(routes("/delta-sharing"))


def cpu_seconds(parse: Parse, text: str, calls: int) -> float:
    started = time.thread_time()
    for _ in range(calls):
        with suppress(GatewayError, ValueError, web.HTTPException):
            parse(text)
    return time.thread_time() - started


def growth(parse: Parse, make: Callable[[int], str]) -> float:
    """How many times longer a text takes for each doubling of its length: the least of some tries."""
    short = make(LENGTH)
    calls = 1 + int(CLOCKED_SECONDS / max(cpu_seconds(parse, short, 1), 1e-7))
    least = float("inf")
    # Most parsers pass the first try, which is short.
    for rounds in (1, *[ROUNDS] * TRIES):
        once = min(cpu_seconds(parse, short, calls) for _ in range(rounds))
        for doublings in DOUBLINGS:
            long = make(2**doublings * LENGTH)
            longer = min(cpu_seconds(parse, long, calls) for _ in range(rounds))
            least = min(least, (longer / once) ** (1 / doublings))
            if least <= MOST_GROWTH:
                return least
    return least


def assert_linear(parse: Parse, prefixes: list[str], units: list[str], suffixes: list[str]) -> None:
    for prefix, unit, suffix in product(prefixes, [unit for unit in units if unit], suffixes):

        def make(length: int, prefix: str = prefix, unit: str = unit, suffix: str = suffix) -> str:
            return prefix + unit * (length // len(unit)) + suffix

        found = growth(parse, make)
        assert found <= MOST_GROWTH, f"{prefix!r}, {unit!r} again and again, {suffix!r}: {found:.1f} times"


def query_of(text: str) -> Any:
    return URL(f"http://x/?{text}", encoded=True).query


def request(header: str, text: str) -> web.Request:
    return make_mocked_request("GET", "/", headers={header: text})


def found_route(path: str) -> object:
    # A longer path than those that are cached.
    return ROUTER.find("GET", URL(path, encoded=True).path_safe)


def opened_page(text: str) -> object:
    return Page.open(SEALER, "alice", text, table="t", parameters=[], now_ms=0)


def opened_refresh(text: str) -> object:
    return Refresh.open(SEALER, "alice", text, table="t", now_ms=0)


HEADERS: dict[str, tuple[Parse, list[str], list[str], list[str]]] = {
    "authorization": (
        lambda text: bearer_token([text]),
        ["", "Bearer ", "bearer a"],
        [" ", "a", "=", "a=", "Bearer ", "~", "\t", " \t", "a ", "\n"],
        ["", "=", "\x7f", "\n", "\n\n", " "],
    ),
    "capabilities": (
        _capabilities.__wrapped__,
        ["", "responseformat=", "readerfeatures="],
        ["a,", ",", ";", "=", "a=b;", " ", "responseformat=delta;"],
        ["", ";"],
    ),
    "file ids": (file_id_scheme, [""], ["delta", " ", "\t"], ["", "x"]),
    "accept-encoding": (
        content_coding._read_codings.__wrapped__,
        ["", "gzip;q=", "gzip;"],
        ["gzip,", ",", ";", "*;q=0.5,", "0", "9", "q=1;", " ", "1e"],
        ["", ",", "x"],
    ),
    "forwarded-for": (
        lambda text: client_address("127.0.0.1", [text], LOOPBACK),
        ["", "[", "127.0.0.1,"],
        ["127.0.0.1,", ",", ":", "::", "1.", "[", "%", " ", '"', "f"],
        ["", "]", "x"],
    ),
    "traceparent": (
        lambda text: TraceContextTextMapPropagator().extract({"traceparent": text}),
        ["", "00-", f"00-{'a' * 32}-{'b' * 16}-01-"],
        ["0", "-", "a-", " ", "\t"],
        ["", "-01", "x"],
    ),
    "user-agent": (watch._readable, [""], ["a", "\udcff", "é"], [""]),
    "range": (
        lambda text: request("Range", text).http_range,
        ["", "bytes=", "bytes=0-"],
        ["0", "-", "0-1,", " ", "bytes="],
        ["", "-", "x"],
    ),
    "if-none-match": (
        lambda text: request("If-None-Match", text).if_none_match,
        ["", '"a"'],
        ['"a",', '"', "W/", " ", ",", "*"],
        ["", '"', "x"],
    ),
    "if-modified-since": (
        lambda text: request("If-Modified-Since", text).if_modified_since,
        [""],
        ["Mon, ", "1 ", "0", ":", " ", "Jan "],
        ["", " GMT"],
    ),
}

QUERIES: dict[str, tuple[Parse, list[str], list[str], list[str]]] = {
    "a listing": (
        lambda text: ListQuery.parse(query_of(text)),
        ["", "maxResults=", "pageToken="],
        ["&", "a=1&", "=", "%25", "%", "+", "1", "maxResults=1&", ";"],
        ["", "&"],
    ),
    "changes": (
        lambda text: ChangesQuery.parse(query_of(text)),
        ["startingVersion=", "startingTimestamp=", "endingTimestamp="],
        ["1", "0", "%20", "-", ":", "2024-", "T"],
        ["", "&startingVersion=0", "Z"],
    ),
    "time travel": (
        lambda text: TimeTravel.parse(query_of(text)),
        ["version=", "timestamp="],
        ["1", "%20", "+"],
        ["", "x"],
    ),
    "a path": (
        found_route,
        ["/", "/delta-sharing/shares/", "/delta-sharing/files/x/"],
        ["/", "a/", "%2F", "%25", "../", "a", "%c3%a4", "./"],
        ["", "/"],
    ),
    "a timestamp": (
        parse_timestamp,
        ["", "2024-01-01T00:00:00", "2024-01-01T00:00:00.", "2024-01-01T00:00:00+"],
        ["0", "1-", " ", ":", "T", "00:", "\n"],
        ["", "Z"],
    ),
    "a page token": (opened_page, ["", "AQ"], ["A", "=", "-", "\n", " ", "é"], ["", "="]),
    "a refresh token": (opened_refresh, ["", "AQ"], ["A", "=", "_", "+"], ["", "="]),
    "a listing's token": (
        lambda text: SEALER.open("list", "alice", text, now_ms=0),
        ["", "AQ"],
        ["A", "/"],
        [""],
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_is_read_in_linear_time(name: str) -> None:
    parse, prefixes, units, suffixes = HEADERS[name]
    assert_linear(parse, prefixes, [*units, *ANY], suffixes)


@pytest.mark.parametrize("name", QUERIES)
def test_a_part_of_a_url_is_read_in_linear_time(name: str) -> None:
    parse, prefixes, units, suffixes = QUERIES[name]
    assert_linear(parse, prefixes, units, suffixes)


@pytest.mark.parametrize("prefix", ["", '"', '["', '{"other":[', '{"predicateHints":["', '{"version":'])
def test_a_body_is_read_in_linear_time(prefix: str) -> None:
    # In the middle of all that follows a hundred brackets, without which depth is not looked at.
    deep = "[]" * 101 + prefix
    units = ['"', '\\"', '"\\', "\\", "[", "{", "[]", "}", '"",', '{"a":', "1", " ", "a", "\\\\", ","]
    suffixes = ["", '"', "\\", '"]}', "]"]
    assert_linear(lambda text: TableQuery._parse(text.encode()), [prefix, deep], units, suffixes)


@pytest.fixture(scope="module")
def snapshot(demo_tables: Path) -> Iterator[Snapshot]:
    config = loads(
        "version: 1\ngateway: {anonymous: true}\nshares: [{name: s, schemas: [{name: s, tables: "
        f"[{{name: t, location: {demo_tables}/cities}}]}}]}}]\n"
    )
    catalog = Catalog.of(config.shares)
    tables = Tables(config, catalog, url_keys=[b"k" * 32])
    yield tables.open(next(iter(catalog.tables()))).snapshot()
    tables.close()


SQL = ["a.", "`a`.", "(", ")", "-", "+", "'", "''", '"', "`", "``", "\\", ".", "1", "1.", "e", "a("]
SQL += ["1,", "x", "CAST(", "/*", "--", "%", "_"]
SQL += ["NOT ", "\n", "a IN (1,", "a = 1 AND ", "a = 1 OR ", "a BETWEEN 1 AND 2 AND "]
SQL += ["population > 5 AND ", "population <> 5 OR ", "name LIKE 'a%' OR ", "population IN (1,2) AND "]


@pytest.mark.parametrize("prefix", ["", "name = ", "name = '", "name LIKE '", "population IN (", "`"])
def test_an_sql_hint_is_read_in_linear_time(snapshot: Snapshot, prefix: str) -> None:
    assert_linear(lambda text: snapshot.hint_problems([text], None), [prefix], SQL, ["", "'", "a = 1", ")"])


def test_many_sql_hints_are_read_in_linear_time(snapshot: Snapshot) -> None:
    def parse(text: str) -> object:
        return snapshot.hint_problems(text.split(";"), None)

    assert_linear(parse, [""], ["population = 1;", "a.b = 1;", ";", "name <> 'a';", "(;"], [""])


NODE = '{"op":"column","name":"population","valueType":"long"},'
CONDITION = '{"op":"equal","children":[' + NODE + '{"op":"literal","value":"1","valueType":"long"}]},'


@pytest.mark.parametrize(
    ("prefix", "suffix"),
    [
        ("", ""),
        ('{"op":"column","name":"', '","valueType":"int"}'),
        ('{"op":"isNull","children":[{"op":"column","name":"', '","valueType":"int"}]}'),
        ('{"op":"', '"}'),
        ('{"op":"or","children":[', NODE[:-1] + "]}"),
        ('{"op":"and","children":[', NODE[:-1] + "]}"),
    ],
)
def test_a_json_hint_is_read_in_linear_time(snapshot: Snapshot, prefix: str, suffix: str) -> None:
    units = ["a.", ".", '"', "\\\\", "[", "{", '{"op":"not","children":[', NODE, CONDITION, "1", " ", "é"]
    assert_linear(lambda text: snapshot.hint_problems([], text), [prefix], units, [suffix, ""])


def test_a_url_of_the_files_route_is_read_in_linear_time(snapshot: Snapshot, tmp_path: Path) -> None:
    config = loads("version: 1\ngateway: {anonymous: true}\n")
    tables = Tables(config, Catalog.of(config.shares), url_keys=[b"k" * 32])

    def parse(text: str) -> object:
        identity, key = files.split(f"/delta-sharing/files/{text}", "/delta-sharing/files/")
        path = files.spelling("/delta-sharing", identity, key)
        return tables.verify_local_url(identity, path, text, text, now_ms=0)

    assert_linear(parse, ["", "x/"], ["/", "a", "%2F", "%", "0", "é", "f"], [""])
    tables.close()
