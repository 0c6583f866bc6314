"""Answers with a table's files, in the default configuration with the log in an object store.

A cold answer is the first one of a new process, a hot one comes later from the same process with whatever the
caches hold then.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from drain import FEW, Answer
from environment import Bench
from figures import GATEWAY, Measured
from logs import DAY_HINT, Table
from measure import PeakWatch, allocated_bytes, cpu_seconds, mapped_bytes, medians, shared_out_bytes
from servers import Client, Server

HOT_ANSWERS = 3
LATER_SECONDS = 3.0
SETTLE_SECONDS = 0.5
"""After an answer, until memory that it no longer needs is returned."""
MOST_ANSWERS = 40
PAGE_FILES = FEW
LIMIT_ONE = json.dumps({"limitHint": 1})


def of_new_processes(
    bench: Bench, files: int, *, measure: Callable[[Server, Client, Table], dict[str, float]]
) -> Measured:
    """Measure a new process in each round; return the medians."""
    table = bench.logs.plain(files, bench.writer)
    rounds = []
    for _ in range(bench.rounds_of(table)):
        with bench.default_gateway(table) as (server, client):
            rounds.append(measure(server, client, table))
    return {GATEWAY: medians(rounds)}


def full_answer(server: Server, client: Client, table: Table) -> dict[str, float]:
    """A cold answer, then hot ones, with the memory of each stage."""
    files = table.expected.files
    idle = allocated_bytes(server.pid)
    with PeakWatch(server.pid) as cold_watch:
        cold, cold_cpu = answered(server, client, table)
    kept = settled_bytes(server)
    with PeakWatch(server.pid) as hot_watch:
        hot = [answered(server, client, table) for _ in range(HOT_ANSWERS)]
    after = settled_bytes(server)
    hot_cpu = statistics.median(cpu for _, cpu in hot)
    return {
        "cold CPU per file": cold_cpu / files,
        "cold CPU": cold_cpu,
        "cold time": cold.seconds,
        "cold first byte": cold.first_byte_seconds,
        "hot CPU per file": hot_cpu / files,
        "hot time": statistics.median(answer.seconds for answer, _ in hot),
        "hot first byte": statistics.median(answer.first_byte_seconds for answer, _ in hot),
        "idle memory": idle,
        "cold peak above idle": cold_watch.peak_bytes - idle,
        "kept above idle": kept - idle,
        "hot peak above idle": hot_watch.peak_bytes - idle,
        "after above idle": after - idle,
        "cold peak beyond kept": max(cold_watch.peak_bytes - kept, 0),
        "hot peak beyond kept": max(hot_watch.peak_bytes - kept, 0),
        "mapped files": mapped_bytes(server.pid),
    }


def first_file(server: Server, client: Client, table: Table) -> dict[str, float]:
    """A cold answer to `limitHint: 1`, whose files must be live."""
    found: list[Answer] = []
    cpu = server.cpu(lambda: found.append(client.query(table, None, LIMIT_ONE)))
    (answer,) = found
    if not answer.ids or not table.holds(answer.ids):
        raise AssertionError(f"wrong answer: {answer}")
    return {"time": answer.seconds, "CPU": cpu}


def by_statistics(server: Server, client: Client, table: Table) -> dict[str, float]:
    """A cold answer to a predicate on the bounds of a column."""
    found: list[Answer] = []
    cpu = server.cpu(lambda: found.append(client.query(table, table.middle, table.middle_hint)))
    return {"time": found[0].seconds, "CPU": cpu}


def first_page(server: Server, client: Client, table: Table) -> dict[str, float]:
    """A cold answer with the first page, of as many files as it may have."""
    found: list[Answer] = []
    body = json.dumps({"maxFiles": PAGE_FILES})
    cpu = server.cpu(lambda: found.append(client.query(table, None, body)))
    (answer,) = found
    if answer.files != min(PAGE_FILES, table.expected.files) or not table.holds(answer.ids):
        raise AssertionError(f"wrong answer: {answer.files} files")
    return {"time": answer.seconds, "CPU": cpu}


def one_day(server: Server, client: Client, table: Table) -> dict[str, float]:
    """A cold answer to a predicate, the same query at once, and again after the columns were built."""
    found: list[Answer] = []

    def query() -> None:
        found.append(client.query(table, table.first_day, DAY_HINT))

    cpu = server.cpu(query)
    again_cpu = statistics.median(server.cpu(query) for _ in range(HOT_ANSWERS))
    again = statistics.median(answer.seconds for answer in found[1:])
    time.sleep(LATER_SECONDS)
    del found[1:]
    later_cpu = statistics.median(server.cpu(query) for _ in range(HOT_ANSWERS))
    later = statistics.median(answer.seconds for answer in found[1:])
    return {
        "time": found[0].seconds,
        "CPU": cpu,
        "time again": again,
        "CPU again": again_cpu,
        "time later": later,
        "CPU later": later_cpu,
    }


def restart(bench: Bench, files: int, section: Mapping[str, Any] | None = None) -> Measured:
    """The first answer of a new process after another process has answered until it was hot."""
    table = bench.logs.plain(files)
    rounds = []
    for _ in range(bench.rounds_of(table)):
        with bench.default_gateway(table, section=section) as (server, client):
            hot = [answered(server, client, table)[1] for _ in range(1 + HOT_ANSWERS)][1:]
            server.stop()
        with bench.default_gateway(table, section=section) as (server, client):
            first, cpu = answered(server, client, table)
        rounds.append(first_against_hot(first, cpu, statistics.median(hot), table))
    return {GATEWAY: medians(rounds)}


def second_worker(bench: Bench, files: int, section: Mapping[str, Any] | None = None) -> Measured:
    """The first answer of the second of two workers, and the memory of both against that of one.

    Both are queried until they are hot; the kernel chooses the worker of each connection.
    """
    table = bench.logs.plain(files)
    with bench.default_gateway(table, section=section) as (server, client):
        idle = shared_out_bytes(server.workers)
        for _ in range(1 + HOT_ANSWERS):
            client.whole(table)
        time.sleep(SETTLE_SECONDS)
        of_one = shared_out_bytes(server.workers) - idle
    with bench.default_gateway(table, workers=2, section=section) as (server, client):
        workers = server.workers
        idle = shared_out_bytes(workers)
        first: dict[int, tuple[Answer, float]] = {}
        hot: list[float] = []
        for _ in range(MOST_ANSWERS):
            before = {pid: cpu_seconds(pid) for pid in workers}
            answer = client.whole(table)
            spent = {pid: cpu_seconds(pid) - before[pid] for pid in workers}
            answering = max(workers, key=lambda pid: spent[pid])
            if answering in first:
                hot.append(spent[answering])
            else:
                first[answering] = answer, spent[answering]
            if len(first) == len(workers) and len(hot) >= HOT_ANSWERS:
                break
        else:
            raise AssertionError("a worker got no connection")
        time.sleep(SETTLE_SECONDS)
        of_two = shared_out_bytes(workers) - idle
    _, second = first.values()
    facts = first_against_hot(*second, statistics.median(hot), table)
    return {GATEWAY: {**facts, "memory of two against one": of_two / of_one}}


def first_against_hot(first: Answer, cpu: float, hot_cpu: float, table: Table) -> dict[str, float]:
    """The quantities of a process's first answer where another process was hot."""
    return {
        "first byte": first.first_byte_seconds,
        "CPU per file": cpu / table.expected.files,
        "CPU against hot": cpu / hot_cpu,
    }


def with_columns_on_disk(
    bench: Bench, files: int, *, measure: Callable[[Bench, int, Mapping[str, Any]], Measured]
) -> Measured:
    """Measure with `gateway.cache.directory` set: processes share a directory of columns."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, "columns")
        directory.mkdir(mode=0o700)
        return measure(bench, files, {"cache": {"directory": str(directory)}})


def answered(server: Server, client: Client, table: Table) -> tuple[Answer, float]:
    """Return a whole answer and the CPU that the server spent on it."""
    found: list[Answer] = []
    cpu = server.cpu(lambda: found.append(client.whole(table)))
    return found[0], cpu


def settled_bytes(server: Server) -> int:
    """Return the memory of a server a while after its last answer."""
    time.sleep(SETTLE_SECONDS)
    return allocated_bytes(server.pid)
