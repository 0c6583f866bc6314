"""What one client's load does to others: small requests beside full listings, and memory of slow readers."""

import asyncio
import socket
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
from drain import digest_of, request
from environment import Bench
from figures import GATEWAY, Measured
from local_answers import HOT
from logs import SMALL, Expected, Table
from measure import allocated_bytes
from servers import Client, bench_gateway

LISTINGS = 4
PROBES = 300
PAUSE_SECONDS = 0.005
SLOW_READERS = 50
SLOW_BYTES_PER_SECOND = 64_000


def beside_listings(bench: Bench, files: int) -> Measured:
    """99th percentile of small requests beside four full listings."""
    table, small = bench.logs.plain(files), bench.logs.plain(SMALL)
    with bench_gateway(table, *HOT, "--table", f"t{small.name}={small.directory}") as (_, client):
        client.whole(table)
        stop = threading.Event()
        with ThreadPoolExecutor(LISTINGS) as pool:
            listings = [pool.submit(list_until, client, table, stop) for _ in range(LISTINGS)]
            try:
                latencies = asyncio.run(probe(client, small))
            finally:
                stop.set()
            if not all(listing.result() for listing in listings):
                raise AssertionError("a listing did not end")
    return {GATEWAY: latencies}


def list_until(client: Client, table: Table, stop: threading.Event) -> int:
    """Read full listings one after the other; return their number."""
    count = 0
    while not stop.is_set():
        client.whole(table)
        count += 1
    return count


async def probe(client: Client, small: Table) -> dict[str, float]:
    """Return the 99th percentiles of `GET /shares` and of a small query."""
    root = f"http://127.0.0.1:{client.port}"
    seconds: dict[str, list[float]] = {"GET /shares, p99": [], "small query, p99": []}
    headers = {"Authorization": f"Bearer {client.token}"}
    async with aiohttp.ClientSession(root, headers=headers) as session:
        for _ in range(PROBES):
            for name, method, path in (
                ("GET /shares, p99", "GET", f"{client.prefix}/shares"),
                ("small query, p99", "POST", client.path(small)),
            ):
                started = time.perf_counter()
                async with session.request(method, path, json={} if method == "POST" else None) as response:
                    body = await response.read()
                seconds[name].append(time.perf_counter() - started)
                if response.status != 200 or (
                    method == "POST" and Expected(*digest_of(body)) != small.expected
                ):
                    raise AssertionError(f"{name}: wrong answer with status {response.status}")
            await asyncio.sleep(PAUSE_SECONDS)
    return {name: statistics.quantiles(values, n=100)[98] for name, values in seconds.items()}


def slow_readers(bench: Bench, files: int) -> Measured:
    """Memory of the server and bytes in socket buffers while fifty clients read slowly."""
    table = bench.logs.plain(files)
    with bench_gateway(table, *HOT) as (server, client):
        client.whole(table)
        idle = allocated_bytes(server.pid)
        readers = [slow_reader(client, table) for _ in range(SLOW_READERS)]
        received = [0] * SLOW_READERS
        peak = buffered = 0
        end = time.monotonic() + bench.slow_seconds
        while time.monotonic() < end:
            for number, reader in enumerate(readers):
                received[number] += len(reader.recv(SLOW_BYTES_PER_SECOND // 4))
            peak = max(peak, allocated_bytes(server.pid) - idle)
            buffered = max(buffered, send_queues(server.port))
            time.sleep(0.25)
        for reader in readers:
            reader.close()
    if min(received) == 0:
        raise AssertionError("a slow reader received nothing")
    return {GATEWAY: {"memory above idle": peak, "socket buffers": buffered}}


def slow_reader(client: Client, table: Table) -> socket.socket:
    """Return a client that has requested all files and does not read yet."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    reader.connect(("127.0.0.1", client.port))
    reader.sendall(request(client.path(table), client.token, "{}"))
    return reader


def send_queues(port: int) -> int:
    """Return the bytes in the kernel's send queues of a port."""
    local = f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].split(":")[0], 16) for row in rows if row[1].endswith(local))
