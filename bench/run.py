"""Measures the gateway and its peers in one run, checks every answer, and writes one report.

    python bench/run.py [--adds 1000000] [--pairs 9] [--large 10000000] [--report FILE] [--json FILE]
    python bench/run.py --short     # 100,000 adds, answers checked, no figure judged: for CI

Figures hold for one machine at one time; ratios are medians over interleaved pairs. See measure.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import aiohttp
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bars import rows
from drain import PATH, TOKEN, drain, request
from make_log import FIRST_DAY, LogOptions, make_log
from measure import PeakWatch, bytes_read, cpu_seconds, machine, paired, python, resident_bytes, run
from report import STAGES, write_report

from gateway import _native

HERE = Path(__file__).parent
MICROSECONDS = 1e6
STARTS = 3
START_SECONDS = 30
HOT_CACHE_BYTES = 4 << 30
PAGE_FILES = 10_000
SLOW_READERS = 50
SLOW_BYTES_PER_SECOND = 64_000
SMALL_QUERIES = 10_000
SIZES = (10_000, 100_000)
SIZE_PAIRS = 3
SERVED = {"cold parquet": ["--cache", "0"], "hot parquet": ["--cache", str(HOT_CACHE_BYTES)]}
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server of this folder in a process of its own."""

    def __init__(self, script: str, *arguments: str) -> None:
        # A port that was free a moment ago may be a client's when the server begins to listen.
        for _ in range(STARTS):
            self.port = free_port()
            self.process = subprocess.Popen(
                python(script, str(self.port), *arguments), stderr=subprocess.DEVNULL, cwd=HERE.parent
            )
            if self._listens():
                return
            self.process.kill()
            self.process.wait()
        raise RuntimeError(f"{script} did not start: run it by hand to see why")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def pid(self) -> int:
        """Of the server's process."""
        return self.process.pid

    def cpu(self, work: Callable[[], Any]) -> float:
        """CPU seconds that the server spends while `work` runs."""
        before = cpu_seconds(self.pid)
        work()
        return cpu_seconds(self.pid) - before

    def _listens(self) -> bool:
        given_up = time.monotonic() + START_SECONDS
        while time.monotonic() < given_up and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return True
        return False


def gateway(directory: Path, *arguments: str) -> Server:
    """The gateway over a log."""
    return Server("gateway_server.py", str(directory), *arguments)


def drained(port: int, **options: bool) -> dict[str, Any]:
    """An answer drained by a client in a process of its own."""
    flags = [f"--{name}" for name, wanted in options.items() if wanted]
    return dict(run(python("drain.py", str(port), *flags)).answer)


