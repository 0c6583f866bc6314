"""Parses the lines of an answer: the table's head and its data files.

In: parsed NDJSON lines in the parquet or the delta format. Out: `TableHead` and `DataFile`, the same for
both formats, small and picklable for executors. Signed URLs are secrets, so `repr` does not show them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class UnsupportedTable(Exception):
    """Raised when the table or the answer needs an unsupported feature, which the message names."""


class FileKind(Enum):
    """The meaning of a file's rows: live rows of a snapshot, or changes."""

    SNAPSHOT = "file"
    ADD = "add"
    REMOVE = "remove"
    CDC = "cdc"


READER_FEATURES = (
    "deletionVectors",
    "columnMapping",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "variantType",
    "variantType-preview",
    "variantShredding",
    "variantShredding-preview",
)
# Features of the log, which a recipient does not read.
_LOG_FEATURES = frozenset({"v2checkpoint", "vacuumprotocolcheck", "inCommitTimestamp".lower()})
_KNOWN_FEATURES = _LOG_FEATURES | {feature.lower() for feature in READER_FEATURES}
UNKNOWN_SIZE = -1
_LEADING_NUM_RECORDS = re.compile(r'{"numRecords":(\d+)[,}]')


@dataclass(frozen=True)
class TableHead:
    """The protocol and metaData lines."""

    schema_json: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    version: int | None = None
    size_bytes: int | None = None
    num_files: int | None = None
    table_id: str | None = None
    access_modes: tuple[str, ...] = ()
    auxiliary_locations: tuple[str, ...] = ()
    """Directories outside of the table's own with files of the table."""
    reader_features: frozenset[str] = frozenset()
    """Features that a recipient needs, in lower case."""
    description: str | None = None

    @property
    def column_mapping_mode(self) -> str:
        """`none`, `name` or `id`."""
        return self.configuration.get("delta.columnMapping.mode", "none").lower()


@dataclass(frozen=True)
class DeletionVector:
    """The deleted rows of a file: inline, or in a file with a signed URL."""

    inline: str | None
    url: str | None = field(repr=False)
    offset: int
    size_bytes: int
    cardinality: int
    file_id: str | None

    @property
    def identity(self) -> tuple[str | None, str, int, int, int]:
        """Return an identity that is equal for equal rows, with any signature of the URL."""
        place = self.file_id or (self.url or "").partition("?")[0]
        return (self.inline, place, self.offset, self.size_bytes, self.cardinality)


@dataclass(frozen=True)
class DataFile:
    """One Parquet file with the facts that are needed to read it."""

    kind: FileKind
    id: str
    url: str = field(repr=False)
    size_bytes: int
    """`UNKNOWN_SIZE` for a removed file without a size in the log, which old writers omit."""
    partition_values: Mapping[str, str | None] | None
    """None if the log lacks them, as for some removed files."""
    deletion_vector: DeletionVector | None = None
    version: int | None = None
    timestamp_ms: int | None = None
    expires_ms: int | None = None
    data_change: bool = True
    num_records: int | None = None
    """The rows in the file, deleted ones included; None if the server does not send it."""
    stats: str | None = field(default=None, repr=False)
    """Statistics as the server sends them, if requested: they are larger than all other fields together."""

    @property
    def live_rows(self) -> int | None:
        """Return the rows without the deleted ones; None if the server does not send their number."""
        if self.num_records is None:
            return None
        live = self.num_records - (self.deletion_vector.cardinality if self.deletion_vector else 0)
        return live if live >= 0 else None


