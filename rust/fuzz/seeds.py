"""Writes the seeds that are no text: deletion vectors and small checkpoints.

    python rust/fuzz/seeds.py

Needs pyarrow. The text seeds are written by hand; an input that once broke a target is kept beside them.
"""

import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

CORPUS = Path(__file__).parent / "corpus"
VECTOR_MAGIC = 1681511377
RUNS_COOKIE, ARRAYS_COOKIE = 12347, 12346

STRING_MAP = pa.map_(pa.string(), pa.string())
VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
ADD = {
    "path": pa.string(),
    "partitionValues": STRING_MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
}
BOUNDS = pa.struct({"id": pa.int64(), "name": pa.string()})
STATS = pa.struct(
    {
        "numRecords": pa.int64(),
        "minValues": BOUNDS,
        "maxValues": BOUNDS,
        "nullCount": pa.struct({"id": pa.int64(), "name": pa.int64()}),
    }
)


def main() -> None:
    """Writes all of them."""
    vectors = {
        "empty": treemap({}),
        "array": treemap({0: arrays({0: [1, 7, 4000], 3: [9]})}),
        "two_bitmaps": treemap({0: arrays({0: [5]}), 1: arrays({65535: [0, 65535]})}),
        "runs": treemap({0: runs({0: [(0, 100), (1000, 9)], 1: [(0, 65535)]})}),
    }
    for name, vector in vectors.items():
        write("deletion_vector", name, vector)
    write("deletion_vector", "file", in_file(vectors["array"]))
    write("deletion_vector", "uuid_path", b"ab^-aqEH.-t@S}K{vb[*k^")

    day = {"day": "2024-01-01"}
    file = {"partitionValues": day, "size": 10, "modificationTime": 1700000000000, "dataChange": True}
    texts = [{**file, "path": f"a{n}", "stats": '{"numRecords":3}'} for n in range(3)]
    checkpoint("strings", {"stats": pa.string()}, texts, "none")
    checkpoint("snappy", {"stats": pa.string()}, texts, "snappy")
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    delta = {"deletionVector": VECTOR, "baseRowId": pa.int64()}
    checkpoint("vectors", delta, [{**file, "path": "v", "deletionVector": vector, "baseRowId": 5}], "zstd")
    low, high = {"id": 1, "name": "a"}, {"id": 9, "name": "z"}
    stats = {"numRecords": 3, "minValues": low, "maxValues": high, "nullCount": {"id": 0, "name": 1}}
    checkpoint("typed_stats", {"stats_parsed": STATS}, [{**file, "path": "t", "stats_parsed": stats}], "none")


def write(target: str, name: str, content: bytes) -> None:
    """A seed of a target."""
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    (CORPUS / target / name).write_bytes(content)


def treemap(bitmaps: dict[int, bytes]) -> bytes:
    """A deletion vector: the 32-bit bitmaps by the upper half of their row numbers."""
    parts = [struct.pack("<I", key) + bitmap for key, bitmap in bitmaps.items()]
    return struct.pack("<IQ", VECTOR_MAGIC, len(bitmaps)) + b"".join(parts)


def arrays(containers: dict[int, list[int]]) -> bytes:
    """A bitmap of array containers (RoaringFormatSpec)."""
    offset = 8 + 8 * len(containers)
    keys = offsets = values = b""
    for key, lows in containers.items():
        keys += struct.pack("<HH", key, len(lows) - 1)
        offsets += struct.pack("<I", offset + len(values))
        values += struct.pack(f"<{len(lows)}H", *lows)
    return struct.pack("<II", ARRAYS_COOKIE, len(containers)) + keys + offsets + values


def runs(containers: dict[int, list[tuple[int, int]]]) -> bytes:
    """A bitmap of fewer than four run containers: those have no offsets."""
    keys = values = b""
    for key, spans in containers.items():
        keys += struct.pack("<HH", key, sum(length + 1 for _, length in spans) - 1)
        values += struct.pack("<H", len(spans)) + b"".join(struct.pack("<HH", *span) for span in spans)
    cookie = RUNS_COOKIE | (len(containers) - 1) << 16
    return struct.pack("<IB", cookie, (1 << len(containers)) - 1) + keys + values


def in_file(vector: bytes) -> bytes:
    """A deletion vector file."""
    return b"\x01" + struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))


def checkpoint(name: str, more: dict[str, pa.DataType], adds: list[dict[str, object]], codec: str) -> None:
    """A classic checkpoint: a protocol, a metaData and adds, whose columns are the common ones and `more`."""
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet"},
        "schemaString": '{"type":"struct","fields":[]}',
        "partitionColumns": ["day"],
        "configuration": {},
    }
    schema = pa.schema(
        {
            "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
            "metaData": pa.struct(
                {
                    "id": pa.string(),
                    "format": pa.struct({"provider": pa.string()}),
                    "schemaString": pa.string(),
                    "partitionColumns": pa.list_(pa.string()),
                    "configuration": STRING_MAP,
                }
            ),
            "add": pa.struct({**ADD, **more}),
        }
    )
    rows = [{"protocol": protocol}, {"metaData": metadata}, *({"add": add} for add in adds)]
    table = pa.Table.from_pylist(rows, schema=schema)
    sink = pa.BufferOutputStream()
    # Short files leave more mutations for what matters: no Arrow schema, no statistics, no dictionaries.
    pq.write_table(
        table, sink, compression=codec, store_schema=False, write_statistics=False, use_dictionary=False
    )
    write("checkpoint", name, sink.getvalue().to_pybytes())


if __name__ == "__main__":
    main()
