"""Makes the project's own tables and their answers. tests/run.py runs it and keeps the result in its cache.

    python make.py DIRECTORY

A table lies in DIRECTORY/NAME/delta, the rows that its writer put in are at DIRECTORY/NAME/expected.
ANSWERS.json has, for each table, what the independent replay (support/reference.py) finds in its log and its
data files. A table whose rows differ from those of its writer fails here.
"""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet
from support import deletion_vectors, reference
from tables import by_deltalake, by_hand
from tables.writer import Column, Table

REFUSED = {"catalogManaged", "noSuchFeature"}
KNOWN_READER_VERSIONS = range(1, 4)


def main() -> None:
    """Makes all tables in an empty directory."""
    directory = Path(sys.argv[1]).resolve()
    by_deltalake_in(directory)
    for name, make in by_hand.TABLES.items():
        table = make(directory / name / "delta")
        if table is not None:
            expected = directory / name / "expected/latest/table_content"
            expected.mkdir(parents=True)
            pyarrow.parquet.write_table(rows_of(table), expected / "rows.parquet")
    answers = {
        f"{name}/delta": answer(directory / name / "delta")
        for name in (*by_deltalake.TABLES, *by_hand.TABLES)
    }
    (directory / "ANSWERS.json").write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")


def by_deltalake_in(directory: Path) -> None:
    """Runs that writer in a process of its own, and looks at what it said instead of its exit code."""
    command = [sys.executable, by_deltalake.__file__, str(directory)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if "written" not in ended.stdout:
        raise SystemExit(f"deltalake did not write its tables:\n{ended.stderr}")


def rows_of(table: Table) -> pa.Table:
    """The rows that the writer kept, as Arrow."""
    schema = pa.schema([Column(column.name, column.kind).of_file() for column in table.columns])
    return pa.Table.from_pylist(table.rows, schema=schema)


def answer(root: Path) -> dict[str, Any]:
    """What must be found in one table."""
    try:
        state = reference.replay(root)
    except reference.BrokenLog:
        return {"error": "not_a_delta_table"}
    assert state.protocol is not None
    assert state.metadata is not None
    files = state.files()
    stats = [records(add) for add in files]
    rows = sum(rows_in(root, add) for add in files)
    expected = pyarrow.parquet.read_table(root.parent / "expected/latest/table_content").num_rows
    if rows != expected:
        raise SystemExit(f"{root}: {rows} rows in its live files, {expected} written")
    return {
        "version": state.version,
        "numFiles": len(files),
        "totalSize": sum(add["size"] for add in files),
        "metadataId": state.metadata["id"],
        "partitionColumns": state.metadata["partitionColumns"],
        "readerSupported": is_supported(state.protocol),
        "rowsFromStats": None if None in stats else sum(filter(None, stats)) - sum(map(hidden, files)),
        "rowsFromData": rows,
        "rowsExpected": expected,
    }


def is_supported(protocol: reference.Action) -> bool:
    """Whether a reader of today may read it."""
    features = protocol.get("readerFeatures") or []
    return protocol["minReaderVersion"] in KNOWN_READER_VERSIONS and not REFUSED & {*features}


def records(add: reference.Action) -> int | None:
    """Rows of a file by its statistics, typed or as text."""
    found = add.get("stats_parsed") or json.loads(add.get("stats") or "{}")
    return found.get("numRecords")


def hidden(add: reference.Action) -> int:
    """Rows that the deletion vector hides, as the log says."""
    return add["deletionVector"]["cardinality"] if add.get("deletionVector") else 0


def rows_in(root: Path, add: reference.Action) -> int:
    """Rows of a data file without those that its deletion vector hides."""
    content = (root / unquote(add["path"])).read_bytes()
    assert len(content) == add["size"], add["path"]
    rows = pyarrow.parquet.ParquetFile(io.BytesIO(content)).metadata.num_rows
    return rows - len(hidden_rows(root, add.get("deletionVector")))


def hidden_rows(root: Path, descriptor: reference.Action | None) -> list[int]:
    """The rows of a deletion vector."""
    if not descriptor:
        return []
    place = descriptor["pathOrInlineDv"]
    match descriptor["storageType"]:
        case "i":
            return deletion_vectors.decode(deletion_vectors.from_z85(place))
        case "p":
            file = Path(unquote(urlsplit(place).path))
        case _:
            file = root / deletion_vectors.file_name(place)
    start = (descriptor.get("offset") or 0) + 4
    return deletion_vectors.decode(file.read_bytes()[start : start + descriptor["sizeInBytes"]])


if __name__ == "__main__":
    main()
