"""A hundred thousand files in a checkpoint: an answer begins before all of it is read."""

import datetime as dt
import hashlib
import http.client
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.fault_proxy import Fault, running
from support.gateway_process import PREFIX, RunningGateway, running_gateway, share, storage, table_path
from support.versitygw import VersityGw
from tables.golden import EVERY_FEATURE
from tables.large_logs import make_log

ADDS = 100_000
CLUSTERED_ADDS = 60_000
DAY = "2025-03-01"
ROWS_PER_GROUP = 10_000
MOST_MEMORY_BYTES = 200 * 1024 * 1024
AT_ONCE = 12
UNPACKED_BYTES = 36 * 1024 * 1024
"""Paths and statistics of all files."""


@pytest.fixture(scope="module")
def large_table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The log and what is in it; the last version has a checksum file."""
    root = tmp_path_factory.mktemp("large") / "table"
    maker = make_log(rows_per_group=ROWS_PER_GROUP)
    expected = maker.make_log(root, maker.LogOptions(adds=ADDS, commits=3))
    write_checksum(root, 3, expected)
    return root, expected


def write_checksum(root: Path, version: int, expected: dict[str, Any]) -> None:
    """A version's checksum file, as Spark writes it."""
    protocol, metadata = map(json.loads, (root / "_delta_log" / f"{0:020}.json").read_text().splitlines()[:2])
    checksum = {
        "tableSizeBytes": expected["size"],
        "numFiles": expected["files"],
        "numMetadata": 1,
        "numProtocol": 1,
    }
    (root / "_delta_log" / f"{version:020}.crc").write_text(
        json.dumps({**checksum, **protocol, "metadata": metadata["metaData"]})
    )


@pytest.fixture(scope="module")
def clustered_table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A log whose checkpoint is ordered by date and has typed values; how many files a day has."""
    root = tmp_path_factory.mktemp("clustered") / "table"
    maker = make_log(rows_per_group=CLUSTERED_ADDS // 30)
    options = maker.LogOptions(adds=CLUSTERED_ADDS, commits=0, parsed=True, clustered=True)
    write_checksum(root, 0, maker.make_log(root, options))
    checkpoint = pq.read_table(root / "_delta_log" / f"{0:020}.checkpoint.parquet", columns=["add"])
    dates = pc.struct_field(checkpoint["add"], ["partitionValues_parsed", "date"])
    return root, pc.sum(pc.equal(dates, pa.scalar(dt.date.fromisoformat(DAY)))).as_py()


@dataclass
class Requests:
    """The requests of the gateway to its store, with their times."""

    ranges: list[tuple[float, int, int]] = field(default_factory=list)
    """Time, first and last byte."""

    def __call__(self, piece: bytes) -> bool:
        """Takes note of a request for a part of the checkpoint."""
        found = re.search(rb"range: bytes=(\d+)-(\d+)", piece, re.IGNORECASE)
        if b"checkpoint.parquet" in piece and found is not None:
            self.ranges.append((time.monotonic(), int(found[1]), int(found[2])))
        return False

    def bytes_before(self, moment: float) -> int:
        """Return the number of different requested bytes."""
        covered, end = 0, -1
        for first, last in sorted((first, last) for when, first, last in self.ranges if when < moment):
            covered += max(0, last - max(first, end + 1) + 1)
            end = max(end, last)
        return covered


@pytest.fixture
def watched_store(
    versitygw: VersityGw, large_table: tuple[Path, dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], Requests]]:
    """The table in S3 behind a proxy that sees the requests: the storage's configuration, and what it saw."""
    versitygw.upload(large_table[0], "large", "table")
    requests = Requests()
    with running(int(versitygw.endpoint.rsplit(":", 1)[1])) as proxy:
        proxy.fault = Fault(only=requests)
        yield {**storage(versitygw, "s3://large/"), "endpoint": proxy.endpoint}, requests


@dataclass
class Streamed:
    """An answer as it arrived."""

    first_file: float
    """When its line was there."""
    files: int
    digest: int
    head: list[dict[str, Any]]


def streamed(gateway: RunningGateway, table: str, body: bytes = b"{}") -> Streamed:
    """Reads a delta-format answer as it comes."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=300)
    headers = {"Authorization": f"Bearer {gateway.token}", "delta-sharing-capabilities": EVERY_FEATURE}
    connection.request("POST", f"{PREFIX}{table_path(table)}/query", body, headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    head = [json.loads(response.readline()) for _ in range(2)]
    found = Streamed(0.0, 0, 0, head)
    while line := response.readline():
        found.first_file = found.first_file or time.monotonic()
        found.files += 1
        found.digest += path_digest(json.loads(line))
    connection.close()
    return found


def path_digest(line: dict[str, Any]) -> int:
    """As make_log's: the sum of these over all files does not depend on their order."""
    path = unquote(urlsplit(line["file"]["deltaSingleAction"]["add"]["path"]).path)
    return int.from_bytes(hashlib.md5(path[path.index("date=") :].encode()).digest())


