"""The gateway beside others that do parts of its work, in their best form, over the same local log.

Each peer runs in turns with the gateway. Its files are compared as far as it names them.
"""

import socket
import statistics
import sys

from environment import Bench
from figures import GATEWAY, Measured
from local_answers import COLD, HOT
from measure import PeakWatch, interleaved, run, script
from servers import bench_gateway, peer

STARTS = 3


def bare_stream(bench: Bench, files: int) -> Measured:
    """CPU of a hot answer against a bare aiohttp handler that streams as many new bytes."""
    table = bench.logs.plain(files)
    with bench_gateway(table, *HOT) as (server, client), peer("bare_stream.py") as bare:
        size = client.whole(table).bytes
        pair = interleaved(
            lambda: server.cpu(lambda: client.whole(table)) / files,
            lambda: bare.cpu(lambda: drained(bare.port, f"/stream/{size}")) / files,
            bench.rounds,
        )
    return compared("CPU per file", "bare aiohttp", pair)


def deltalake(bench: Bench, files: int) -> Measured:
    """Time and memory of a cold signed answer over HTTP against deltalake's list of the snapshot."""
    table = bench.logs.plain(files)
    command = script("peers/deltalake_list.py", str(table.directory))
    listed = run([*command, "--digest"]).answer
    if (listed["files"], listed["digest"]) != (table.expected.files, table.expected.digest):
        raise AssertionError("deltalake lists other files")
    peaks: list[int] = []
    peer_peaks: list[int] = []

    def gateway_seconds() -> float:
        with bench_gateway(table, *COLD) as (server, client), PeakWatch(server.pid) as watch:
            seconds = client.whole(table).seconds
        peaks.append(watch.peak_bytes)
        return seconds

    def peer_seconds() -> float:
        usage = run(command)
        peer_peaks.append(usage.peak_bytes)
        return usage.wall_seconds

    times = interleaved(gateway_seconds, peer_seconds, bench.rounds)
    peak, peer_peak = statistics.median(peaks), statistics.median(peer_peaks)
    memory = {"first": peak, "second": peer_peak, "ratio": peak / peer_peak}
    return merged(compared("time", "deltalake", times), compared("peak memory", "deltalake", memory))


def delta_kernel(bench: Bench, files: int) -> Measured:
    """CPU of decoding and replay alone against delta_kernel's list of the snapshot without row transforms."""
    if bench.kernel is None:
        return {}
    table = bench.logs.plain(files)
    kernel = [str(bench.kernel), str(table.directory)]
    imports = [sys.executable, "-P", "-c", "from gateway import _native; print(0)"]
    start = statistics.median(run(imports).cpu_seconds for _ in range(STARTS))

    def cpu(command: list[str]) -> float:
        usage = run(command)
        if usage.answer["files"] != table.expected.files:
            raise AssertionError(f"wrong answer of {command}: {usage.answer}")
        return usage.cpu_seconds

    pair = interleaved(
        lambda: (cpu(script("decode.py", str(table.directory))) - start) / files,
        lambda: cpu(kernel) / files,
        bench.rounds,
    )
    return compared("CPU per file", "delta_kernel", pair)


def compared(quantity: str, name: str, pair: dict[str, float]) -> Measured:
    """Return the quantity of both, and of the gateway also the ratio."""
    return {
        GATEWAY: {quantity: pair["first"], f"{quantity} against {name}": pair["ratio"]},
        name: {quantity: pair["second"]},
    }


def merged(one: Measured, other: Measured) -> Measured:
    """Return the quantities of both by subject."""
    return {subject: {**one[subject], **other[subject]} for subject in one}


def drained(port: int, path: str) -> int:
    """Read the answer to a GET request; return its bytes."""
    received, buffer = 0, bytearray(1 << 20)
    with socket.create_connection(("127.0.0.1", port), timeout=300) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        while count := connection.recv_into(buffer):
            received += count
    return received
