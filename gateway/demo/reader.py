"""A small recipient: reads a share through HTTP with the standard library.

In: a profile. Out: the data files of each of its tables, with the rows that are deleted. Only the delta
response format is requested, whose lines hold everything: files, partition values, deletion vectors.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from gateway._native import deletion_vector_rows

CAPABILITIES = "responseformat=delta;readerfeatures=deletionvectors"
TIMEOUT_SECONDS = 60
# The server is on this machine, which a proxy of the environment does not reach.
_OPENER = build_opener(ProxyHandler({}))


@dataclass(frozen=True)
class DataFile:
    """A data file with its partition values, the number of its rows and those that are deleted."""

    content: bytes
    partition_values: Mapping[str, str | None]
    number_of_rows: int
    deleted_rows: frozenset[int]


@dataclass(frozen=True)
class SharedRows:
    """A table as a recipient reads it; `schema` maps columns to Delta's types."""

    name: str
    schema: Mapping[str, str]
    files: tuple[DataFile, ...]

    @property
    def number_of_rows(self) -> int:
        """Return the number of rows that are not deleted."""
        return sum(file.number_of_rows - len(file.deleted_rows) for file in self.files)


def read_profile(profile: Path) -> Iterator[SharedRows]:
    """Return each table of the profile. Raises OSError when the server cannot be read."""
    credentials = json.loads(profile.read_text())
    for share in _items(credentials, "/shares"):
        for table in _items(credentials, f"/shares/{quote(share['name'])}/all-tables"):
            yield _read_table(credentials, table)


def _items(credentials: Mapping[str, str], path: str) -> Iterator[dict[str, str]]:
    """Return the items of all pages of a list."""
    token = ""
    while True:
        page = json.loads(_request(credentials, f"{path}?pageToken={token}" if token else path))
        yield from page.get("items", [])
        token = page.get("nextPageToken", "")
        if not token:
            return


def _read_table(credentials: Mapping[str, str], table: Mapping[str, str]) -> SharedRows:
    names = [table[key] for key in ("share", "schema", "name")]
    path = "/shares/{}/schemas/{}/tables/{}/query".format(*map(quote, names))
    answer = _request(credentials, path, body=b"{}").decode()
    _, head, *files = [json.loads(line) for line in answer.removesuffix("\n").split("\n")]
    fields = json.loads(head["metaData"]["deltaMetadata"]["schemaString"])["fields"]
    return SharedRows(
        ".".join(names),
        {field["name"]: field["type"] for field in fields},
        tuple(_read_file(line["file"]["deltaSingleAction"]["add"]) for line in files),
    )


def _read_file(add: Mapping[str, Any]) -> DataFile:
    content = _fetch(add["path"])
    if len(content) != add["size"]:
        raise OSError(f"a data file has {len(content)} bytes, and its table says {add['size']}")
    deleted: frozenset[int] = frozenset()
    if vector := add.get("deletionVector"):
        stored = _fetch(vector["pathOrInlineDv"])
        offset, size = vector.get("offset", 0), vector["sizeInBytes"]
        deleted = frozenset(deletion_vector_rows(stored, offset=offset, size_in_bytes=size))
    return DataFile(content, add["partitionValues"], json.loads(add["stats"])["numRecords"], deleted)


def _request(credentials: Mapping[str, str], path: str, body: bytes | None = None) -> bytes:
    headers = {
        "Authorization": f"Bearer {credentials['bearerToken']}",
        "Content-Type": "application/json; charset=utf-8",
        "delta-sharing-capabilities": CAPABILITIES,
    }
    return _fetch(credentials["endpoint"] + path, headers, body)


def _fetch(url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> bytes:
    request = Request(url, data=body, headers=dict(headers or {}))  # noqa: S310 - the profile's own server
    with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
        content: bytes = answer.read()
    return content
