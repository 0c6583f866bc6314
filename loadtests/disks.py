"""Runs the nine users against two replicas that restart in turn, while each of their disks fills once.

    python loadtests/disks.py                        20,000 files, 30 users, about two minutes
    python loadtests/disks.py --seconds 10           each state for that long

The temporary directory, the audit files and the column cache of both replicas are on small file systems that
the script mounts, so it needs Linux and the rights to mount. Exits with code 1 after a wrong answer, a failed
request, a process that ended by itself, a request without an audit record, or a replica that is not ready
once there is space again.
"""

import argparse
import asyncio
import csv
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import generators
import psutil
from baseline import measure
from run import CACHE, make_table, serving, write_config

from gateway.demo.processes import free_port

QUERIES = ("small query", "page", "changes", "refresh: first", "refresh: again", "full listing")
QUERIED = "deltaSharingQueriedTable"
DISK_BYTES = {"tmp": 64 << 20, "audit": 16 << 20, "cache": 16 << 20}
POLL_SECONDS = 0.1
READY_SECONDS = 60.0
Answer = TypeVar("Answer")


def main() -> int:
    """Run the users and fill the disks; return 0 when nobody noticed and nothing is lost."""
    options = parse()
    table = CACHE / f"{options.adds}-adds"
    expected = make_table(table, options.adds)
    token = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        root = Path(temporary)
        disks = {name: stack.enter_context(mounted(root / name, size)) for name, size in DISK_BYTES.items()}
        os.environ["TMPDIR"] = str(disks["tmp"])
        config = json.loads(write_config(root, table, token, 0).read_text())
        replicas = [Replica(root, name, config, disks, options.report) for name in ("a", "b")]
        for replica in replicas:
            stack.callback(replica.stop)
            replica.start()
        url = f"http://127.0.0.1:{stack.enter_context(Balancer(replicas).running())}/delta-sharing"
        baseline = measure(url, token, table, expected)
        expectations = options.report / "baseline.json"
        baseline.save(expectations)
        seconds = 8 * options.seconds + 2 * len(disks) * 15
        load = generators.Load(options.users, seconds, "steady", url, token, options.report)
        with ThreadPoolExecutor(1) as pool:
            users = pool.submit(generators.run_locust, load, expectations)
            time.sleep(options.seconds)
            for number, (name, disk) in enumerate(disks.items()):
                fault(name, disk, replicas[number % 2], replicas[1 - number % 2], options.seconds)
        ended_well = users.result()
        for replica in replicas:
            replica.until_ready()
            replica.stop()
        found = figures(options.report, disks["audit"])
    print(json.dumps(found))
    return 0 if ended_well and not found["failures"] and found["queries"] <= found["records"] else 1


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--adds", type=int, default=20_000, help="files of the table")
    parser.add_argument("--users", type=int, default=30)
    parser.add_argument("--seconds", type=int, default=6, help="of each state")
    parser.add_argument("--report", type=Path, default=Path("loadtest-report"))
    options = parser.parse_args()
    options.report = options.report.resolve()
    options.report.mkdir(parents=True, exist_ok=True)
    return options


