"""Answers in the settings of a bench: a local log, URLs signed for S3, and the cache off or filled before.

They separate the work of the gateway from that of a store. Files of every answer are checked.
"""

import asyncio
import json
import statistics
import time
from typing import Any

import aiohttp
from drain import MODULUS, digest_of
from environment import Bench
from figures import GATEWAY, Measured
from listings import answered
from logs import DAY_HINT, Expected, Table
from measure import PeakWatch, allocated_bytes, bytes_read, interleaved, medians, run, script
from servers import Client, bench_gateway

HOT_CACHE_BYTES = 4 << 30
COLD = ("--cache", "0")
HOT = ("--cache", str(HOT_CACHE_BYTES))
HOT_BYTES_PER_FILE = 64
"""What cached columns may hold for a file beside its path and statistics."""
PAGE_FILES = 10_000


def full_answer(bench: Bench, files: int) -> Measured:
    """Cold and hot answers in both formats, with and without wide vector registers."""
    table = bench.logs.plain(files)
    rounds = bench.rounds_of(table)
    cold = medians([cold_answer(table) for _ in range(rounds)])
    hot = hot_answers(table, rounds)
    portable = hot_answers(table, rounds, "--portable")
    portable_names = ("hot CPU per file", "hot CPU per file, delta format")
    kept = table.text_bytes + HOT_BYTES_PER_FILE * table.expected.files
    return {
        GATEWAY: {
            **cold,
            **hot,
            **{f"{name}, portable": portable[name] for name in portable_names},
            "hot peak against text and 64 bytes a file": hot["hot peak above idle"] / kept,
        }
    }


def large_answer(bench: Bench, files: int) -> Measured:
    """Cold answers of a table whose columns are not kept in memory."""
    table = bench.logs.plain(files)
    return {GATEWAY: medians([cold_answer(table) for _ in range(bench.rounds_of(table))])}


def cold_answer(table: Table) -> dict[str, float]:
    """The first answer of a new process, the next one, and one in the delta format."""
    with bench_gateway(table, *COLD) as (server, client):
        idle = allocated_bytes(server.pid)
        with PeakWatch(server.pid) as watch:
            first, cpu = answered(server, client, table)
            next_answer, _ = answered(server, client, table)
            delta_cpu = server.cpu(lambda: client.whole(table, delta=True))
    return {
        "cold CPU per file": cpu / table.expected.files,
        "cold CPU per file, delta format": delta_cpu / table.expected.files,
        "cold time": first.seconds,
        "cold first byte": first.first_byte_seconds,
        "cold first byte of the next answer": next_answer.first_byte_seconds,
        "cold peak above idle": watch.peak_bytes - idle,
    }


def hot_answers(table: Table, rounds: int, *options: str) -> dict[str, float]:
    """Answers after a first one in each format."""
    found: list[dict[str, float]] = []
    with bench_gateway(table, *HOT, *options) as (server, client):
        idle = allocated_bytes(server.pid)
        with PeakWatch(server.pid) as watch:
            for delta in (False, True):
                client.whole(table, delta=delta)
            for _ in range(rounds):
                answer, cpu = answered(server, client, table)
                delta_cpu = server.cpu(lambda: client.whole(table, delta=True))
                found.append(
                    {
                        "hot CPU per file": cpu / table.expected.files,
                        "hot CPU per file, delta format": delta_cpu / table.expected.files,
                        "hot time": answer.seconds,
                        "hot first byte": answer.first_byte_seconds,
                    }
                )
    return {**medians(found), "hot peak above idle": watch.peak_bytes - idle}


def stages(bench: Bench, files: int) -> Measured:
    """CPU per file by stage: what each stage adds to the one before."""
    table = bench.logs.plain(files)
    lines = in_process(bench, table, "--cache", str(HOT_CACHE_BYTES))
    decoding = in_process(bench, table) - lines
    hot = hot_answers(table, bench.rounds)["hot CPU per file"]
    return {
        GATEWAY: {
            "reading and decoding the log": decoding,
            "signing and writing lines": lines,
            "HTTP and the kernel": hot - lines,
        }
    }


