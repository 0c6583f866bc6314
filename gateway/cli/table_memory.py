"""Memory that the answers of a table take, by the measured figures of `docs/sizing.md`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from gateway.catalog.catalog import SharedTable

STATISTICS_SHARE = 0.4
"""Memory of a file's statistics against their bytes: their keys and common values are stored once."""
COLUMN_FILE_BYTES = 92
COLD_ANSWER_BYTES = 52_000_000
"""Memory above rest of an answer that reads the log, at the most."""


def hot_bytes(table: SharedTable, files: int, adds: Sequence[dict[str, Any]]) -> int:
    """Return the bytes of the table's columns in memory, by the mean of some of its `add` actions."""
    if not adds:
        return 0
    paths = sum(_path_bytes(add["path"], table) for add in adds)
    statistics = sum(len((add.get("stats") or "").encode()) for add in adds)
    return round(((paths + STATISTICS_SHARE * statistics) / len(adds) + COLUMN_FILE_BYTES) * files)


def cold_bytes(hot: int) -> int:
    """Return the bytes of an answer of a table whose columns are not in memory."""
    return min(hot, COLD_ANSWER_BYTES)


def _path_bytes(url: str, table: SharedTable) -> int:
    """Return the length of a file's path as the log has it, from its URL."""
    path = unquote(urlsplit(url).path)
    before = "/files/" if table.location.kind == "file" else f"/{table.location.key}/"
    _, separator, relative = path.partition(before)
    if separator and table.location.kind == "file":
        relative = relative.partition("/")[2]
    return len((relative or path).encode())
