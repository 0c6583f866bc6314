"""The demo's three small Delta tables, which the package has as an archive.

In: a directory. Out: tables for every Delta reader: `cities` is partitioned by values that need
escapes in a path, `readings` has a deletion vector, `orders` has a change data feed. The archive's times are
moved, so that the tables are minutes old. `tests/tables/demo_archive.py` writes the archive.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHARE = "demo"
SCHEMA = "default"
TABLES = ("cities", "readings", "orders")

ARCHIVE = Path(__file__).with_name("tables.zip")
WRITTEN_SECONDS = 1_767_225_600
"""The time of the first commit of each table in the archive."""
FIRST_COMMIT_AGE_SECONDS = 600
TIMES = ("timestamp", "modificationTime", "deletionTimestamp")
"""The fields of an action that are times in milliseconds."""


def lay_out(directory: Path, *, now_seconds: float) -> None:
    """Write the tables that are missing below `directory`.

    The first commits are ten minutes old at `now_seconds`, and the others follow by a minute each.
    """
    moved_ms = round((now_seconds - FIRST_COMMIT_AGE_SECONDS - WRITTEN_SECONDS) * 1000)
    missing = {table for table in TABLES if not (directory / table).exists()}
    with zipfile.ZipFile(ARCHIVE) as archive:
        for entry in archive.infolist():
            path, content = directory / entry.filename, archive.read(entry)
            if entry.filename.partition("/")[0] not in missing:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.parent.name != "_delta_log":
                path.write_bytes(content)
                continue
            actions = list(_moved(content.decode(), moved_ms))
            lines = [json.dumps(action, separators=(",", ":")) for action in actions]
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            # The version is as old as its commit says.
            seconds = actions[0]["commitInfo"]["timestamp"] / 1000
            os.utime(path, (seconds, seconds))


def _moved(commit: str, moved_ms: int) -> Iterator[dict[str, dict[str, Any]]]:
    """Iterate over the actions of a commit, at a later time."""
    for line in commit.splitlines():
        action: dict[str, dict[str, Any]] = json.loads(line)
        for fields in action.values():
            fields |= {name: fields[name] + moved_ms for name in TIMES if name in fields}
        yield action