@contextmanager
def mounted(directory: Path, size: int) -> Iterator[Path]:
    """A file system of its own."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


class Replica:
    """A replica with two workers, which share its audit file and its cache directory."""

    def __init__(
        self, root: Path, name: str, config: dict[str, Any], disks: dict[str, Path], report: Path
    ) -> None:
        self.name, self.port = name, free_port()
        self._report, self._starts, self._run = report, 0, ExitStack()
        self._process: psutil.Process | None = None
        gateway = config["gateway"] | {
            "audit": {"file": str(disks["audit"] / f"{name}.jsonl")},
            "cache": {"directory": str(disks["cache"] / name), "diskBytes": DISK_BYTES["cache"] // 4},
            "drainDelaySeconds": 1.0,
        }
        self._path = root / f"{name}.json"
        self._path.write_text(json.dumps(config | {"port": self.port, "gateway": gateway}))

    def start(self) -> None:
        """Start, and return when it is ready."""
        self._starts += 1
        report = self._report / f"{self.name}{self._starts}"
        report.mkdir(exist_ok=True)
        options = argparse.Namespace(workers=2, report=report)
        self._process, _ = self._run.enter_context(serving(self._path, options))
        self.until_ready()

    def stop(self) -> None:
        """Stop as an operator does. A process that has ended by itself is an error."""
        process, self._process = self._process, None
        if process is not None:
            if not process.is_running():
                raise SystemExit(f"replica {self.name} has ended by itself")
            self._run.close()

    def until_ready(self) -> None:
        end = time.monotonic() + READY_SECONDS
        while not self.is_ready():
            if time.monotonic() > end:
                raise SystemExit(f"replica {self.name} is not ready")
            time.sleep(POLL_SECONDS)

    def is_ready(self) -> bool:
        url = f"http://127.0.0.1:{self.port}/readyz"
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
        return False


def fault(name: str, disk: Path, replica: Replica, other: Replica, seconds: int) -> None:
    """Fill a disk, restart a replica while it is full, and again when it is not."""

    def restart() -> None:
        other.until_ready()
        replica.stop()
        replica.start()

    filled = disk / "filled"
    with suppress(OSError), filled.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    time.sleep(seconds)
    # What the audit file has no space for ends with its process.
    if name != "audit":
        restart()
    filled.unlink()
    time.sleep(seconds)
    restart()


class Balancer:
    """Forwards connections to replicas that were ready a moment ago."""

    def __init__(self, replicas: list[Replica]) -> None:
        self._replicas, self._ready = replicas, set[int]()
        self._loop = asyncio.new_event_loop()

    @contextmanager
    def running(self) -> Iterator[int]:
        """Forward in a separate thread until the block ends; the port."""
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        port, looking = self._wait(self._start())
        while len(self._ready) < len(self._replicas):
            time.sleep(POLL_SECONDS)
        try:
            yield port
        finally:
            self._wait(_cancel(looking))
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()

    def _wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self) -> tuple[int, list[asyncio.Task[None]]]:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        looking = [self._loop.create_task(self._look(replica)) for replica in self._replicas]
        return int(server.sockets[0].getsockname()[1]), looking

    async def _look(self, replica: Replica) -> None:
        while True:
            is_ready = await asyncio.to_thread(replica.is_ready)
            (self._ready.add if is_ready else self._ready.discard)(replica.port)
            await asyncio.sleep(POLL_SECONDS)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in random.sample(sorted(self._ready), len(self._ready)):
            with suppress(OSError):
                to_server, from_server = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(_copy(reader, from_server), _copy(to_server, writer))
                break
        writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def figures(report: Path, audit: Path) -> dict[str, Any]:
    """Compare the answers that the users have with the records of both replicas."""
    kinds = generators.kinds(report)
    records, torn = set[str](), 0
    for file in audit.glob("*.jsonl"):
        for line in file.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                # The part of a line before the disk was full; the whole one follows.
                torn += 1
                continue
            # Users who leave early have records, too, and no part in the sum below.
            if record["actionName"] == QUERIED and record["response"]["result"]["complete"]:
                records.add(record["requestId"])
    failed = [
        row for name in generators.WEIGHTS for row in csv.DictReader((report / f"{name}_failures.csv").open())
    ]
    return {
        "requests": sum(kind["requests"] for kind in kinds),
        "failures": sum(kind["failures"] for kind in kinds),
        "failed": {f"{row['Name']}: {row['Error']}": int(row["Occurrences"]) for row in failed},
        # With the listing before the load.
        "queries": 1 + sum(kind["requests"] - kind["failures"] for kind in kinds if kind["name"] in QUERIES),
        "records": len(records),
        "torn": torn,
    }


if __name__ == "__main__":
    sys.exit(main())
