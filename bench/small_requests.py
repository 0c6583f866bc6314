"""Small requests in the default configuration with the log in an object store, beside a bare aiohttp handler.

The bare handler returns the bytes that the gateway returned. Subjects are measured in interleaved rounds.
"""

import http.client
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from drain import digest_of
from environment import Bench
from figures import GATEWAY, Measured
from logs import Expected, Table
from measure import medians
from servers import Client, Server, peer

BARE = "bare aiohttp"
KINDS: Mapping[str, list[str]] = {"repeated": [], "different bodies": ["--different-bodies"]}
METADATA_REQUESTS = 500
CONNECTIONS: Mapping[str, list[str]] = {"kept connection": [], "new connection": ["--new-connections"]}


def small_query(bench: Bench, files: int) -> Measured:
    """Rate and CPU of a query of few files over 64 connections: equal requests, and bodies that differ."""
    table = bench.logs.plain(files)
    rounds: dict[str, list[dict[str, float]]] = {GATEWAY: [], BARE: []}
    with subjects(bench, table) as found:
        for _ in range(bench.rounds):
            for name, (server, client, path) in found.items():
                rounds[name].append(rates(bench, table, server, client, path))
    for of_gateway, of_bare in zip(rounds[GATEWAY], rounds[BARE], strict=True):
        for kind in KINDS:
            ratio = of_gateway[f"{kind}, rate"] / of_bare[f"{kind}, rate"]
            of_gateway[f"{kind}, rate against bare aiohttp"] = ratio
    return {name: medians(measured) for name, measured in rounds.items()}


def rates(bench: Bench, table: Table, server: Server, client: Client, path: str) -> dict[str, float]:
    """Rate and CPU per request of each kind of query, of which each answer is checked."""
    measured: dict[str, float] = {}
    for kind, options in KINDS.items():
        rate: list[float] = []
        checked = [*options, "--digest", table.expected.digest]
        cpu = server.cpu(lambda: rate.append(client.requests_per_second(path, bench.requests, *checked)))  # noqa: B023
        measured[f"{kind}, rate"] = rate[0]
        measured[f"{kind}, CPU per request"] = cpu / bench.requests
    return measured


@contextmanager
def subjects(bench: Bench, table: Table) -> Iterator[dict[str, tuple[Server, Client, str]]]:
    """Run the gateway over a small table, and a bare handler that returns the bytes of its answer."""
    with bench.default_gateway(table) as (server, client), tempfile.TemporaryDirectory() as folder:
        # A first answer is streamed; later ones are written at once.
        client.whole(table)
        body, path = Path(folder, "body"), client.path(table)
        body.write_bytes(posted(client, path, table))
        with peer("bare_stream.py", str(body)) as bare:
            yield {GATEWAY: (server, client, path), BARE: (bare, Client(bare.port, "none"), "/small")}


def posted(client: Client, path: str, table: Table) -> bytes:
    """Return the body of the answer to an empty query."""
    connection = http.client.HTTPConnection("127.0.0.1", client.port)
    try:
        connection.request("POST", path, b"{}", {"Authorization": f"Bearer {client.token}"})
        body = connection.getresponse().read()
    finally:
        connection.close()
    if Expected(*digest_of(body)) != table.expected:
        raise AssertionError(f"wrong answer: {body[:1000]!r}")
    return body


def metadata_requests(bench: Bench, files: int) -> Measured:
    """CPU of GET requests for a known table on one connection, and on a new connection for each request."""
    table = bench.logs.plain(files)
    with bench.default_gateway(table) as (server, client):
        client.whole(table)
        return {GATEWAY: medians([metadata_cpu(bench, table, server, client) for _ in range(bench.rounds)])}


def metadata_cpu(bench: Bench, table: Table, server: Server, client: Client) -> dict[str, float]:
    """CPU per request of each path and kind of connection."""
    requests = min(METADATA_REQUESTS, bench.requests)
    version = ["--version", str(table.version)]
    paths = {
        "GET /version": (client.path(table, "version"), version),
        "GET /metadata": (client.path(table, "metadata"), version),
        "GET /shares": (f"{client.prefix}/shares", []),
    }
    measured = {}
    for name, (path, checks) in paths.items():
        for kind, options in CONNECTIONS.items():
            load = ["--get", "--connections", "1", *checks, *options]
            cpu = server.cpu(lambda: client.requests_per_second(path, requests, *load))  # noqa: B023
            measured[f"{name}, {kind}, CPU"] = cpu / requests
    return measured
