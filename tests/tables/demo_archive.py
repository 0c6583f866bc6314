"""Writes the demo's three small Delta tables, without Spark, as the archive that the package has.

    python tests/tables/demo_archive.py

Out: tables for every Delta reader: `cities` is partitioned by values that need escapes in a path, `readings`
has a deletion vector, `orders` has a change data feed. This module writes log and statistics by Delta's
PROTOCOL, and polars writes the data files. Each run writes the same bytes.
"""

import io
import itertools
import json
import tempfile
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from gateway._native import encode_deletion_vector
from gateway.demo.tables import ARCHIVE, WRITTEN_SECONDS

Action = dict[str, dict[str, Any]]
"""One line of a commit: the action's name and its fields."""

_COMMITS_APART_SECONDS = 60
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED_IN_DIRECTORIES = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}
_KEPT_IN_PATHS = "/=+,:@!$&'()~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

_DELTA_TYPES: Mapping[Any, str] = {
    pl.Int64(): "long",
    pl.Float64(): "double",
    pl.String(): "string",
    pl.Date(): "date",
    pl.Datetime("us", "UTC"): "timestamp",
}


def main() -> None:
    """Write the archive."""
    ARCHIVE.write_bytes(archive())


def archive() -> bytes:
    """Return the archive of all tables."""
    with tempfile.TemporaryDirectory() as directory:
        root, content = Path(directory), io.BytesIO()
        lay_out(root)
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as written:
            for path in sorted(filter(Path.is_file, root.rglob("*"))):
                # The name alone: an archive has the same bytes whenever it is written.
                entry = zipfile.ZipInfo(path.relative_to(root).as_posix())
                entry.compress_type = zipfile.ZIP_DEFLATED
                written.writestr(entry, path.read_bytes())
        return content.getvalue()


def lay_out(directory: Path) -> None:
    """Write the tables below an empty directory. The commits of each are a minute apart."""
    lay_out_cities(Table.create(directory / "cities"))
    lay_out_readings(Table.create(directory / "readings"))
    lay_out_orders(Table.create(directory / "orders"))


def lay_out_cities(table: "Table") -> None:
    """Write a table whose partition values have blanks, `%`, `+`, `=`, `/`, non-ASCII letters, and null."""
    cities = pl.DataFrame(
        {
            "city": ["Zürich", "Genève", "São Paulo", "東京", "Reykjavík", "Lagos", "Atlantis", "Ys"],
            "inhabitants": [436_000, 206_000, 11_452_000, 14_178_000, 140_000, 15_388_000, None, 0],
            "founded": [date(1218, 1, 1), None, date(1554, 1, 25), date(1457, 1, 1), *[None] * 4],
            "region": ["Alps + lakes", "Alps + lakes", "100% coast", "日本", "64°=N", "a/b", None, None],
        },
        schema={"city": pl.String, "inhabitants": pl.Int64, "founded": pl.Date, "region": pl.String},
    )
    metadata = metadata_action("cities", cities.schema, partition_columns=["region"])
    european, others = cities.slice(0, 2), cities.slice(2)
    first = table.adds(european, partitioned_by="region")
    table.commit("WRITE", [protocol_action(1, 2), metadata, *first])
    table.commit("WRITE", table.adds(others, partitioned_by="region"))


