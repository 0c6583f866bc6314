"""Hostile requests: no status 500, no hang, and neither storage paths nor secrets in any answer.

`DELTA_GATEWAY_HOSTILE_REQUESTS` says how many are drawn; the long form is 100000.
"""

import asyncio
import base64
import http.client
import json
import os
import random
import re
import socket
import string
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.gateway_process import PREFIX, TOKEN, RunningGateway, running_gateway, share
from support.process_resources import open_sockets, resident
from support.waiting import until

REQUESTS = int(os.environ.get("DELTA_GATEWAY_HOSTILE_REQUESTS", "3000"))
AT_A_TIME = 32
MOST_GROWTH = 1.08
TABLE = f"{PREFIX}/shares/s/schemas/default/tables/cities"
GOOD_STATUSES = {200, 206, 304, 400, 401, 403, 404, 405, 413, 414, 416, 429, 431, 501, 503, 505}

ODD_TEXTS = [
    "",
    " ",
    "\x00",
    "..",
    "../../etc/passwd",
    "%2e%2e%2f",
    "%00",
    "%",
    "%zz",
    "\ud7ff",
    "\u2028",
    "Ω" * 300,
    "a" * 5000,
    "' OR 1=1 --",
    "${jndi:ldap://x}",
    "<script>",
    "{{7*7}}",
    "-1",
    "9" * 30,
    "1e309",
    "NaN",
    "null",
    "true",
    "2024-01-01T00:00:00Z",
    "9999-99-99",
    "0001-01-01 00:00:00",
]
FIELDS = [
    "predicateHints",
    "jsonPredicateHints",
    "limitHint",
    "version",
    "timestamp",
    "startingVersion",
    "endingVersion",
    "maxFiles",
    "pageToken",
    "includeRefreshToken",
    "refreshToken",
    "includeHistoricalProtocol",
    "idempotencyKey",
    "other",
]
PARAMETERS = [
    "maxResults",
    "pageToken",
    "version",
    "timestamp",
    "startingVersion",
    "endingVersion",
    "startingTimestamp",
    "endingTimestamp",
    "includeHistoricalMetadata",
    "maxFiles",
    "other",
]
PREDICATES = [
    "population > 5",
    "population =",
    "((((((((((",
    "NOT " * 3000 + "a = 1",
    "a = 'x",
    "date = DATE '9999-99-99'",
    "a IN (" + ",".join("1" for _ in range(3000)) + ")",
    "a LIKE '%' ESCAPE '",
    "`",
    "/* " * 500,
    "1=1; DROP TABLE x",
    "population > 99999999999999999999999999999999999999999999",
]
CAPABILITIES = [
    "responseformat=delta;readerfeatures=deletionvectors",
    "responseformat=parquet",
    ";;;=",
    "=" * 4000,
]


