"""Checks whether rows of one version of a table can be read in the columns of another version.

In: the head of a DataFrame or stream, and a later or earlier head. Out: nothing, or a `SchemaChanged` whose
message starts with Delta's error class for the same case. Added columns do not prevent the reading of older
rows; Delta's stream ends at them, and continues when it is started again.
"""

from pyspark.sql import types as t

from gateway.client.actions import TableHead, UnsupportedTable
from gateway.spark.read.schema import delta_schema, physical_name

_USE_SCHEMA_LOG = "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG"


class SchemaChanged(UnsupportedTable):
    """Raised when the table's columns have changed so that a read cannot continue."""


def check_dataframe(loaded: TableHead, now: TableHead) -> None:
    """Raise SchemaChanged if a DataFrame made of `loaded` cannot read the current table."""
    mine, theirs = delta_schema(loaded), delta_schema(now)
    reason = _another_table(loaded, now) or lost_column(mine, theirs)
    if reason is not None:
        raise SchemaChanged(
            "[DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS] The table changed in an incompatible way since this "
            f"DataFrame was made: {reason}. Make the DataFrame again (version {_said(loaded)} was loaded, "
            f"the server answers {_said(now)})."
        )


def check_change_data(loaded: TableHead, other: TableHead, *, is_end: bool = False) -> None:
    """Raise SchemaChanged if change data of `other` cannot be read in the columns of `loaded`.

    `is_end`: both are of one version, and so of one table. Before it a log may have other ids: deltalake
    before 0.25.3 wrote a new one with each new schema.
    """
    reason = (
        (_another_table(loaded, other) if is_end else None)
        or lost_column(delta_schema(other), delta_schema(loaded))
        or _other_partitions(loaded, other)
    )
    if reason is not None:
        raise SchemaChanged(
            "[DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA] The change data of version "
            f"{_said(other)} cannot be read in the columns of version {_said(loaded)}: {reason}. Read the "
            "versions before and after the change apart."
        )


def check_stream(loaded: TableHead, other: TableHead) -> None:
    """Raise SchemaChanged if a stream started with `loaded` cannot read rows written under `other`."""
    check_stream_table(loaded, other.table_id)
    mine, theirs = delta_schema(loaded), delta_schema(other)
    unknown = lost_column(theirs, mine)
    if unknown is None:
        return
    is_later = other.version is None or loaded.version is None or other.version > loaded.version
    if is_later and lost_column(mine, theirs) is None:
        raise SchemaChanged(
            f"[DELTA_SCHEMA_CHANGED_WITH_VERSION] Columns were added in version {_said(other)}: {unknown}. "
            "Start the stream again: it continues with the new columns."
        )
    raise SchemaChanged(
        f"[{_incompatible(loaded, other)}] The columns of version {_said(other)} cannot be read in those of "
        f"version {_said(loaded)} (renamed, dropped or of another type): {unknown}. Start a new stream "
        "after that version, with a new checkpoint."
    )


def check_stream_table(loaded: TableHead, table_id: str | None) -> None:
    """Raise SchemaChanged if a stream started with `loaded` has read a table of another id."""
    if _another_id(loaded.table_id, table_id):
        raise SchemaChanged(
            "[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE] The stream was reading another table than the "
            "one that is shared by this name now: start it with a new checkpoint."
        )


def check_stream_partitions(loaded: TableHead, other: TableHead) -> None:
    """Raise SchemaChanged if files of `other` have other partition columns than a stream expects."""
    if _other_partitions(loaded, other):
        raise SchemaChanged(
            f"[{_incompatible(loaded, other)}] Version {_said(other)} is partitioned by other columns than "
            f"version {_said(loaded)}. Start a new stream after the change, with a new checkpoint."
        )


def _other_partitions(head: TableHead, other: TableHead) -> str | None:
    """The values of a partition column are in the listing, and those of others in the files."""
    mine, theirs = ({name.lower() for name in each.partition_columns} for each in (head, other))
    return None if mine == theirs else "the partition columns are others"


def _incompatible(loaded: TableHead, other: TableHead) -> str:
    """Return Delta's error class for streams that only a new one can follow."""
    is_mapped = "none" not in {loaded.column_mapping_mode, other.column_mapping_mode}
    return _USE_SCHEMA_LOG if is_mapped else "DELTA_SCHEMA_CHANGED_WITH_VERSION"


def lost_column(fields: t.DataType, among: t.DataType, path: str = "") -> str | None:
    """Describe the part of a type that another type lacks; None if it lacks nothing."""
    if isinstance(fields, t.StructType) and isinstance(among, t.StructType):
        return _lost_field(fields, among, path)
    if isinstance(fields, t.ArrayType) and isinstance(among, t.ArrayType):
        return lost_column(fields.elementType, among.elementType, f"{path}.element")
    if isinstance(fields, t.MapType) and isinstance(among, t.MapType):
        return lost_column(fields.keyType, among.keyType, f"{path}.key") or lost_column(
            fields.valueType, among.valueType, f"{path}.value"
        )
    if fields == among:
        return None
    return f"column {path.lstrip('.')} is {fields.simpleString()} here and {among.simpleString()} there"


def _lost_field(fields: t.StructType, among: t.StructType, path: str) -> str | None:
    by_name = {field.name.lower(): field for field in among.fields}
    for field in fields.fields:
        name = f"{path}.{field.name}"
        other = by_name.get(field.name.lower())
        if other is None:
            return f"there is no column {name.lstrip('.')}"
        # Also where only one version maps its columns. Columns of files are found by names in any case.
        if physical_name(field).lower() != physical_name(other).lower():
            return f"column {name.lstrip('.')} is a different column with the same name"
        reason = lost_column(field.dataType, other.dataType, name)
        if reason is not None:
            return reason
    return None


def _another_table(head: TableHead, other: TableHead) -> str | None:
    is_another = _another_id(head.table_id, other.table_id)
    return "it is a different table with the same name" if is_another else None


def _another_id(mine: str | None, theirs: str | None) -> bool:
    return bool(mine and theirs and mine != theirs)


def _said(head: TableHead) -> str:
    return "?" if head.version is None else str(head.version)