def lay_out_readings(table: "Table") -> None:
    """Write a table of two files; a deletion vector deletes three rows of the first."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    readings = pl.DataFrame(
        {
            "sensor": [f"roof-{number % 3}" for number in range(12)],
            "at": [start.replace(hour=number) for number in range(12)],
            "celsius": [-0.5, 0.0, 1.25, None, 3.5, 4.0, 5.5, 6.0, 7.25, 7.0, 6.5, 5.0],
        },
        schema={"sensor": pl.String, "at": pl.Datetime("us", "UTC"), "celsius": pl.Float64},
    )
    feature = ["deletionVectors"]
    protocol = protocol_action(3, 7, readerFeatures=feature, writerFeatures=feature)
    metadata = metadata_action("readings", readings.schema, {"delta.enableDeletionVectors": "true"})
    (first,), (second,) = table.adds(readings.slice(0, 8)), table.adds(readings.slice(8))
    table.commit("WRITE", [protocol, metadata, first, second])
    hidden = table.with_deletion_vector(first["add"], rows=[1, 3, 6])
    table.commit("DELETE", [table.remove(first), hidden])


def lay_out_orders(table: "Table") -> None:
    """Write an insert, an update and a delete with their change files, and an insert that needs none."""
    schema = {"order": pl.Int64, "customer": pl.String, "amount": pl.Float64}
    orders = pl.DataFrame(
        {
            "order": [1, 2, 3, 4],
            "customer": ["ann", "bob", "cyd", "ann"],
            "amount": [10.0, 20.0, 30.0, 40.0],
        },
        schema=schema,
    )
    metadata = metadata_action("orders", orders.schema, {"delta.enableChangeDataFeed": "true"})
    (inserted,) = table.adds(orders)
    table.commit("WRITE", [protocol_action(1, 4), metadata, inserted])

    is_second = pl.col("order") == 2
    after = orders.with_columns(amount=pl.when(is_second).then(25.0).otherwise("amount"))
    preimage = changed(orders.filter(is_second), "update_preimage")
    postimage = changed(after.filter(is_second), "update_postimage")
    (updated,) = table.adds(after)
    change = table.change_file(pl.concat([preimage, postimage]))
    table.commit("UPDATE", [table.remove(inserted), updated, change])

    is_cyds = pl.col("customer") == "cyd"
    deleted = after.filter(is_cyds)
    (left,) = table.adds(after.filter(~is_cyds))
    table.commit("DELETE", [table.remove(updated), left, table.change_file(changed(deleted, "delete"))])
    more = pl.DataFrame({"order": [5], "customer": ["dee"], "amount": [50.0]}, schema=schema)
    table.commit("WRITE", table.adds(more))


def changed(rows: pl.DataFrame, change_type: str) -> pl.DataFrame:
    """Return rows of a change file (PROTOCOL, section Change Data Files)."""
    return rows.with_columns(_change_type=pl.lit(change_type))


@dataclass
class Table:
    """A table that is being written, with the version and time of the next commit."""

    root: Path
    numbers: Iterator[int]
    commit_seconds: float = WRITTEN_SECONDS
    version: int = 0

    @staticmethod
    def create(root: Path) -> "Table":
        """Create a table without commits."""
        (root / "_delta_log").mkdir(parents=True)
        return Table(root, itertools.count())

    def identifier(self) -> uuid.UUID:
        """Return the next identifier of a file."""
        name = f"https://delta-sharing-gateway/demo/{self.root.name}/{next(self.numbers)}"
        return uuid.uuid5(uuid.NAMESPACE_URL, name)

    def commit(self, operation: str, actions: Iterable[Action]) -> None:
        """Write the next commit; its file has the modification time of the commit."""
        info: Action = {
            "commitInfo": {
                "timestamp": self.commit_ms,
                "operation": operation,
                "operationParameters": {},
                "engineInfo": "delta-sharing-gateway demo",
            }
        }
        lines = [json.dumps(action, separators=(",", ":")) for action in [info, *actions]]
        path = self.root / "_delta_log" / f"{self.version:020}.json"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self.version += 1
        self.commit_seconds += _COMMITS_APART_SECONDS

    @property
    def commit_ms(self) -> int:
        """Return the next commit's timestamp."""
        return int(self.commit_seconds * 1000)

    def adds(self, rows: pl.DataFrame, *, partitioned_by: str | None = None) -> list[Action]:
        """Write a data file for each value of the partition column, or one for all rows."""
        if partitioned_by is None:
            return [self._add(rows, "", {})]
        actions = []
        for (value,), part in rows.partition_by(
            partitioned_by, as_dict=True, include_key=False, maintain_order=True
        ).items():
            directory = f"{partitioned_by}={hive_escape(value)}/"
            actions.append(self._add(part, directory, {partitioned_by: value}))
        return actions

    def _add(self, rows: pl.DataFrame, directory: str, values: Mapping[str, str | None]) -> Action:
        written = self._write(rows, directory, "part")
        fields = {"partitionValues": dict(values), "modificationTime": self.commit_ms, "dataChange": True}
        return {"add": {**written, **fields, "stats": statistics(rows)}}

    def change_file(self, rows: pl.DataFrame) -> Action:
        """Write a change file with the rows that a commit changed, and return its action."""
        return {
            "cdc": {**self._write(rows, "_change_data/", "cdc"), "partitionValues": {}, "dataChange": False}
        }

    def remove(self, added: Action) -> Action:
        """Return the remove action of a file that an earlier commit added."""
        add = added["add"]
        fields = {"deletionTimestamp": self.commit_ms, "dataChange": True, "extendedFileMetadata": True}
        return {"remove": {name: add[name] for name in ("path", "partitionValues", "size")} | fields}

    def with_deletion_vector(self, add: Mapping[str, Any], *, rows: list[int]) -> Action:
        """Delete rows of a file: it is added again, with a vector (PROTOCOL, section Deletion Vectors)."""
        identifier = self.identifier()
        content = encode_deletion_vector(rows)
        (self.root / f"deletion_vector_{identifier}.bin").write_bytes(content)
        before, after = 5, 4  # the file's version byte and the vector's size; its checksum
        descriptor = {
            "storageType": "u",
            "pathOrInlineDv": z85(identifier.bytes),
            "offset": 1,
            "sizeInBytes": len(content) - before - after,
            "cardinality": len(rows),
        }
        stats = json.dumps({**json.loads(add["stats"]), "tightBounds": False}, ensure_ascii=False)
        fields = {"deletionVector": descriptor, "stats": stats, "modificationTime": self.commit_ms}
        return {"add": {**add, **fields}}

    def _write(self, rows: pl.DataFrame, directory: str, kind: str) -> dict[str, Any]:
        relative = f"{directory}{kind}-00000-{self.identifier()}-c000.snappy.parquet"
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        rows.write_parquet(path, compression="snappy")
        return {"path": quote(relative, safe=_KEPT_IN_PATHS), "size": path.stat().st_size}