def peak_memory_bytes(process_id: int) -> int:
    """The most that a process ever held."""
    status = Path(f"/proc/{process_id}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def test_the_first_file_leaves_before_the_checkpoint_is_read(
    watched_store: tuple[dict[str, Any], Requests],
    large_table: tuple[Path, dict[str, Any]],
    tmp_path: Path,
) -> None:
    (root, expected), (entry, requests) = large_table, watched_store
    checkpoint_bytes = (root / "_delta_log" / f"{0:020}.checkpoint.parquet").stat().st_size
    shares = [share("large", {"table": "s3://large/table"})]
    with running_gateway(tmp_path, shares, {"storages": [entry]}) as served:
        found = streamed(served, "large.default.table")
        memory = peak_memory_bytes(served.process.pid)
    assert (found.files, found.digest % (1 << 128)) == (expected["files"], int(expected["digest"], 16))
    assert found.head[1]["metaData"]["numFiles"] == expected["files"]
    assert 0 < requests.bytes_before(found.first_file) < 0.8 * checkpoint_bytes
    assert requests.bytes_before(time.monotonic()) > 0.8 * checkpoint_bytes
    assert memory < MOST_MEMORY_BYTES


def test_sizes_and_counts_are_right_without_a_checksum(
    large_table: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    root, expected = large_table
    checksum = root / "_delta_log" / f"{3:020}.crc"
    kept = checksum.read_bytes()
    checksum.unlink()
    try:
        with running_gateway(tmp_path, [share("large", {"table": str(root)})]) as served:
            found = streamed(served, "large.default.table")
            memory = peak_memory_bytes(served.process.pid)
    finally:
        checksum.write_bytes(kept)
    metadata = found.head[1]["metaData"]
    assert (metadata["numFiles"], metadata["size"]) == (expected["files"], expected["size"])
    assert (found.files, found.digest % (1 << 128)) == (expected["files"], int(expected["digest"], 16))
    assert memory < MOST_MEMORY_BYTES


def bytes_read(process_id: int) -> int:
    """By a process, from files, as the kernel counts them."""
    lines = Path(f"/proc/{process_id}/io").read_text().splitlines()
    return int(lines[0].removeprefix("rchar: "))


@pytest.mark.nightly
def test_one_of_365_days_is_read_from_a_small_part_of_the_checkpoint(
    clustered_table: tuple[Path, int], tmp_path: Path
) -> None:
    root, files_of_day = clustered_table
    checkpoint_bytes = (root / "_delta_log" / f"{0:020}.checkpoint.parquet").stat().st_size
    body = json.dumps({"predicateHints": [f"date = '{DAY}'"]}).encode()
    cold = {"cache": {"memoryBytes": 0}}
    with running_gateway(tmp_path, [share("large", {"table": str(root)})], cold) as served:
        before = bytes_read(served.process.pid)
        found = streamed(served, "large.default.table", body)
        day_bytes = bytes_read(served.process.pid) - before
        whole = streamed(served, "large.default.table")
        whole_bytes = bytes_read(served.process.pid) - before - day_bytes
    assert (found.files, whole.files) == (files_of_day, CLUSTERED_ADDS)
    assert day_bytes < 0.2 * whole_bytes
    assert whole_bytes > 0.5 * checkpoint_bytes


@pytest.mark.nightly
def test_sparse_answers_do_not_keep_unselected_files_in_memory(
    large_table: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    root, _ = large_table
    body = json.dumps({"predicateHints": [f"date = '{DAY}'"]}).encode()
    cold = {"cache": {"memoryBytes": 0}}
    with running_gateway(tmp_path, [share("large", {"table": str(root)})], cold) as served:
        whole = streamed(served, "large.default.table")
        before = peak_memory_bytes(served.process.pid)
        with ThreadPoolExecutor(AT_ONCE) as readers:
            found = list(readers.map(lambda _: streamed(served, "large.default.table", body), range(AT_ONCE)))
        grown = peak_memory_bytes(served.process.pid) - before
    assert 0 < min(answer.files for answer in found) < whole.files / 100
    assert len({answer.digest for answer in found}) == 1
    # What all of them would hold if each held the pages that its files come from.
    assert grown < AT_ONCE * UNPACKED_BYTES / 3


@pytest.mark.nightly
def test_a_late_page_reads_no_more_than_an_early_one(
    large_table: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    root, expected = large_table
    files, costs, page = 0, [], {"maxFiles": ROWS_PER_GROUP // 2}
    cold = {"cache": {"memoryBytes": 0}}
    with running_gateway(tmp_path, [share("large", {"table": str(root)})], cold) as served:
        while page.get("pageToken") != "":
            before = bytes_read(served.process.pid)
            lines = served.query("large.default.table", page, EVERY_FEATURE).lines
            costs.append(bytes_read(served.process.pid) - before)
            files += sum("file" in line for line in lines)
            page["pageToken"] = lines[-1]["endStreamAction"].get("nextPageToken", "")
    _, *following = costs
    assert (files, len(costs)) == (expected["files"], -(-expected["files"] // page["maxFiles"]))
    # A page that ends with its row group looks into the next one for whether there is more.
    assert max(following) < 3 * min(following)


COMMITS = 10_000


@pytest.fixture(scope="module")
def long_history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of as many commits, each of which adds a file, and no checkpoint."""
    root = tmp_path_factory.mktemp("long") / "table"
    maker = make_log()
    maker.make_log(root, maker.LogOptions(adds=1, commits=0))
    log = root / "_delta_log"
    adds = maker.make_adds(maker.LogOptions(adds=1), 1, COMMITS)
    for version, add in enumerate(adds, start=1):
        (log / f"{version:020}.json").write_text(json.dumps({"add": add}) + "\n")
    return root


def test_a_range_of_ten_thousand_commits_streams_in_bounded_memory(
    long_history: Path, tmp_path: Path
) -> None:
    with running_gateway(tmp_path, [share("long", {"table": str(long_history)})]) as served:
        found = streamed(served, "long.default.table", b'{"startingVersion": 1}')
        memory = peak_memory_bytes(served.process.pid)
    assert found.files == COMMITS
    assert memory < MOST_MEMORY_BYTES
