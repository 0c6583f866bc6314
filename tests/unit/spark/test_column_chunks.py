"""Ranges of a remote file that are fetched in parallel, and the reads that they serve."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.spark.read.column_chunks import ColumnChunkFile, chunk_ranges

DATA = bytes(range(256)) * 64


class Store:
    """The bytes of one file, and the ranges that were requested."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.requested: list[tuple[int, int]] = []

    def read_range(self, start: int, length: int) -> bytes:
        self.requested.append((start, start + length))
        return self.data[start : start + length]


def opened(store: Store) -> ColumnChunkFile:
    return ColumnChunkFile(store.read_range, len(store.data), ThreadPoolExecutor(2))


def read_at(file: ColumnChunkFile, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)


@pytest.mark.parametrize(("start", "length"), [(0, 10), (100, 50), (90, 30), (140, 20), (0, len(DATA))])
def test_a_read_has_the_bytes_of_the_file_whatever_was_fetched(start: int, length: int) -> None:
    file = opened(Store(DATA))
    file.fetch([(100, 150)])
    assert read_at(file, start, length) == DATA[start : start + length]


def test_a_fetched_range_is_not_requested_again() -> None:
    store = Store(DATA)
    file = opened(store)
    file.fetch([(100, 150)])
    assert read_at(file, 110, 40) == DATA[110:150]
    assert store.requested == [(100, 150)]


def test_a_later_fetch_replaces_what_is_held() -> None:
    store = Store(DATA)
    file = opened(store)
    file.fetch([(0, 10)])
    file.fetch([(20, 30)])
    assert read_at(file, 0, 10) == DATA[:10]
    assert store.requested == [(0, 10), (20, 30), (0, 10)]


def test_neighbours_are_one_request_and_a_long_range_is_read_in_parts_at_once() -> None:
    data = bytes(20 << 20)
    store, together = Store(data), threading.Barrier(2, timeout=30)

    def read_range(start: int, length: int) -> bytes:
        if start < 16 << 20:
            # Two of the parts must be under way at the same time.
            together.wait()
        return store.read_range(start, length)

    file = ColumnChunkFile(read_range, len(data), ThreadPoolExecutor(2))
    file.fetch([(0, 9 << 20), (9 << 20, 12 << 20), ((12 << 20) + 1000, 20 << 20)])
    assert sorted(store.requested) == [(0, 8 << 20), (8 << 20, 16 << 20), (16 << 20, 20 << 20)]
    assert len(read_at(file, 1, (20 << 20) - 1)) == (20 << 20) - 1
    assert len(store.requested) == 3


def test_only_the_chunks_of_wanted_columns_are_fetched() -> None:
    sink = io.BytesIO()
    wide = pa.table({f"c{index}": [index * 1000 + row for row in range(90_000)] for index in range(8)})
    pq.write_table(wide, sink, compression="none", use_dictionary=False, row_group_size=45_000)
    store = Store(sink.getvalue())
    file = opened(store)
    parquet = pq.ParquetFile(file, pre_buffer=True)
    footer_requests = len(store.requested)
    for index in range(parquet.num_row_groups):
        file.fetch(chunk_ranges(parquet.metadata.row_group(index), lambda path: path in {"c1", "c6"}))
        rows = parquet.read_row_group(index, columns=["c1", "c6"])
        assert rows.equals(wide.select(["c1", "c6"]).slice(index * 45_000, 45_000))
    fetched = store.requested[footer_requests:]
    assert len(fetched) == 2 * parquet.num_row_groups
    assert sum(end - start for start, end in fetched) < len(store.data) * 0.3