def protocol_action(min_reader_version: int, min_writer_version: int, **features: list[str]) -> Action:
    """Return the protocol action."""
    versions = {"minReaderVersion": min_reader_version, "minWriterVersion": min_writer_version}
    return {"protocol": {**versions, **features}}


def metadata_action(
    name: str,
    schema: pl.Schema,
    configuration: Mapping[str, str] | None = None,
    *,
    partition_columns: list[str] | None = None,
) -> Action:
    """Return the metaData action. The id is derived from the name, so a repeated demo keeps it."""
    fields = [
        {"name": column, "type": _DELTA_TYPES[kind], "nullable": True, "metadata": {}}
        for column, kind in schema.items()
    ]
    return {
        "metaData": {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"https://delta-sharing-gateway/demo/{name}")),
            "name": name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}, separators=(",", ":")),
            "partitionColumns": partition_columns or [],
            "configuration": dict(configuration or {}),
        }
    }


def statistics(rows: pl.DataFrame) -> str:
    """Return the statistics of a data file (PROTOCOL, section Per-file Statistics)."""
    bounded = [column for column in rows.columns if rows[column].drop_nulls().len()]
    stats = {
        "numRecords": rows.height,
        "minValues": {column: in_json(rows[column].min()) for column in bounded},
        "maxValues": {column: in_json(rows[column].max()) for column in bounded},
        "nullCount": {column: rows[column].null_count() for column in rows.columns},
        "tightBounds": True,
    }
    return json.dumps(stats, ensure_ascii=False, separators=(",", ":"))


def in_json(value: Any) -> Any:
    """Return a bound of statistics: dates as `yyyy-mm-dd`, timestamps in UTC to the millisecond."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return value.isoformat() if isinstance(value, date) else value


def hive_escape(value: str | None) -> str:
    """Return the directory name of a partition value, as Hive and Spark write it."""
    if value is None:
        return _NULL_PARTITION
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED_IN_DIRECTORIES else char for char in value)


def z85(content: bytes) -> str:
    """Encode in ZeroMQ's base 85, as deletion vectors are. The length of `content` is a multiple of four."""
    words = [int.from_bytes(content[at : at + 4], "big") for at in range(0, len(content), 4)]
    return "".join(_Z85[word // 85**place % 85] for word in words for place in (4, 3, 2, 1, 0))


if __name__ == "__main__":
    main()
