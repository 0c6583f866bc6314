"""Runs in the official client's environment: reads requests from stdin and writes answers to stdout.

A request is {"call": name of an operation below, ...arguments}; an answer {"value": ..} or {"error": ..}.
Only the client itself and the standard library are used: the project is not installed there.
"""

import json
import math
import sys
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import delta_sharing


def shares(profile: str) -> list[str]:
    """Every table that the profile opens."""
    tables = delta_sharing.SharingClient(profile).list_all_tables()
    return [f"{table.share}.{table.schema}.{table.name}" for table in tables]


def schemas(profile: str) -> list[str]:
    """Shares, their schemas and their tables, each by its own call."""
    client = delta_sharing.SharingClient(profile)
    return [
        f"{share.name}.{schema.name}.{table.name}"
        for share in client.list_shares()
        for schema in client.list_schemas(share)
        for table in client.list_tables(schema)
    ]


def version(profile: str, table: str, **options: Any) -> int:
    """The table's version."""
    return delta_sharing.get_table_version(f"{profile}#{table}", **options)


def metadata(profile: str, table: str) -> dict[str, Any]:
    """Id and schema of the table."""
    found = delta_sharing.get_table_metadata(f"{profile}#{table}")
    return {"id": found.id, "schema": found.schema_string, "partitions": list(found.partition_columns)}


def load(profile: str, table: str, **options: Any) -> dict[str, Any]:
    """Rows of a snapshot."""
    return frame(delta_sharing.load_as_pandas(f"{profile}#{table}", **options))


def changes(profile: str, table: str, **options: Any) -> dict[str, Any]:
    """Rows of the change data feed."""
    return frame(delta_sharing.load_table_changes_as_pandas(f"{profile}#{table}", **options))


def urls(profile: str, table: str) -> list[str]:
    """The URLs of a table's files, as the client was given them."""
    rest = delta_sharing.rest_client.DataSharingRestClient(
        delta_sharing.protocol.DeltaSharingProfile.read_from_file(profile)
    )
    share, schema, name = table.split(".")
    return [
        file.url
        for file in rest.list_files_in_table(delta_sharing.protocol.Table(name, share, schema)).add_files
    ]


def frame(rows: Any) -> dict[str, Any]:
    """A data frame as columns and rows."""
    return {
        "columns": list(rows.columns),
        "rows": [
            [plain(value) for value in row] for row in rows.astype(object).itertuples(index=False, name=None)
        ],
    }


def plain(value: Any) -> Any:
    """A cell as JSON can say it: text for dates and decimals, None for every kind of nothing."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or type(value).__name__ in {"NaTType", "NAType"}:
        return None
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


OPERATIONS = {
    function.__name__: function for function in (shares, schemas, version, metadata, load, changes, urls)
}


def main() -> None:
    """Answers until stdin ends. The client's own output goes to stderr."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": OPERATIONS[request.pop("call")](**request)}
        except Exception as failure:  # noqa: BLE001 - whatever the client raises is what a test wants to see
            answer = {"error": f"{type(failure).__name__}: {failure}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