def parse_head(protocol: Mapping[str, Any], metadata: Mapping[str, Any], version: int | None) -> TableHead:
    """Build the head from the first two lines (without their wrapper objects). Raises UnsupportedTable."""
    check_protocol(protocol)
    delta = metadata.get("deltaMetadata", metadata)
    features = map(str.lower, protocol.get("deltaProtocol", protocol).get("readerFeatures") or ())
    if not isinstance(delta.get("schemaString"), str):
        raise UnsupportedTable("the server's metaData has no schemaString")
    return TableHead(
        schema_json=delta["schemaString"],
        partition_columns=tuple(delta.get("partitionColumns") or ()),
        configuration=dict(delta.get("configuration") or {}),
        version=version if version is not None else metadata.get("version"),
        size_bytes=metadata.get("size"),
        num_files=metadata.get("numFiles"),
        table_id=delta.get("id"),
        access_modes=tuple(metadata.get("accessModes") or ()),
        auxiliary_locations=tuple(metadata.get("auxiliaryLocations") or ()),
        reader_features=frozenset(features) - _LOG_FEATURES,
        description=delta.get("description"),
    )


def check_protocol(protocol: Mapping[str, Any]) -> None:
    """Raise UnsupportedTable if the table needs a reader feature that is not supported."""
    delta = protocol.get("deltaProtocol", protocol)
    reader_version = delta.get("minReaderVersion", 1)
    newest = 3 if "deltaProtocol" in protocol else 1
    if reader_version > newest:
        raise UnsupportedTable(
            f"the table needs reader version {reader_version}, supported are versions up to {newest}"
        )
    unknown = [name for name in delta.get("readerFeatures") or () if name.lower() not in _KNOWN_FEATURES]
    if unknown:
        raise UnsupportedTable(
            f"the table needs reader features that are not supported: {', '.join(unknown)}"
        )


def parse_file(line: Mapping[str, Any], *, has_stats: bool = False) -> DataFile | None:
    """Parse one line of either format; None for a line that is not a file (unknown lines are skipped)."""
    for name, kind in _WRAPPERS.items():
        if (wrapped := line.get(name)) is not None:
            return _file(wrapped, kind, has_stats=has_stats)
    return None


_WRAPPERS = {
    "file": FileKind.SNAPSHOT,
    "add": FileKind.ADD,
    "remove": FileKind.REMOVE,
    "cdf": FileKind.CDC,
}


def _file(wrapped: Mapping[str, Any], kind: FileKind, *, has_stats: bool) -> DataFile:
    if "deltaSingleAction" in wrapped:
        ((name, action),) = ((key, value) for key, value in wrapped["deltaSingleAction"].items() if value)
        kind, url, size, vector = (
            FileKind(name),
            action["path"],
            action.get("size"),
            action.get("deletionVector"),
        )
    else:
        action, url, size, vector = wrapped, wrapped["url"], wrapped["size"], None
    stats, values = action.get("stats"), action.get("partitionValues")
    return DataFile(
        kind=kind,
        id=wrapped["id"],
        url=url,
        size_bytes=UNKNOWN_SIZE if size is None else size,
        partition_values=None if values is None else dict(values),
        deletion_vector=_deletion_vector(vector, wrapped.get("deletionVectorFileId")) if vector else None,
        version=wrapped.get("version"),
        timestamp_ms=wrapped.get("timestamp"),
        expires_ms=wrapped.get("expirationTimestamp"),
        data_change=action.get("dataChange", True),
        num_records=_num_records(stats),
        stats=stats if has_stats else None,
    )


def _num_records(stats: Any) -> int | None:
    """Return the number of rows that a file's statistics state. Most writers state it first."""
    if not isinstance(stats, str):
        return None
    match = _LEADING_NUM_RECORDS.match(stats)
    if match is not None:
        return int(match[1])
    try:
        rows = json.loads(stats).get("numRecords")
    except (ValueError, AttributeError):
        return None
    return rows if type(rows) is int and rows >= 0 else None


def _deletion_vector(vector: Mapping[str, Any], file_id: str | None) -> DeletionVector:
    storage, place = vector["storageType"], vector["pathOrInlineDv"]
    if storage not in {"p", "i"}:
        raise UnsupportedTable(
            f"a deletion vector has storage type {storage!r}, which a recipient cannot read"
        )
    return DeletionVector(
        inline=place if storage == "i" else None,
        url=place if storage == "p" else None,
        offset=vector.get("offset") or 0,
        size_bytes=vector["sizeInBytes"],
        cardinality=vector["cardinality"],
        file_id=file_id,
    )
