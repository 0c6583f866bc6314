"""Rebuilds a local Delta log from a delta-format answer, as delta-sharing's clients do.

The files are fetched by their URLs, and the log refers to these copies. Spark then reads the rows that a
recipient can read.
"""

import json
import os
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.request import urlopen

Line = dict[str, Any]


def rebuilt_snapshot(lines: list[Line], directory: Path) -> Path:
    """A table with one version that holds the answer's files."""
    head = [opened(line) for line in lines[:2]]
    actions = [localised(line["file"]["deltaSingleAction"], directory) for line in lines[2:]]
    write_commit(directory, 0, head + actions, timestamp_ms=None)
    return directory


def rebuilt_changes(lines: list[Line], directory: Path) -> tuple[Path, int, int]:
    """A table with the versions of a /changes answer that begins at 0; its first and last version."""
    by_version: dict[int, list[Line]] = defaultdict(list)
    timestamps: dict[int, int] = {}
    protocol = opened(lines[0])
    for line in lines[1:]:
        if "file" in line:
            version = line["file"]["version"]
            timestamps[version] = line["file"]["timestamp"]
            by_version[version].append(localised(line["file"]["deltaSingleAction"], directory))
        else:
            (content,) = line.values()
            by_version[content["version"]].append(opened(line))
    first, last = min(by_version), max(by_version)
    by_version[first].insert(0, protocol)
    for version in range(first, last + 1):
        # A commit without files keeps a place before the next: Spark moves equal times apart.
        known = [time for number, time in timestamps.items() if number <= version]
        timestamp_ms = max(known) if known else min(timestamps.values()) - 1000
        write_commit(directory, version, by_version[version], timestamp_ms=timestamp_ms)
    return directory, first, last


def opened(line: Line) -> Line:
    """The Delta action in a protocol or metaData line."""
    if "protocol" in line:
        return {"protocol": line["protocol"]["deltaProtocol"]}
    return {"metaData": line["metaData"]["deltaMetadata"]}


def localised(action: Line, directory: Path) -> Line:
    """An action whose files are copies below `directory`."""
    ((kind, fields),) = action.items()
    found = {**fields, "path": fetched(fields["path"], directory)}
    vector = fields.get("deletionVector")
    if vector and vector["storageType"] == "p":
        found["deletionVector"] = {**vector, "pathOrInlineDv": fetched(vector["pathOrInlineDv"], directory)}
    return {kind: found}


def fetched(url: str, directory: Path) -> str:
    """Fetches a URL once; answers the URI of the copy, the same for the same object."""
    name = uuid.uuid5(uuid.NAMESPACE_URL, url.split("?", maxsplit=1)[0]).hex
    copy = directory / "files" / f"{name}{'.bin' if '.bin?' in url else '.parquet'}"
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        with urlopen(url) as stored:
            copy.write_bytes(stored.read())
    return copy.as_uri()


def write_commit(directory: Path, version: int, actions: list[Line], *, timestamp_ms: int | None) -> None:
    """One commit, without `commitInfo`."""
    path = directory / "_delta_log" / f"{version:020}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    if timestamp_ms is not None:
        os.utime(path, ns=(timestamp_ms * 1_000_000, timestamp_ms * 1_000_000))
