"""Tables written by deltalake (delta-rs on PyPI). Run as a program, since that writer may abort as it ends.

python by_deltalake.py DIRECTORY    writes DIRECTORY/NAME/delta and DIRECTORY/NAME/rows, the expected rows
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from deltalake import DeltaTable, write_deltalake

PARTS = ["a b", "50%", "ü/x", None] * 5
ROWS = pa.table({"id": list(range(20)), "part": PARTS, "value": [n / 3 for n in range(20)]})


def every_operation(root: str) -> pa.Table:
    """Appends, delete, update, checkpoint, compaction, merge."""
    write_deltalake(root, ROWS, partition_by=["part"])
    write_deltalake(root, ROWS.slice(0, 5), mode="append")
    DeltaTable(root).delete("id = 3")
    DeltaTable(root).update(updates={"value": "0.5"}, predicate="id = 4")
    DeltaTable(root).create_checkpoint()
    write_deltalake(root, ROWS.slice(5, 5), mode="append")
    DeltaTable(root).optimize.compact()
    source = pa.table({"id": [1, 500], "part": ["merged", "merged"], "value": [9.0, 9.0]})
    merge = DeltaTable(root).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    kept = [row for row in [*ROWS.to_pylist(), *ROWS.slice(0, 10).to_pylist()] if row["id"] != 3]
    for row in kept:
        if row["id"] == 4:
            row["value"] = 0.5
        if row["id"] == 1:
            row |= {"part": "merged", "value": 9.0}
    return pa.Table.from_pylist([*kept, {"id": 500, "part": "merged", "value": 9.0}], schema=ROWS.schema)


def overwritten(root: str) -> pa.Table:
    """An overwrite with another schema after a checkpoint."""
    write_deltalake(root, ROWS)
    DeltaTable(root).create_checkpoint()
    other = pa.table({"id": [1, 2], "text": ["x", None]})
    write_deltalake(root, other, mode="overwrite", schema_mode="overwrite")
    return other


def change_data_feed(root: str) -> pa.Table:
    """A feed of changes, with its files."""
    write_deltalake(root, ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    DeltaTable(root).delete("id >= 10")
    return ROWS.slice(0, 10)


def restored(root: str) -> pa.Table:
    """A table that went back to its first version."""
    write_deltalake(root, ROWS)
    write_deltalake(root, ROWS.slice(0, 1), mode="append")
    DeltaTable(root).restore(0)
    return ROWS


def without_time_zone(root: str) -> pa.Table:
    """A feature that the writer itself demands."""
    rows = pa.table({"id": [1, 2], "at": pa.array([0, None], pa.timestamp("us"))})
    write_deltalake(root, rows)
    DeltaTable(root).create_checkpoint()
    return rows


TABLES: dict[str, Callable[[str], pa.Table]] = {
    "deltalake-every-operation": every_operation,
    "deltalake-overwritten": overwritten,
    "deltalake-change-data-feed": change_data_feed,
    "deltalake-restored": restored,
    "deltalake-without-time-zone": without_time_zone,
}


def main() -> None:
    """Writes every table."""
    directory = Path(sys.argv[1])
    for name, write in TABLES.items():
        root = directory / name / "delta"
        root.parent.mkdir(parents=True)
        expected = directory / name / "expected/latest/table_content"
        expected.mkdir(parents=True)
        pyarrow.parquet.write_table(write(str(root)), expected / "rows.parquet")
    sys.stdout.write("written\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
