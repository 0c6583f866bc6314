"""Parquet read from a file over HTTP by ranges."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.spark.read.column_chunks import ColumnChunkFile, connections


def test_a_ranged_file_reads_parquet_piece_by_piece() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": list(range(1000)), "b": ["x" * 100] * 1000}), sink, compression="none")
    data = sink.getvalue()
    requested = 0

    def read_range(start: int, length: int) -> bytes:
        nonlocal requested
        requested += length
        return data[start : start + length]

    source = ColumnChunkFile(read_range, len(data), connections())
    file = pq.ParquetFile(pa.PythonFile(source, mode="r"), pre_buffer=True)
    assert file.read(columns=["a"]).column("a").to_pylist() == list(range(1000))
    assert requested < 2 * len(data)
