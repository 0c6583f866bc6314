"""A small recipient: reads a share through HTTP with the standard library and polars.

In: a profile. Out: the rows of each of its tables. Only the delta response format is requested, whose lines
hold everything: files, partition values, deletion vectors.
"""

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import polars as pl

from gateway._native import deletion_vector_rows

CAPABILITIES = "responseformat=delta;readerfeatures=deletionvectors"
TIMEOUT_SECONDS = 60

_POLARS_TYPES: Mapping[str, pl.DataType] = {
    "long": pl.Int64(),
    "double": pl.Float64(),
    "string": pl.String(),
    "date": pl.Date(),
    "timestamp": pl.Datetime("us", "UTC"),
}


def read_profile(profile: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    """Return name and rows of each table of the profile. Raises OSError when the server cannot be read."""
    credentials = json.loads(profile.read_text())
    for share in _items(credentials, "/shares"):
        for table in _items(credentials, f"/shares/{quote(share['name'])}/all-tables"):
            yield f"{table['share']}.{table['schema']}.{table['name']}", _read_table(credentials, table)


def _items(credentials: Mapping[str, str], path: str) -> Iterator[dict[str, str]]:
    """Return the items of all pages of a list."""
    token = ""
    while True:
        page = json.loads(_request(credentials, f"{path}?pageToken={token}" if token else path))
        yield from page.get("items", [])
        token = page.get("nextPageToken", "")
        if not token:
            return


def _read_table(credentials: Mapping[str, str], table: Mapping[str, str]) -> pl.DataFrame:
    names = [quote(table[key]) for key in ("share", "schema", "name")]
    path = "/shares/{}/schemas/{}/tables/{}/query".format(*names)
    answer = _request(credentials, path, body=b"{}").decode()
    _, head, *files = [json.loads(line) for line in answer.removesuffix("\n").split("\n")]
    fields = json.loads(head["metaData"]["deltaMetadata"]["schemaString"])["fields"]
    schema = {field["name"]: _POLARS_TYPES[field["type"]] for field in fields}
    parts = [_read_file(line["file"]["deltaSingleAction"]["add"], schema) for line in files]
    return pl.concat([pl.DataFrame(schema=schema), *parts])


def _read_file(add: Mapping[str, Any], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return a file's rows without its deleted ones, with its partition values as columns."""
    rows = pl.read_parquet(io.BytesIO(_fetch(add["path"])))
    if vector := add.get("deletionVector"):
        stored = _fetch(vector["pathOrInlineDv"])
        offset, size = vector.get("offset", 0), vector["sizeInBytes"]
        hidden = set(deletion_vector_rows(stored, offset=offset, size_in_bytes=size))
        rows = rows.filter(pl.Series([place not in hidden for place in range(rows.height)], dtype=pl.Boolean))
    values = {
        name: pl.lit(value, dtype=pl.String).cast(schema[name])
        for name, value in add["partitionValues"].items()
    }
    return rows.with_columns(**values).select(list(schema))


def _request(credentials: Mapping[str, str], path: str, body: bytes | None = None) -> bytes:
    headers = {
        "Authorization": f"Bearer {credentials['bearerToken']}",
        "Content-Type": "application/json; charset=utf-8",
        "delta-sharing-capabilities": CAPABILITIES,
    }
    return _fetch(credentials["endpoint"] + path, headers, body)


def _fetch(url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> bytes:
    request = Request(url, data=body, headers=dict(headers or {}))  # noqa: S310 - the profile's own server
    with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
        content: bytes = answer.read()
    return content
