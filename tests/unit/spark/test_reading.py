"""Partitions read in a task: files fetched ahead, and rows counted without opening a file."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType
from support.plain_server import PlainServer

from gateway.client.actions import DataFile, DeletionVector, FileKind, TableHead, parse_file
from gateway.client.files import Origin
from gateway.client.pages import Query
from gateway.client.profile import Profile
from gateway.client.table_name import TableName
from gateway.spark.read import reading
from gateway.spark.read.column_chunks import CONNECTIONS
from gateway.spark.read.reading import SharePartition, read_partition
from gateway.spark.read.schema import shared_schema
from gateway.spark.read.tasks import ReadTask, snapshot_tasks

FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in
          (("p", "string"), ("a", "long"))]  # fmt: skip
HEAD = TableHead(json.dumps({"type": "struct", "fields": FIELDS}), ("p",), {})
SCHEMA = shared_schema(HEAD)


@pytest.fixture
def server() -> Iterator[PlainServer]:
    serving = PlainServer({})
    yield serving
    serving.close()


def written(server: PlainServer, path: Path, first: int, **known: Any) -> DataFile:
    pq.write_table(pa.table({"a": [first, first + 1]}), path)
    url = f"{server.url}/files{path}"
    return DataFile(FileKind.SNAPSHOT, path.stem, url, path.stat().st_size, {"p": "x"}, **known)


def partition(server: PlainServer, tasks: Iterator[ReadTask] | list[ReadTask]) -> SharePartition:
    origin = Origin(Profile(f"{server.url}/p", "t"), TableName("s", "d", "t"), Query(), 0)
    return SharePartition(origin, tuple(tasks))


def columns(*names: str) -> StructType:
    return StructType([SCHEMA[name] for name in names])


def test_rows_come_in_the_order_of_the_files(server: PlainServer, tmp_path: Path) -> None:
    files = [written(server, tmp_path / f"{number}.parquet", 10 * number) for number in range(9)]
    batches = read_partition(partition(server, snapshot_tasks(files)), columns("a"), HEAD)
    read = [value for batch in batches for value in batch.column("a").to_pylist()]
    assert read == [10 * number + more for number in range(9) for more in range(2)]


def test_following_files_are_fetched_while_the_first_is_decoded(
    server: PlainServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [written(server, tmp_path / f"{number}.parquet", number) for number in range(9)]
    arrived, opening = threading.Semaphore(0), reading._open

    def counted(*arguments: Any, **options: Any) -> Any:
        found = opening(*arguments, **options)
        arrived.release()
        return found

    monkeypatch.setattr(reading, "_open", counted)
    batches = read_partition(partition(server, snapshot_tasks(files)), columns("a"), HEAD)
    next(batches)
    for _ in range(CONNECTIONS):
        assert arrived.acquire(timeout=30)
    # Not more than these: what is fetched ahead is bounded.
    assert not arrived.acquire(timeout=0.2)
    assert len(list(batches)) == len(files) - 1


def test_files_ahead_are_bounded_in_bytes(
    server: PlainServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [written(server, tmp_path / f"{number}.parquet", number) for number in range(4)]
    monkeypatch.setattr(reading, "_AHEAD_BYTES", files[0].size_bytes)
    batches = read_partition(partition(server, snapshot_tasks(files)), columns("a"), HEAD)
    next(batches)
    assert [path for _, path, _ in server.requests] == [f"/files{tmp_path}/0.parquet"]
    assert len(list(batches)) == 3


def test_an_error_of_a_file_ahead_is_raised(server: PlainServer, tmp_path: Path) -> None:
    files = [written(server, tmp_path / f"{number}.parquet", number) for number in range(3)]
    (tmp_path / "2.parquet").unlink()
    with pytest.raises(Exception, match="HTTP 404"):
        list(read_partition(partition(server, snapshot_tasks(files)), columns("a"), HEAD))


def test_partition_columns_are_read_without_opening_files_whose_rows_are_known(
    server: PlainServer, tmp_path: Path
) -> None:
    vector = DeletionVector("unread", None, 0, 1, 30_000, None)
    known = written(server, tmp_path / "known.parquet", 0, num_records=70_000, deletion_vector=vector)
    unknown = written(server, tmp_path / "unknown.parquet", 0)
    batches = list(read_partition(partition(server, snapshot_tasks([known, unknown])), columns("p"), HEAD))
    assert sum(batch.num_rows for batch in batches) == 40_002
    assert {value for batch in batches for value in batch.column("p").unique().to_pylist()} == {"x"}
    assert [path for _, path, _ in server.requests] == [f"/files{tmp_path}/unknown.parquet"]


def test_a_column_of_the_file_is_read_even_where_rows_are_known(server: PlainServer, tmp_path: Path) -> None:
    # The number of the listing is wrong on purpose: the rows are those of the file.
    file = written(server, tmp_path / "a.parquet", 5, num_records=70_000)
    batches = read_partition(partition(server, snapshot_tasks([file])), columns("p", "a"), HEAD)
    assert [row for batch in batches for row in batch.to_pylist()] == [{"p": "x", "a": 5}, {"p": "x", "a": 6}]


@pytest.mark.parametrize(
    ("stats", "rows"),
    [
        ('{"numRecords":12,"minValues":{}}', 12),
        ('{"numRecords":12}', 12),
        ('{"minValues":{"numRecords":3}, "numRecords": 12}', 12),
        ('{"minValues":{"numRecords":3}}', None),
        ('{"numRecords":-1}', None),
        ('{"numRecords":1.5}', None),
        ('{"numRecords":"12"}', None),
        ('{"numRecords":12', None),
        ("[]", None),
        ("", None),
        (None, None),
    ],
)
def test_the_number_of_rows_is_taken_from_statistics_in_both_formats(
    stats: str | None, rows: int | None
) -> None:
    parquet = {"file": {"id": "f", "url": "u", "size": 1, "partitionValues": {}, "stats": stats}}
    add = {"path": "u", "size": 1, "partitionValues": {}, "stats": stats}
    delta = {"file": {"id": "f", "deltaSingleAction": {"add": add}}}
    for line in (parquet, delta):
        file = parse_file(line)
        assert file is not None
        assert file.num_records == rows
