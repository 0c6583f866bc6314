"""Makes Delta logs without data files, for benches and load tests.

    python bench/make_log.py DIRECTORY --adds 1000000 [--checkpoint classic|multipart|v2|none] [--parsed]
                             [--writer deltalake] [--deletion-vectors 0.1] [--commits 10] [--seed 7]

The table is partitioned by `date` (365 days) and `region` (10), each add carries about 250 bytes of stats
over four columns. Commits after the checkpoint add and remove a few files. `expected.json` beside the log has
what every reader must find: files, bytes, and the sum of the MD5 of the live paths modulo 2**128, which does
not depend on their order. The same arguments make the same log.
"""

import argparse
import datetime as dt
import hashlib
import json
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

WRITERS = ("deltalake", "delta-spark", "delta-spark stats_parsed", "delta-spark zstd")
DAYS = 365
REGIONS = [f"region-{number}" for number in range(10)]
FIRST_DAY = dt.date(2025, 1, 1)
DAY_TEXTS = [str(FIRST_DAY + dt.timedelta(days=number)) for number in range(DAYS)]
EPOCH_MS = 1_760_000_000_000
ROWS_PER_GROUP = 100_000
PART_ROWS = 500_000
ADDS_WORTH_PROCESSES = 1_000_000
MODULUS = 1 << 128

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in [
            ("id", "long"),
            ("value", "double"),
            ("name", "string"),
            ("ts", "timestamp"),
            ("date", "date"),
            ("region", "string"),
        ]
    ],
}

UTC_MICROS = pa.timestamp("us", tz="UTC")
STATS_VALUES = pa.struct({"id": pa.int64(), "value": pa.float64(), "name": pa.string(), "ts": UTC_MICROS})
NULL_COUNTS = pa.struct(dict.fromkeys(("id", "value", "name", "ts"), pa.int64()))
TEXT_MAP = pa.map_(pa.string(), pa.string())
VECTOR_TYPE = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
ADD_FIELDS = {
    "path": pa.string(),
    "partitionValues": TEXT_MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "tags": TEXT_MAP,
    "deletionVector": VECTOR_TYPE,
}
PARSED_FIELDS = {
    "partitionValues_parsed": pa.struct({"date": pa.date32(), "region": pa.string()}),
    "stats_parsed": pa.struct(
        {
            "numRecords": pa.int64(),
            "minValues": STATS_VALUES,
            "maxValues": STATS_VALUES,
            "nullCount": NULL_COUNTS,
        }
    ),
}
ACTION_TYPES = {
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64()}),
    "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
    "metaData": pa.struct(
        {
            "id": pa.string(),
            "format": pa.struct({"provider": pa.string(), "options": TEXT_MAP}),
            "schemaString": pa.string(),
            "partitionColumns": pa.list_(pa.string()),
            "configuration": TEXT_MAP,
            "createdTime": pa.int64(),
        }
    ),
    "protocol": pa.struct(
        {
            "minReaderVersion": pa.int32(),
            "minWriterVersion": pa.int32(),
            "readerFeatures": pa.list_(pa.string()),
            "writerFeatures": pa.list_(pa.string()),
        }
    ),
}


@dataclass(frozen=True)
class LogOptions:
    """The options of a log; the same options make the same log."""

    adds: int
    checkpoint: str = "classic"
    parsed: bool = False
    clustered: bool = False
    deletion_vectors: float = 0.0
    commits: int = 10
    adds_per_commit: int = 10
    """A commit removes half as many."""
    writer: str = ""
    """Writes the checkpoint, which has the form `checkpoint` otherwise: one of WRITERS."""
    seed: int = 7


class Totals:
    """The files, bytes and digest that a reader must find."""

    def __init__(self) -> None:
        self.files = 0
        self.size = 0
        self.digest = 0
        self.text_bytes = 0
        """Of paths and statistics."""

    def count(self, add: dict[str, Any], sign: int = 1) -> None:
        """Add a file, or take it away with sign -1."""
        self.files += sign
        self.size += sign * add["size"]
        self.text_bytes += sign * (len(add["path"]) + len(add["stats"]))
        self.digest += sign * int.from_bytes(hashlib.md5(add["path"].encode()).digest())
        self.digest %= MODULUS

    def include(self, other: "Totals") -> None:
        """Add the files of other totals."""
        self.files += other.files
        self.size += other.size
        self.digest = (self.digest + other.digest) % MODULUS
        self.text_bytes += other.text_bytes