class Draw:
    """Draws requests; the same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        kind = self.random.random()
        if kind < 0.6:
            return self.random.choice(ODD_TEXTS)
        if kind < 0.8:
            return "".join(self.random.choices(string.printable, k=self.random.randint(1, 60)))
        return (
            base64.urlsafe_b64encode(self.random.randbytes(self.random.randint(1, 200))).decode().rstrip("=")
        )

    def value(self, depth: int = 0) -> Any:
        kind = self.random.randrange(9 if depth < 4 else 7)
        leaves = [None, True, -1, 2**63, 1.5, self.text(), self.random.choice(PREDICATES)]
        if kind < 7:
            return leaves[kind]
        if kind == 7:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.text(): self.value(depth + 1) for _ in range(self.random.randrange(4))}

    def json_predicate(self, depth: int = 0) -> Any:
        operations = [
            "and",
            "or",
            "not",
            "equal",
            "lessThan",
            "in",
            "isNull",
            "column",
            "literal",
            "nonsense",
        ]
        node: dict[str, Any] = {"op": self.random.choice(operations)}
        if self.random.random() < 0.5:
            node |= {
                "name": self.text(),
                "valueType": self.random.choice(["int", "string", "date", "odd", "timestamp"]),
            }
        if self.random.random() < 0.5:
            node["value"] = self.value(4)
        if depth < 6 and self.random.random() < 0.7:
            node["children"] = [self.json_predicate(depth + 1) for _ in range(self.random.randrange(4))]
        return node

    def body(self) -> bytes:
        kind = self.random.random()
        if kind < 0.1:
            return self.random.randbytes(self.random.randint(0, 300))
        if kind < 0.15:
            return b"[" * self.random.choice([10, 1000, 100_000])
        if kind < 0.18:
            return b'{"a":' * 50_000
        body = {field: self.value() for field in self.random.sample(FIELDS, self.random.randint(0, 4))}
        if self.random.random() < 0.3:
            body["jsonPredicateHints"] = json.dumps(self.json_predicate())
        if self.random.random() < 0.3:
            body["predicateHints"] = [self.random.choice(PREDICATES)]
        return json.dumps(body).encode("utf-8", "surrogatepass")

    def path(self) -> str:
        routes = ["", "/version", "/metadata", "/query", "/changes", "/queries/1"]
        others = [
            "/shares",
            "/shares/s",
            "/shares/s/schemas",
            "/shares/s/all-tables",
            "/files/x/y",
            "/nothing",
            "",
        ]
        if self.random.random() < 0.6:
            path = TABLE + self.random.choice(routes)
        else:
            path = PREFIX + self.random.choice(others)
        if self.random.random() < 0.3:
            parts = path.split("/")
            parts[self.random.randrange(len(parts))] = quoted(self.text())
            path = "/".join(parts)
        parameters = self.random.sample(PARAMETERS, self.random.randint(0, 3))
        query = "&".join(f"{name}={quoted(self.text())}" for name in parameters)
        return f"/{path.lstrip('/')}" + (f"?{query}" if query else "")

    def request(self) -> tuple[str, str, bytes | None, dict[str, str]]:
        method = self.random.choice(
            ["GET"] * 4 + ["POST"] * 5 + ["HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"]
        )
        headers = {"Authorization": f"Bearer {TOKEN}"}
        if self.random.random() < 0.15:
            headers["Authorization"] = self.random.choice(["", "Bearer", "Basic x", "Bearer " + "x" * 3000])
        for name in (
            "delta-sharing-capabilities",
            "fileidhash",
            "Accept-Encoding",
            "X-Forwarded-For",
            "Range",
        ):
            if self.random.random() < 0.2:
                headers[name] = self.random.choice(
                    [*CAPABILITIES, "a, b;q=x", "bytes=0-", "parquet", "\t\xff"]
                )
        return method, self.path(), self.body() if method == "POST" else None, headers


def quoted(text: str) -> str:
    """As a client would, or raw where the bytes may stand in a request line."""
    kept = frozenset(string.ascii_letters + string.digits + "%./-_")
    return "".join(
        char if char in kept else "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in text
    )


@pytest.fixture(scope="module")
def served(
    demo_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningGateway, list[str]]]:
    directory = tmp_path_factory.mktemp("hostile")
    tables = {name: str(demo_tables / name) for name in ("cities", "orders")}
    section = {"drainDelaySeconds": 0, "limits": {"idleConnectionSeconds": 2, "bodySeconds": 2}}
    with running_gateway(directory, [share("s", tables)], section) as gateway:
        secrets = [
            str(demo_tables),
            "_delta_log",
            TOKEN,
            "0123456789abcdef",
            str(directory),
            "Traceback",
            "panicked",
        ]
        yield gateway, secrets


async def test_drawn_requests_never_end_in_a_500_and_tell_nothing(served):
    gateway, secrets = served
    seeds = iter(range(REQUESTS))
    statuses: dict[int, int] = {}
    held: list[int] = []

    async def attacker(session: aiohttp.ClientSession) -> None:
        for seed in seeds:
            try:
                status = await attack(session, gateway, secrets, seed)
            except aiohttp.ClientResponseError as unread:
                # A refused request line: the server cannot know that it was a HEAD, which wants no body.
                status = unread.status
            statuses[status] = statuses.get(status, 0) + 1
            if seed == REQUESTS // 3:
                held.append(resident(gateway))

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(30)) as session:
        await asyncio.gather(*(attacker(session) for _ in range(AT_A_TIME)))
    assert set(statuses) <= GOOD_STATUSES, statuses
    assert statuses.get(200, 0) > REQUESTS / 100, statuses
    assert sum(statuses.values()) == REQUESTS
    log = gateway.log.read_text()
    assert re.search(r"request \w+ failed", log) is None, log
    assert TOKEN not in log
    assert gateway.request("GET", "/shares").status == 200
    # What a third of them took is taken; twice as many take no more.
    await until(lambda: resident(gateway) < MOST_GROWTH * held[0])
    await until(lambda: open_sockets(gateway) < AT_A_TIME)


async def attack(
    session: aiohttp.ClientSession, gateway: RunningGateway, secrets: list[str], seed: int
) -> int:
    """Sends a request and returns its status. The answer must not contain a secret."""
    method, path, body, headers = Draw(seed).request()
    url = aiohttp.client.URL(f"http://127.0.0.1:{gateway.port}{path}", encoded=True)
    async with session.request(method, url, data=body, headers=headers, allow_redirects=False) as response:
        try:
            content = await response.read()
        except aiohttp.ClientPayloadError:
            content = b""
    answer_text = (str(dict(response.headers)) + content.decode("utf-8", "replace")).replace(path, "")
    for secret in secrets:
        assert secret not in answer_text, (seed, secret, answer_text[:500])
    assert response.status in GOOD_STATUSES, (
        seed,
        response.status,
        method,
        path,
        body and body[:300],
        content[:300],
    )
    if response.status >= 400 and method != "HEAD" and response.content_type == "application/json":
        assert set(json.loads(content)) == {"errorCode", "message"}, seed
    return response.status


GET = b"GET /delta-sharing/shares HTTP/1.1\r\n"
POST = b"POST /delta-sharing/shares HTTP/1.1\r\nHost: x\r\n"
RAW = {
    "nothing": b"",
    "noise": bytes(range(256)) * 8,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    "no_version": b"GET /\r\n\r\n",
    "http_09": b"GET /delta-sharing/shares\r\n\r\n",
    "absolute": b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: x\r\n\r\n",
    "connect": b"CONNECT x:22 HTTP/1.1\r\nHost: x\r\n\r\n",
    "long_line": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    "long_header": GET + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    "many_headers": GET + b"".join(b"X-%d: 1\r\n" % n for n in range(20_000)) + b"\r\n",
    "two_lengths": GET + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "smuggled": POST
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "negative_length": GET + b"Content-Length: -1\r\n\r\n",
    "huge_length": POST + b"Content-Length: 99999999999999\r\n\r\nx",
    "bad_chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "endless_chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    "bare_cr": b"GET / HTTP/1.1\rHost: x\r\r",
    "nul_in_header": GET + b"X: a\x00b\r\n\r\n",
    "folded": GET + b"X: a\r\n b\r\n\r\n",
    "half_a_head": GET,
    "upgrade": GET + b"Host: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
    "pipelined": (GET + b"Host: x\r\n\r\n") * 50,
}


async def test_raw_bytes_end_and_tell_nothing(served):
    """All at once: many end by the time for idle connections alone."""
    gateway, secrets = served
    async with asyncio.timeout(60):
        contents = await asyncio.gather(*(received(gateway.port, sent) for sent in RAW.values()))
    for name, content in zip(RAW, contents, strict=True):
        statuses = {int(found) for found in re.findall(rb"HTTP/1\.[01] (\d{3})", content)}
        assert statuses <= GOOD_STATUSES - {200} or name == "pipelined", (name, content[:300])
        assert not [secret for secret in secrets if secret.encode() in content], name
    assert gateway.request("GET", "/shares").status == 200


async def received(port: int, sent: bytes) -> bytes:
    """All that the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = b""
    try:
        # A server that has seen enough may close before all is sent.
        with suppress(ConnectionError):
            writer.write(sent)
            await writer.drain()
        with suppress(ConnectionError):
            content = await reader.read()
    finally:
        writer.transport.abort()
    return content


@pytest.mark.parametrize(
    "head",
    [
        GET + f"Authorization: Bearer {TOKEN}\x00\r\n\r\n".encode(),
        f"GET / HTTP/1.1\r\nAuthorization: Bearer {TOKEN}".encode() + b"a" * 10_000 + b"\r\n\r\n",
        f"GET {TOKEN}\r\n\r\n".encode(),
    ],
    ids=["a control character", "too long", "no request line"],
)
def test_invalid_http_gets_a_protocol_error_and_is_not_stored_or_logged(served, head):
    gateway, _ = served
    with socket.create_connection(("127.0.0.1", gateway.port), 20) as connection:
        connection.sendall(head)
        response = http.client.HTTPResponse(connection)
        response.begin()
        body = json.loads(response.read())
    assert (response.status, body["errorCode"]) == (400, "MALFORMED_REQUEST")
    assert response.headers["Content-Type"] == "application/json; charset=utf-8"
    assert TOKEN not in str(body)
    assert TOKEN not in gateway.log.read_text()
