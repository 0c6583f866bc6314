"""Writes small Delta tables by hand, as Delta's PROTOCOL describes them, with real data files.

A `Table` writes one commit or checkpoint at a time. It also keeps the rows that a reader must find, so that
the expected rows do not come from any reader of logs.
"""

import json
import os
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet
from support import deletion_vectors
from support.reference import Action, key
from tables.random_logs import COLUMNS, START_MS, Form, Growing, Statistics, write_lines

Row = dict[str, Any]
NAMESPACE = uuid.UUID("c0ffee00-0000-4000-8000-000000000000")
ARROW = {
    "string": pa.string(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(10,3)": pa.decimal128(10, 3),
    "variant": pa.struct(
        [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
    ),
}


@dataclass(frozen=True)
class Column:
    """A column of the schema; `physical` and `field_id` where columns are mapped."""

    name: str
    kind: str
    physical: str | None = None
    field_id: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stored_name(self) -> str:
        """The name in data files, statistics and partition values."""
        return self.physical or self.name

    def of_schema(self) -> Action:
        """The field in `schemaString`."""
        mapped = {}
        if self.field_id is not None:
            mapped["delta.columnMapping.id"] = self.field_id
            mapped["delta.columnMapping.physicalName"] = self.stored_name
        return {
            "name": self.name,
            "type": self.kind,
            "nullable": True,
            "metadata": {**mapped, **self.metadata},
        }

    def of_file(self, kind: str | None = None) -> pa.Field:
        """The field in a data file, of another type where the file is older than a type change."""
        ids = {"PARQUET:field_id": str(self.field_id)} if self.field_id is not None else None
        return pa.field(self.stored_name, ARROW[kind or self.kind], metadata=ids)


@dataclass
class Table(Growing):
    """A table that grows; `rows` are those of its live files."""

    with_sidecars: ClassVar[tuple[Form, ...]] = (*Growing.with_sidecars, "v2-classic")
    row_group_rows: ClassVar[int] = 2

    root: Path
    columns: Sequence[Column]
    partitioned_by: Sequence[str] = ()
    reader_features: Sequence[str] = ()
    writer_features: Sequence[str] = ()
    versions: tuple[int, int] = (1, 2)
    """Of the protocol, where no feature is listed."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    next_version: int = 0
    live: dict[tuple[str, str], Action] = field(default_factory=dict)
    removed: dict[tuple[str, str], Action] = field(default_factory=dict)
    others: list[Action] = field(default_factory=list)
    """Transactions and domains, for checkpoints."""
    rows_of: dict[str, list[Row]] = field(default_factory=dict)
    """The rows of each data file by its path."""
    hidden_in: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    """The rows that a live file's deletion vector hides."""

    def __post_init__(self) -> None:
        """Makes the directory; the first commit comes with the first `commit`."""
        self.log.mkdir(parents=True)

    @property
    def protocol(self) -> Action:
        """The protocol of every version."""
        if not self.reader_features and not self.writer_features:
            return {"minReaderVersion": self.versions[0], "minWriterVersion": self.versions[1]}
        features: Action = {"writerFeatures": [*self.reader_features, *self.writer_features]}
        if self.reader_features:
            features["readerFeatures"] = list(self.reader_features)
        reader = 3 if self.reader_features else self.versions[0]
        return {"minReaderVersion": reader, "minWriterVersion": 7, **features}

    @property
    def metadata(self) -> Action:
        """The metadata of every version, with the columns as they are."""
        return {
            "id": str(uuid.uuid5(NAMESPACE, self.root.parent.name)),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(
                {"type": "struct", "fields": [column.of_schema() for column in self.columns]}
            ),
            "partitionColumns": list(self.partitioned_by),
            "configuration": dict(self.configuration),
            "createdTime": START_MS,
        }

    @property
    def rows(self) -> list[Row]:
        """Every row that a reader of the latest version must find."""
        return [
            {column.name: row.get(column.name) for column in self.columns}
            for at, add in self.live.items()
            for place, row in enumerate(self.rows_of[add["path"]])
            if place not in self.hidden_in.get(at, ())
        ]

    def add(
        self,
        rows: Sequence[Row],
        *,
        partition: Mapping[str, str | None] | None = None,
        of_partition: Mapping[str, Any] | None = None,
        kinds: Mapping[str, str] | None = None,
        stats: bool = True,
        directory: str = "",
        **fields: Any,
    ) -> Action:
        """Writes a data file. Returns its add.

        `partition` has the values as the log spells them and `of_partition` as readers return them; `kinds`
        the types of columns that differ from the schema's; `fields` other fields of the action.
        """
        partition, of_partition = partition or {}, of_partition or partition or {}
        stored = [column for column in self.columns if column.name not in self.partitioned_by]
        schema = pa.schema([column.of_file((kinds or {}).get(column.name)) for column in stored])
        content = [{column.stored_name: row.get(column.name) for column in stored} for row in rows]
        name = f"{directory}part-{len(self.rows_of):05}.parquet"
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pa.Table.from_pylist(content, schema=schema), file)
        path = quote(name, safe="/=")
        self.rows_of[path] = [{**row, **of_partition} for row in rows]
        physical = {column.name: column.stored_name for column in self.columns}
        action: Action = {
            "path": path,
            "partitionValues": {physical[column]: value for column, value in partition.items()},
            "size": file.stat().st_size,
            "modificationTime": START_MS + self.next_version * 1000,
            "dataChange": True,
        }
        if stats:
            action["stats"] = json.dumps(statistics(content, stored))
        return {"add": {**action, **fields}}

    def remove(self, add: Action, *, extended: bool = True) -> Action:
        """The remove of a live file, with or without what it repeats of the add."""
        old = add["add"]
        action = {
            "path": old["path"],
            "deletionTimestamp": START_MS + self.next_version * 1000,
            "dataChange": True,
            **{name: old[name] for name in ("deletionVector",) if name in old},
        }
        if extended:
            repeated = {name: old[name] for name in ("partitionValues", "size", "tags") if name in old}
            action |= {"extendedFileMetadata": True, **repeated}
        return {"remove": action}

    def hide(self, add: Action, descriptor: Action, rows: Iterable[int], **fields: Any) -> list[Action]:
        """Replaces a file by itself with a deletion vector that hides `rows`."""
        new = {"add": {**add["add"], **fields, "deletionVector": descriptor}}
        self.hidden_in[key(new["add"])] = set(rows)
        return [self.remove(add), new]

    def commit(self, *actions: Action, info: Mapping[str, Any] | None = None) -> int:
        """Writes the next version; the first has protocol and metadata, too. Returns its number."""
        version = self.next_version
        first = [{"protocol": self.protocol}, {"metaData": self.metadata}] if version == 0 else []
        timestamp_ms = START_MS + version * 1000
        said = {"timestamp": timestamp_ms, "operation": "WRITE", "operationParameters": {}, **(info or {})}
        path = self.log / f"{version:020}.json"
        write_lines(path, [{"commitInfo": said}, *first, *actions])
        os.utime(path, ns=(timestamp_ms * 1_000_000,) * 2)
        for action in actions:
            self.take(action)
        self.next_version += 1
        return version

    def take(self, action: Action) -> None:
        """Keeps transactions and domains, too."""
        super().take(action)
        if "txn" in action or "domainMetadata" in action:
            self.others.append(action)

    @property
    def head(self) -> list[Action]:
        """Protocol and metadata with transactions and domains."""
        return [{"protocol": self.protocol}, {"metaData": self.metadata}, *self.others]

    def uuid_of(self, named: str) -> uuid.UUID:
        """The same one in each table of a name."""
        return uuid.uuid5(NAMESPACE, named)

    def add_type(self, statistics: Statistics) -> pa.StructType:
        """The type of adds in a checkpoint."""
        fields = [found for found in COLUMNS["add"] if found.name != "stats" or statistics != "typed"]
        stored = [column for column in self.columns if column.name not in self.partitioned_by]
        values = pa.struct([(column.stored_name, ARROW[column.kind]) for column in stored])
        counts = pa.struct([(column.stored_name, pa.int64()) for column in stored])
        parsed = pa.struct(
            [("numRecords", pa.int64()), ("minValues", values), ("maxValues", values), ("nullCount", counts)]
        )
        fields.append(pa.field("stats_parsed", parsed))
        if self.partitioned_by:
            kinds = [
                (column.stored_name, ARROW[column.kind])
                for column in self.columns
                if column.name in self.partitioned_by
            ]
            fields.append(pa.field("partitionValues_parsed", pa.struct(kinds)))
        return pa.struct(fields)

    def typed(self, add: Action) -> Action:
        """`stats_parsed` and `partitionValues_parsed` of an add. Partition values are strings or integers."""
        found: Action = {"stats_parsed": json.loads(add["stats"]) if add.get("stats") else None}
        if self.partitioned_by:
            kinds = {column.stored_name: column.kind for column in self.columns}
            found["partitionValues_parsed"] = {
                name: int(value) if value and kinds[name] in {"integer", "long"} else value or None
                for name, value in add["partitionValues"]
            }
        return found

    def compact_badly(self, first: int, last: int, actions: Iterable[Action] = ()) -> None:
        """Writes a log compaction file of a range of versions that lacks actions of its commits."""
        write_lines(self.log / f"{first:020}.{last:020}.compacted.json", actions)

    def checksum(self) -> None:
        """Writes the checksum file of the latest version."""
        said = {
            "tableSizeBytes": sum(add["size"] for add in self.live.values()),
            "numFiles": len(self.live),
            "numMetadata": 1,
            "numProtocol": 1,
            "metadata": self.metadata,
            "protocol": self.protocol,
        }
        (self.log / f"{self.next_version - 1:020}.crc").write_text(json.dumps(said))

    def clean_up(self, before: int) -> None:
        """Deletes the commits before a version, as log cleanup does after a checkpoint."""
        for version in range(before):
            (self.log / f"{version:020}.json").unlink()


def statistics(rows: Sequence[Row], columns: Sequence[Column]) -> Action:
    """Of a data file: the extremes of numbers and texts, the nulls of all."""
    found: Action = {"numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}}
    for column in columns:
        values = [row[column.stored_name] for row in rows]
        present = [value for value in values if value is not None]
        found["nullCount"][column.stored_name] = len(values) - len(present)
        if present and column.kind in {"byte", "short", "integer", "long", "string"}:
            found["minValues"][column.stored_name] = min(present)
            found["maxValues"][column.stored_name] = max(present)
    return found


# Deletion vectors in each of their places


def inline(rows: Iterable[int]) -> Action:
    """A descriptor that holds its vector."""
    rows = set(rows)
    content = deletion_vectors.encode(rows)
    padded = content + bytes(-len(content) % 4)
    return {
        "storageType": "i",
        "pathOrInlineDv": deletion_vectors.to_z85(padded),
        "sizeInBytes": len(content),
        "cardinality": len(rows),
    }


def in_file(
    root: Path, several: Sequence[Iterable[int] | bytes], *, prefix: str = "", absolute: bool = False
) -> list[Action]:
    """Descriptors of vectors in one file: by its UUID below the table, or by its absolute path.

    A vector is given by its rows, or as serialized bytes whose rows are then decoded.
    """
    name = uuid.uuid5(NAMESPACE, f"{root} {prefix} {absolute}")
    file = root / prefix / f"deletion_vector_{name}.bin"
    file.parent.mkdir(parents=True, exist_ok=True)
    content, found = b"\x01", []
    for rows in several:
        vector = rows if isinstance(rows, bytes) else deletion_vectors.encode(rows)
        place = file.as_uri() if absolute else prefix + deletion_vectors.to_z85(name.bytes)
        found.append(
            {
                "storageType": "p" if absolute else "u",
                "pathOrInlineDv": place,
                "offset": len(content),
                "sizeInBytes": len(vector),
                "cardinality": len(deletion_vectors.decode(vector)),
            }
        )
        content += struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    file.write_bytes(content)
    return found


def with_runs(*runs: tuple[int, int]) -> bytes:
    """A serialized vector of one bitmap with one container of runs, each a first row and a length."""
    cardinality = sum(length for _, length in runs)
    container = struct.pack("<H", len(runs)) + b"".join(
        struct.pack("<HH", first, length - 1) for first, length in runs
    )
    bitmap = (
        struct.pack("<I", deletion_vectors.RUN_COOKIE)
        + b"\x01"
        + struct.pack("<HH", 0, cardinality - 1)
        + container
    )
    return struct.pack("<IQ", deletion_vectors.MAGIC, 1) + struct.pack("<I", 0) + bitmap