def make_adds(options: LogOptions, start: int, count: int, wanted: int | None = None) -> list[dict[str, Any]]:
    """Return the adds from `start` to `start + count`, which depend on seed, `start` and `count` alone.

    With `wanted` the first ones of them.
    """
    draw = random.Random(f"{options.seed}/{start}")
    names = draw.randbytes(16 * count).hex()
    return [
        make_add(options, start + index, names[32 * index : 32 * index + 32], draw.random())
        for index in range(count)[:wanted]
    ]


def make_add(options: LogOptions, number: int, name: str, chance: float) -> dict[str, Any]:
    day_number = number * DAYS // max(options.adds, 1) if options.clustered else number
    day = DAY_TEXTS[day_number % DAYS]
    region = REGIONS[(number // DAYS) % len(REGIONS)]
    identity = f"{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:]}"
    low, high, millis = number * 1000, number * 1000 + 999, number % 1000
    # Five times as fast as an encoder of JSON.
    stats = (
        f'{{"numRecords":1000,"minValues":{{"id":{low},"value":{low / 8},"name":"n{low:012d}",'
        f'"ts":"{day}T00:00:00.{millis:03d}Z"}},"maxValues":{{"id":{high},"value":{high / 8},'
        f'"name":"n{high:012d}","ts":"{day}T23:59:59.{millis:03d}Z"}},'
        f'"nullCount":{{"id":0,"value":{number % 7},"name":0,"ts":0}}}}'
    )
    add = {
        "path": f"date={day}/region={region}/part-{number % 100000:05d}-{identity}.c000.snappy.parquet",
        "partitionValues": {"date": day, "region": region},
        "size": 1_000_000 + (number * 7919) % 100_000_000,
        "modificationTime": EPOCH_MS + number % 1_000_000,
        "dataChange": True,
        "stats": stats,
    }
    if chance < options.deletion_vectors:
        add["deletionVector"] = {
            "storageType": "u",
            "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
            "offset": 1 + 40 * millis,
            "sizeInBytes": 36,
            "cardinality": 2,
        }
    return add


def parsed_values(name: str, add: dict[str, Any]) -> dict[str, Any]:
    """Return `partitionValues_parsed` or `stats_parsed` of an add, as Spark writes them beside strings."""
    if name == "partitionValues_parsed":
        values = add["partitionValues"]
        return {**values, "date": dt.date.fromisoformat(values["date"])}
    stats = json.loads(add["stats"])
    for bound in ("minValues", "maxValues"):
        stats[bound]["ts"] = dt.datetime.fromisoformat(stats[bound]["ts"])
    return stats


def arrow_array(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of Python values, whose maps are dictionaries."""

    def plain(value: Any, kind: pa.DataType) -> Any:
        if value is None:
            return None
        if pa.types.is_map(kind):
            return list(value.items())
        if pa.types.is_struct(kind):
            return {field.name: plain(value.get(field.name), field.type) for field in kind}
        return value

    if pa.types.is_nested(kind):
        values = (plain(value, kind) for value in values)
    return pa.array(list(values), type=kind)


def add_column(options: LogOptions, adds: list[dict[str, Any]], nulls: int) -> pa.StructArray:
    """Return the `add` column of a checkpoint, with `nulls` empty rows first."""
    fields = ADD_FIELDS | (PARSED_FIELDS if options.parsed else {})
    children = []
    for name, kind in fields.items():
        values = (parsed_values(name, add) if name in PARSED_FIELDS else add.get(name) for add in adds)
        children.append(arrow_array([*([None] * nulls), *values], kind))
    mask = pa.array([True] * nulls + [False] * len(adds))
    return pa.StructArray.from_arrays(
        children, fields=[pa.field(*field) for field in fields.items()], mask=mask
    )


def protocol_of(options: LogOptions) -> dict[str, Any]:
    features = ["deletionVectors"] if options.deletion_vectors else []
    if options.checkpoint == "v2":
        features.append("v2Checkpoint")
    if not features:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }


def metadata_of(options: LogOptions) -> dict[str, Any]:
    return {
        "id": str(uuid.UUID(int=random.Random(options.seed).getrandbits(128))),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA, separators=(",", ":")),
        "partitionColumns": ["date", "region"],
        "configuration": (
            {"delta.checkpoint.writeStatsAsStruct": "true"} if "stats_parsed" in options.writer else {}
        ),
        "createdTime": EPOCH_MS,
    }


Head = list[tuple[str, dict[str, Any]]]


def write_part(
    path: Path, options: LogOptions, span: tuple[int, int], totals: Totals, head: Head | None = None
) -> None:
    """Write a Parquet file of a checkpoint: the actions of `head`, then the adds of `span`."""
    writer = None
    for table, counted in row_groups(options, *span, head or []):
        totals.include(counted)
        writer = writer or pq.ParquetWriter(
            path,
            table.schema,
            compression="snappy",
            # As Spark does.
            write_page_checksum=True,
        )
        writer.write_table(table, row_group_size=len(table))
    if writer is not None:
        writer.close()


def row_groups(options: LogOptions, start: int, end: int, head: Head) -> Iterator[tuple[pa.Table, Totals]]:
    """Make the row groups in order; those of a large file by one process for each CPU."""
    begins = range(start, end, ROWS_PER_GROUP)
    spans = [(begin, min(begin + ROWS_PER_GROUP, end)) for begin in begins]
    heads = [head, *([] for _ in spans[1:])]
    if end - start < ADDS_WORTH_PROCESSES:
        yield from map(partial(row_group, options), spans, heads)
        return
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        # As many at a time as there are workers: a hundred row groups do not fit into memory.
        for first in range(0, len(spans), workers):
            some = slice(first, first + workers)
            yield from pool.map(partial(row_group, options), spans[some], heads[some])


def row_group(options: LogOptions, span: tuple[int, int], head: Head) -> tuple[pa.Table, Totals]:
    totals = Totals()
    adds = [add for part in spans_of(options, *span, totals) for add in part]
    columns: dict[str, pa.Array] = {"add": add_column(options, adds, len(head))}
    for name, kind in ACTION_TYPES.items():
        values = [action if key == name else None for key, action in head] + [None] * len(adds)
        columns[name] = arrow_array(values, kind)
    return pa.table(columns), totals


def spans_of(options: LogOptions, start: int, end: int, totals: Totals) -> Iterator[list[dict[str, Any]]]:
    """Make the adds of a span in pieces of a row group."""
    for begin in range(start, end, ROWS_PER_GROUP):
        adds = make_adds(options, begin, min(ROWS_PER_GROUP, end - begin))
        for add in adds:
            totals.count(add)
        yield adds


def write_checkpoint(log: Path, options: LogOptions, totals: Totals) -> None:
    """Write the checkpoint of version 0 in the chosen form."""
    head = [("protocol", protocol_of(options)), ("metaData", metadata_of(options))]
    name = f"{0:020d}.checkpoint"
    hint = {"version": 0, "size": options.adds + 2}
    spans = [
        (start, min(start + PART_ROWS, options.adds)) for start in range(0, max(options.adds, 1), PART_ROWS)
    ]
    if options.checkpoint == "classic":
        write_part(log / f"{name}.parquet", options, (0, options.adds), totals, head)
    elif options.checkpoint == "multipart":
        hint["parts"] = len(spans)
        for number, (start, end) in enumerate(spans, 1):
            part = log / f"{name}.{number:010d}.{len(spans):010d}.parquet"
            write_part(part, options, (start, end), totals, head if number == 1 else None)
    else:
        (log / "_sidecars").mkdir(exist_ok=True)
        actions: list[dict[str, Any]] = [{"checkpointMetadata": {"version": 0}}]
        actions += [{key: value} for key, value in head]
        for number, (start, end) in enumerate(spans):
            file = log / "_sidecars" / f"{uuid.UUID(int=options.seed * 1000 + number)}.parquet"
            write_part(file, options, (start, end), totals)
            size = file.stat().st_size
            actions.append(
                {"sidecar": {"path": file.name, "sizeInBytes": size, "modificationTime": EPOCH_MS}}
            )
        write_lines(log / f"{name}.{uuid.UUID(int=options.seed)}.json", actions)
    (log / "_last_checkpoint").write_text(json.dumps(hint))


def write_lines(path: Path, actions: Iterable[dict[str, Any]]) -> None:
    """Write a commit, or the JSON file of a v2 checkpoint."""
    with path.open("w") as file:
        file.writelines(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)


def removal(add: dict[str, Any], version: int) -> dict[str, Any]:
    """Return the remove of a file."""
    kept = {key: add[key] for key in ("path", "partitionValues", "size", "deletionVector") if key in add}
    extra = {"deletionTimestamp": EPOCH_MS + version, "dataChange": True, "extendedFileMetadata": True}
    return {"remove": kept | extra}


def write_commits(log: Path, options: LogOptions, totals: Totals) -> None:
    """Write the commits after the checkpoint: each adds new files and removes some of the first ones."""
    adds, removes = options.adds_per_commit, options.adds_per_commit // 2
    first = make_adds(options, 0, min(options.adds, ROWS_PER_GROUP), options.commits * removes)
    for version in range(1, options.commits + 1):
        added = make_adds(options, options.adds + version * adds, adds)
        removed = first[(version - 1) * removes : version * removes]
        for add in added:
            totals.count(add)
        for add in removed:
            totals.count(add, -1)
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"timestamp": EPOCH_MS + version, "operation": "WRITE"}}
        ]
        actions += [{"add": add} for add in added]
        actions += [removal(add, version) for add in removed]
        write_lines(log / f"{version:020d}.json", actions)


def make_log(directory: Path, options: LogOptions) -> dict[str, Any]:
    """Make the log and `expected.json`, unless the directory has them for the same options."""
    expected_file = directory / "expected.json"
    if expected_file.exists():
        known: dict[str, Any] = json.loads(expected_file.read_text())
        if known["options"] == asdict(options) and "text_bytes" in known:
            return known
    log = directory / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    totals = Totals()
    head: list[dict[str, Any]] = [{"protocol": protocol_of(options)}, {"metaData": metadata_of(options)}]
    if options.checkpoint == "none" or options.writer:
        adds = (add for span in spans_of(options, 0, options.adds, totals) for add in span)
        write_lines(log / f"{0:020d}.json", (*head, *({"add": add} for add in adds)))
    if options.writer:
        script = [str(Path(__file__).with_name("writers.py")), str(directory), *options.writer.split()]
        subprocess.run([sys.executable, *script], check=True)
    elif options.checkpoint != "none":
        write_checkpoint(log, options, totals)
    if options.writer or options.checkpoint != "none":
        # The commit under a checkpoint is never read for its files, so it may hold none of them.
        write_lines(log / f"{0:020d}.json", head)
    write_commits(log, options, totals)
    expected = {
        "options": asdict(options),
        "version": options.commits,
        "files": totals.files,
        "size": totals.size,
        "digest": f"{totals.digest:032x}",
        "text_bytes": totals.text_bytes,
    }
    expected_file.write_text(json.dumps(expected))
    return expected


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Makes a Delta log without data files.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--adds", type=int, default=1_000_000)
    parser.add_argument("--checkpoint", choices=["classic", "multipart", "v2", "none"], default="classic")
    parser.add_argument("--parsed", action="store_true", help="with partitionValues_parsed and stats_parsed")
    parser.add_argument("--clustered", action="store_true", help="adds ordered by date")
    parser.add_argument("--deletion-vectors", type=float, default=0.0, help="share of files that have one")
    parser.add_argument("--commits", type=int, default=10)
    parser.add_argument("--adds-per-commit", type=int, default=10)
    parser.add_argument("--writer", choices=WRITERS, default="", help="who writes the checkpoint")
    parser.add_argument("--seed", type=int, default=7)
    arguments = vars(parser.parse_args())
    directory = arguments.pop("directory")
    print(json.dumps(make_log(directory, LogOptions(**arguments))))


if __name__ == "__main__":
    main()
