"""A large file is read in little memory, measured in a separate process over a real socket."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.plain_server import PlainServer

FILE_BYTES = 256 << 20
COLUMNS = 4
ROW_BYTES = 64
READER = """
import json, sys
from gateway.client.actions import DataFile, FileKind, TableHead
from gateway.client.pages import Query
from gateway.client.table_name import TableName
from gateway.spark.read.decode import FileDecoder, TableShape
from gateway.client.files import FileFetcher, Origin
from gateway.spark.read.reading import parquet_source
from gateway.client.profile import Profile
from gateway.spark.read.schema import delta_schema

def peak():
    # What getrusage says holds the memory of the process that started this one.
    (line,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10

url, size = sys.argv[1], int(sys.argv[2])
column = {"type": "binary", "nullable": True, "metadata": {}}
fields = [{"name": f"c{i}", **column} for i in range(int(sys.argv[3]))]
head = TableHead(json.dumps({"type": "struct", "fields": fields}), (), {})
file = DataFile(FileKind.SNAPSHOT, "a", url, size, {})
origin = Origin(Profile("http://h", "t"), TableName("s", "d", "t"), Query(), 0)
decoder = FileDecoder(TableShape.of(head), delta_schema(head))
before = peak()
rows = 0
for batch in decoder.batches(parquet_source(FileFetcher(origin, [file]), file), {}):
    rows += batch.num_rows
print(json.dumps({"rows": rows, "bytes": peak() - before}))
"""


@pytest.fixture
def server() -> Iterator[PlainServer]:
    serving = PlainServer({})
    yield serving
    serving.close()


@pytest.mark.processes
@pytest.mark.parametrize("groups", [8, 1], ids=["several row groups", "one row group"])
def test_a_file_is_not_held_whole(server: PlainServer, tmp_path: Path, groups: int) -> None:
    path = tmp_path / "large.parquet"
    rows = write(path, groups)
    size = path.stat().st_size
    assert size > FILE_BYTES
    done = subprocess.run(
        [sys.executable, "-P", "-c", READER, f"{server.url}/files{path}", str(size), str(COLUMNS)],
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    assert found["rows"] == rows
    assert found["bytes"] < FILE_BYTES / 2, found


def write(path: Path, groups: int) -> int:
    """Random bytes, which nothing compresses, in so many row groups. The number of rows."""
    rows = FILE_BYTES // (COLUMNS * ROW_BYTES)
    kind = pa.binary(ROW_BYTES)
    names = [f"c{index}" for index in range(COLUMNS)]
    schema = pa.schema([(name, kind) for name in names])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for _ in range(groups):
            count = rows // groups
            columns = [
                pa.Array.from_buffers(kind, count, [None, pa.py_buffer(os.urandom(count * ROW_BYTES))])
                for _ in names
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=count)
    return rows // groups * groups