class Bench:
    """One run over one log."""

    def __init__(self, directory: Path, options: LogOptions, *, pairs: int) -> None:
        self.directory = directory
        self.expected = make_log(directory, options)
        self.files = int(self.expected["files"])
        self.pairs = pairs
        self.results: dict[str, Any] = {}

    def note(self, name: str, value: Any) -> None:
        """Keep and show a result."""
        self.results[name] = value
        print(f"{name}: {json.dumps(value)}", flush=True)

    def check(self, answer: dict[str, Any]) -> dict[str, Any]:
        """An answer that is wrong makes no figure."""
        if answer["status"] != 200 or answer["files"] != self.files:
            raise AssertionError(f"wrong answer: {answer}, expected {self.files} files")
        if answer["digest"] not in (None, self.expected["digest"]):
            raise AssertionError(f"wrong files: {answer}")
        return answer

    def answers(self) -> None:
        """Cold and hot, both formats: the digest of all ids is that of the log's live paths."""
        formats = [True] if self.expected["options"]["deletion_vectors"] else [False, True]
        for cache in (0, HOT_CACHE_BYTES):
            with gateway(self.directory, "--cache", str(cache)) as server:
                for delta in 2 * formats:
                    self.check(drained(server.port, digest=True, delta=delta))
        self.note("answers", {key: self.expected[key] for key in ("files", "digest", "text_bytes")})

    def full_answers(self) -> None:
        """CPU per file, first byte and memory of full answers."""
        for name, arguments in {
            "cold": ["--cache", "0"],
            "hot": ["--cache", str(HOT_CACHE_BYTES)],
            "hot portable": ["--cache", str(HOT_CACHE_BYTES), "--portable"],
        }.items():
            for delta in (False, True):
                with gateway(self.directory, *arguments) as server:
                    label = f"{name} {'delta' if delta else 'parquet'}"
                    self.note(label, self.full_answer(server, delta=delta))

    def full_answer(self, server: Server, *, delta: bool) -> dict[str, Any]:
        """Medians over answers after the first one."""
        idle = resident_bytes(server.pid)
        with PeakWatch(server.pid) as watch:
            first = self.check(drain(server.port, delta=delta))
            answers: list[dict[str, Any]] = []

            def take() -> None:
                answers.append(self.check(drained(server.port, delta=delta)))

            cpus = [server.cpu(take) for _ in range(self.pairs)]
        return {
            "us_per_file": round(statistics.median(cpus) / self.files * MICROSECONDS, 3),
            "seconds": statistics.median(answer["seconds"] for answer in answers),
            "first_byte_ms": 1000 * statistics.median(answer["first_byte_seconds"] for answer in answers),
            "very_first_byte_ms": 1000 * first["first_byte_seconds"],
            "bytes": answers[0]["bytes"],
            "peak_above_idle_mb": (watch.peak_bytes - idle) / 1e6,
        }

    def against_bare_stream(self) -> None:
        """CPU against a bare aiohttp stream of as many fresh bytes."""
        with (
            gateway(self.directory, "--cache", str(HOT_CACHE_BYTES)) as ours,
            Server("peers/bare_stream.py") as bare,
        ):
            size = self.check(drain(ours.port))["bytes"]
            pair = paired(
                lambda: ours.cpu(lambda: self.check(drained(ours.port))),
                lambda: bare.cpu(lambda: get(bare.port, f"/stream/{size}")),
                self.pairs,
            )
        self.note("hot against a bare aiohttp stream, CPU", pair)

    def against_deltalake(self) -> None:
        """The whole signed answer through HTTP, cold, against deltalake's list of the snapshot."""
        command = python("peers/deltalake_list.py", str(self.directory))
        peer = run([*command, "--digest"])
        if peer.answer["digest"] != self.expected["digest"]:
            raise AssertionError("deltalake lists other files")
        memory = []

        def ours() -> float:
            with gateway(self.directory, "--cache", "0") as server, PeakWatch(server.pid) as watch:
                seconds = float(self.check(drained(server.port))["seconds"])
            memory.append(watch.peak_bytes)
            return seconds

        peers = []

        def theirs() -> float:
            peers.append(run(command))
            return peers[-1].wall_seconds

        pair = paired(ours, theirs, self.pairs)
        pair["memory_ratio"] = statistics.median(memory) / statistics.median(p.peak_bytes for p in peers)
        self.note("cold answer against deltalake, time", pair)

    def against_kernel(self, kernel: str) -> None:
        """Replay and decode alone against delta_kernel's list of the snapshot, CPU."""

        def cpu(command: list[str]) -> float:
            usage = run(command)
            if usage.answer["files"] != self.files:
                raise AssertionError(f"wrong answer of {command}: {usage.answer}")
            return usage.cpu_seconds

        start_up = statistics.median(cpu_of_import() for _ in range(3))
        pair: dict[str, Any] = paired(
            lambda: cpu(python("decode.py", str(self.directory))) - start_up,
            lambda: cpu([kernel, str(self.directory)]),
            self.pairs,
        )
        pair["peer_peak_mb"] = run([kernel, str(self.directory)]).peak_bytes / 1e6
        self.note("decode against delta_kernel, CPU", pair)

    def other_peers(self) -> None:
        """What others need for parts of the work, for orientation."""
        count = 2000
        start_up = run([sys.executable, "-c", "import boto3; print(0)"]).cpu_seconds
        signing = run(python("peers/boto3_presign.py", str(count))).cpu_seconds - start_up
        self.note("boto3 presign", {"us_per_url": round(signing / count * MICROSECONDS, 1)})
        opened = run(python("peers/polars_scan.py", str(self.directory)))
        facts = {
            "seconds": opened.wall_seconds,
            "cpu_seconds": opened.cpu_seconds,
            "peak_mb": opened.peak_bytes / 1e6,
        }
        self.note("polars.scan_delta opens the snapshot", facts)

    def threads(self) -> None:
        """Decode, sign and write with two threads against one."""

        def seconds(threads: int) -> float:
            return float(
                run(python("make_answer.py", str(self.directory), "--threads", str(threads))).answer[
                    "seconds"
                ]
            )

        self.note("one thread against two, time", paired(lambda: seconds(1), lambda: seconds(2), self.pairs))

    def stages(self) -> None:
        """CPU per file by stage: what each adds to the one before."""
        lines = self.in_process("--cache", str(HOT_CACHE_BYTES))
        decode = self.in_process() - lines
        served = {name: self.results[f"{name} parquet"]["us_per_file"] for name in ("cold", "hot")}
        self.note(
            STAGES,
            {
                "hot": {"signing and writing lines": lines, "HTTP and the kernel": served["hot"] - lines},
                "cold": {
                    "reading and decoding the log": decode,
                    "signing and writing lines": lines,
                    "HTTP and the kernel": served["cold"] - decode - lines,
                },
            },
        )

    def in_process(self, *flags: str) -> float:
        """CPU per file of an answer that no server sends."""
        command = python("make_answer.py", str(self.directory), "--threads", "1", *flags)
        seconds = statistics.median(run(command).answer["cpu_seconds"] for _ in range(self.pairs))
        return seconds / self.files * MICROSECONDS

    def pages(self) -> None:
        """The hundredth page against the first one."""
        for name, cache in (("cold", 0), ("hot", HOT_CACHE_BYTES)):
            with gateway(self.directory, "--cache", str(cache)) as server:
                self.check(drain(server.port))
                pages = asyncio.run(page_seconds(server.port, min(100, self.files // PAGE_FILES), self.pairs))
            self.note(f"last page against first, {name}", pages)

    def beside_listings(self) -> None:
        """Latency of small requests during four full listings."""
        with tempfile.TemporaryDirectory() as folder:
            small = Path(folder, "small")
            make_log(small, LogOptions(adds=20, commits=0))
            with gateway(self.directory, "--cache", str(HOT_CACHE_BYTES), "--small", str(small)) as server:
                self.check(drain(server.port))
                with ThreadPoolExecutor(4) as pool:
                    stop = threading.Event()
                    listings = [pool.submit(self.list_until, server.port, stop) for _ in range(4)]
                    latency = asyncio.run(probe(server.port))
                    stop.set()
                    counts = [listing.result() for listing in listings]
        self.note("p99 beside four full listings, ms", latency | {"listings": sum(counts)})

    def list_until(self, port: int, stop: threading.Event) -> int:
        """Full listings one after the other; each is checked."""
        count = 0
        while not stop.is_set():
            self.check(drained(port))
            count += 1
        return count

    def slow_readers(self) -> None:
        """Memory that slow readers hold."""
        with gateway(self.directory, "--cache", str(HOT_CACHE_BYTES)) as server:
            self.check(drain(server.port))
            idle = resident_bytes(server.pid)
            readers = [slow_reader(server.port) for _ in range(SLOW_READERS)]
            started = time.monotonic()
            received = [0] * SLOW_READERS
            peak = kernel = 0
            while time.monotonic() - started < 8:
                for number, reader in enumerate(readers):
                    received[number] += len(reader.recv(SLOW_BYTES_PER_SECOND // 4))
                peak = max(peak, resident_bytes(server.pid) - idle)
                kernel = max(kernel, send_queues(server.port))
                time.sleep(0.25)
            for reader in readers:
                reader.close()
        facts = {"above_idle_mb": peak / 1e6, "kernel_mb": kernel / 1e6, "slowest_bytes": min(received)}
        if min(received) == 0:
            raise AssertionError("a slow reader starved")
        self.note(f"{SLOW_READERS} slow readers", facts)

    def small_queries(self) -> None:
        """Requests per second of a 20-file query against a bare handler that returns as many bytes."""
        with tempfile.TemporaryDirectory() as folder:
            expected = make_log(Path(folder), LogOptions(adds=20, commits=0))
            cache = ["--cache", str(HOT_CACHE_BYTES), "--staleness", "5"]
            with gateway(Path(folder), *cache) as ours:
                drain(ours.port)
                if drain(ours.port, digest=True)["digest"] != expected["digest"]:
                    raise AssertionError("wrong small answer")
                size = asyncio.run(small_answer_bytes(ours.port))
                with Server("peers/bare_stream.py", str(size)) as bare:
                    pair = paired(
                        lambda: requests_per_second(ours.port, PATH, size),
                        lambda: requests_per_second(bare.port, "/small", size),
                        self.pairs,
                    )
        self.note("small queries against a bare handler, requests/s", pair)


def cpu_of_import() -> float:
    """What starting Python and importing the native module costs."""
    return run([sys.executable, "-P", "-c", "from gateway import _native; print(0)"]).cpu_seconds


def get(port: int, path: str) -> int:
    """Drains a GET; returns its bytes."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=300)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    buffer, received = bytearray(1 << 20), 0
    while count := connection.recv_into(buffer):
        received += count
    connection.close()
    return received


def slow_reader(port: int) -> socket.socket:
    """Return a client that requests all files and does not read the answer yet."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    reader.connect(("127.0.0.1", port))
    reader.sendall(request("{}", delta=False))
    return reader


def send_queues(port: int) -> int:
    """Bytes in the kernel's send queues of a server."""
    local = f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].split(":")[0], 16) for row in rows if row[1].endswith(local))


async def page_seconds(port: int, last: int, pairs: int) -> dict[str, Any]:
    """Walks all pages once for their tokens, then times the first and the last one by turns."""
    url = f"http://127.0.0.1:{port}{PATH}"
    async with aiohttp.ClientSession(headers=AUTHORIZATION) as session:

        async def page(token: str | None) -> tuple[float, str | None]:
            body = {"maxFiles": PAGE_FILES} | ({"pageToken": token} if token else {})
            started = time.perf_counter()
            async with session.post(url, json=body) as response:
                text = await response.read()
            seconds = time.perf_counter() - started
            return seconds, json.loads(text.rstrip().rsplit(b"\n", 1)[1])["endStreamAction"].get(
                "nextPageToken"
            )

        token: str | None = None
        tokens: list[str | None] = [None]
        for _ in range(last - 1):
            _, token = await page(token)
            tokens.append(token)
        ratios = []
        for _ in range(pairs):
            first, _ = await page(None)
            final, _ = await page(tokens[-1])
            ratios.append(final / first)
        return {"page": len(tokens), "ratio": statistics.median(ratios), "pairs": pairs}


async def probe(port: int) -> dict[str, float]:
    """Latencies of `GET /shares` and of a small query."""
    root = f"http://127.0.0.1:{port}/delta-sharing/shares"
    seconds: dict[str, list[float]] = {"shares": [], "small query": []}
    async with aiohttp.ClientSession(headers=AUTHORIZATION) as session:
        for _ in range(300):
            for name, method, url in (
                ("shares", "GET", root),
                ("small query", "POST", f"{root}/share/schemas/schema/tables/small/query"),
            ):
                started = time.perf_counter()
                async with session.request(method, url, json={} if method == "POST" else None) as response:
                    if response.status != 200:
                        raise AssertionError(f"{name} answered {response.status}")
                    await response.read()
                seconds[name].append(time.perf_counter() - started)
            await asyncio.sleep(0.005)
    return {name: 1000 * statistics.quantiles(values, n=100)[98] for name, values in seconds.items()}


async def small_answer_bytes(port: int) -> int:
    """How long the answer to the query is that `load.py` sends."""
    url = f"http://127.0.0.1:{port}{PATH}"
    async with (
        aiohttp.ClientSession(headers=AUTHORIZATION) as session,
        session.post(url, json={}) as response,
    ):
        return len(await response.read())


def requests_per_second(port: int, path: str, body_bytes: int) -> float:
    """Of a POST over many connections of a client in a process of its own."""
    command = python("load.py", str(port), path, "--requests", str(SMALL_QUERIES), "--bytes", str(body_bytes))
    return float(run(command).answer["requests_per_second"])


def one_day(directory: Path, adds: int) -> dict[str, Any]:
    """What a cold predicate on one of 365 days reads of a checkpoint that is ordered by them."""
    bench = Bench(directory, LogOptions(adds=adds, commits=0, parsed=True, clustered=True), pairs=1)
    body = json.dumps({"predicateHints": [f"date = '{FIRST_DAY}'"]})
    with gateway(directory, "--cache", "0") as server:
        bench.check(drain(server.port))  # also sums up the version's sizes, which have no checksum file
        before = bytes_read(server.pid)
        day = drain(server.port, body)
        day_bytes = bytes_read(server.pid) - before
    log = directory / "_delta_log"
    expected = files_of_day(log)
    if day["status"] != 200 or day["files"] != expected:
        raise AssertionError(f"wrong answer: {day}, expected {expected} files")
    facts = {
        "files": day["files"],
        "first_byte_ms": 1000 * day["first_byte_seconds"],
        "read_mb": day_bytes / 1e6,
        "checkpoint_mb": checkpoint_of(log).stat().st_size / 1e6,
    }
    facts["share"] = facts["read_mb"] / facts["checkpoint_mb"]
    bench.note("cold, one of 365 days of a clustered checkpoint", facts)
    return bench.results


def checkpoint_of(log: Path) -> Path:
    """The only checkpoint of a log."""
    (found,) = log.glob("*.checkpoint.parquet")
    return found


def files_of_day(log: Path) -> int:
    """The files of the first day, counted by another reader."""
    adds = pq.read_table(checkpoint_of(log), columns=["add"])["add"]
    days = pc.struct_field(adds, ["partitionValues_parsed", "date"])
    return int(pc.sum(pc.equal(days, pa.scalar(FIRST_DAY))).as_py())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measures the gateway and its peers.")
    parser.add_argument("--adds", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=0, help="adds of a second log, for scaling")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--logs", type=Path, help="where logs are kept between runs")
    parser.add_argument("--kernel", help="the program built from bench/kernel")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--short", action="store_true", help="100,000 adds, answers only")
    arguments = parser.parse_args()
    if _native.is_debug_build():
        sys.exit("this is a debug build of the native module: its figures would mean nothing")
    with tempfile.TemporaryDirectory() as folder:
        logs = arguments.logs or Path(folder)
        if arguments.short:
            for checkpoint, vectors in (("classic", 0.0), ("multipart", 0.0), ("v2", 0.1), ("none", 0.0)):
                options = LogOptions(adds=100_000, checkpoint=checkpoint, deletion_vectors=vectors)
                Bench(logs / f"short-{checkpoint}", options, pairs=1).answers()
            one_day(logs / "short-clustered", 100_000)
            print("answers are right")
            return
        results = measure(arguments, logs)
    for row in rows(results):
        print(row)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    if arguments.report:
        arguments.report.write_text(write_report(results))


def measure(arguments: argparse.Namespace, logs: Path) -> dict[str, Any]:
    """The long form."""
    bench = Bench(logs / f"{arguments.adds}", LogOptions(adds=arguments.adds), pairs=arguments.pairs)
    bench.answers()
    bench.full_answers()
    bench.against_bare_stream()
    bench.against_deltalake()
    if arguments.kernel:
        bench.against_kernel(arguments.kernel)
    bench.other_peers()
    bench.threads()
    bench.stages()
    bench.pages()
    bench.beside_listings()
    bench.slow_readers()
    bench.small_queries()
    bench.results.update(one_day(logs / f"{arguments.adds}-clustered", arguments.adds))
    results = {
        "machine": machine(),
        "command": " ".join(["python", *sys.argv]),
        "adds": arguments.adds,
        "results": bench.results,
        "sizes": [answers_of_size(logs, adds, SERVED) for adds in SIZES],
    }
    if arguments.large:
        # As many files in memory are another machine's matter.
        results["large"] = answers_of_size(logs, arguments.large, {"cold parquet": SERVED["cold parquet"]})
    return results


def answers_of_size(logs: Path, adds: int, served: Mapping[str, list[str]]) -> dict[str, Any]:
    """Full answers of a log of so many adds, for the curves over files."""
    bench = Bench(logs / f"{adds}", LogOptions(adds=adds), pairs=SIZE_PAIRS)
    for name, cache in served.items():
        with gateway(bench.directory, *cache) as server:
            bench.note(name, bench.full_answer(server, delta=False))
    return {"adds": adds, "results": bench.results}


if __name__ == "__main__":
    main()