def in_process(bench: Bench, table: Table, *flags: str) -> float:
    """Return the CPU per file of an answer that is made without a server."""
    found = [made_answer(table, "--threads", "1", *flags) for _ in range(bench.rounds)]
    return statistics.median(answer["cpu_seconds"] for answer in found) / table.expected.files


def threads(bench: Bench, files: int) -> Measured:
    """The time of decoding, signing and writing with one thread against two."""
    table = bench.logs.plain(files)
    pair = interleaved(
        lambda: made_answer(table, "--threads", "1")["seconds"],
        lambda: made_answer(table, "--threads", "2")["seconds"],
        bench.rounds,
    )
    return {GATEWAY: {"time with one thread against two": pair["ratio"]}}


def made_answer(table: Table, *flags: str) -> dict[str, float]:
    """Make an answer in a process without a server, and check it."""
    answer: dict[str, Any] = run(script("make_answer.py", str(table.directory), *flags)).answer
    if Expected(answer["files"], answer.pop("digest")) != table.expected:
        raise AssertionError(f"wrong answer: {answer}")
    return answer


def clustered_day(bench: Bench, files: int) -> Measured:
    """The share of an ordered checkpoint that a cold predicate on one of 365 days reads."""
    table = bench.logs.clustered(files)
    with bench_gateway(table, *COLD) as (server, client):
        # The first answer also sums up the sizes of the version, which has no checksum file.
        client.whole(table)
        before = bytes_read(server.pid)
        client.query(table, table.first_day, DAY_HINT)
        read = bytes_read(server.pid) - before
    return {GATEWAY: {"share of the checkpoint that is read": 100 * read / table.checkpoint_bytes}}


def pages(bench: Bench, files: int) -> Measured:
    """The time of the last page against that of the first one."""
    table = bench.logs.plain(files)
    measured = {}
    for name, cache in (("cold", COLD), ("hot", HOT)):
        with bench_gateway(table, *cache) as (_, client):
            client.whole(table)
            ratio = asyncio.run(last_page_ratio(client, table, bench.rounds))
        measured[f"{name}, last page against first"] = ratio
    return {GATEWAY: measured}


async def last_page_ratio(client: Client, table: Table, rounds: int) -> float:
    """Read all pages once and compare their files with the table; then time the first and last full one."""
    url = f"http://127.0.0.1:{client.port}{client.path(table)}"
    headers = {"Authorization": f"Bearer {client.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def page(token: str | None) -> tuple[float, bytes]:
            body: dict[str, Any] = {"maxFiles": PAGE_FILES} | ({"pageToken": token} if token else {})
            started = time.perf_counter()
            async with session.post(url, json=body) as response:
                text = await response.read()
            return time.perf_counter() - started, text

        tokens: list[str | None] = [None]
        digests: list[tuple[int, str]] = []
        while len(digests) < len(tokens):
            _, text = await page(tokens[-1])
            digests.append(digest_of(text))
            last_line = json.loads(text.rstrip().rsplit(b"\n", 1)[1])
            if next_token := last_line.get("endStreamAction", {}).get("nextPageToken"):
                tokens.append(next_token)
        files = sum(count for count, _ in digests)
        digest = sum(int(of_page, 16) for _, of_page in digests) % MODULUS
        if Expected(files, f"{digest:032x}") != table.expected:
            raise AssertionError(f"the pages have {files} files, or others than the table")
        last = max(number for number, (count, _) in enumerate(digests) if count == PAGE_FILES)
        ratios = []
        for _ in range(rounds):
            seconds = {}
            for number in (0, last):
                seconds[number], text = await page(tokens[number])
                if digest_of(text) != digests[number]:
                    raise AssertionError(f"page {number + 1} has other files than before")
            ratios.append(seconds[last] / seconds[0])
        return statistics.median(ratios)
