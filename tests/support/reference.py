"""A forward replay of a Delta log in plain Python: the slow reference for `deltalog`.

In: a table's directory and a version. Out: protocol, metadata and the live files in the gateway's order:
commits newest first, then the checkpoint's parts by name. Nothing is skipped, cached or guessed, so that
it can be compared with Delta's PROTOCOL line by line. Only tests use it.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet

Action = dict[str, Any]

COMMIT = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.([0-9a-f-]{36})|\.(\d{10})\.(\d{10}))?\.(parquet|json)")


class BrokenLog(Exception):
    """The version cannot be rebuilt from what the log holds."""


@dataclass
class State:
    """A version of a table."""

    version: int = -1
    protocol: Action | None = None
    metadata: Action | None = None
    live: dict[tuple[str, str], tuple[tuple[int, int], Action]] = field(default_factory=dict)

    def files(self) -> list[Action]:
        """The live files in the gateway's order."""
        return [add for _, add in sorted(self.live.values(), key=lambda found: found[0])]


def replay(root: Path, version: int | None = None) -> State:
    """The latest version, or the given one."""
    names = sorted(path.name for path in (root / "_delta_log").iterdir() if path.is_file())
    commits = {int(found[1]) for found in map(COMMIT.fullmatch, names) if found}
    checkpoints = {number: parts for number, parts in complete_checkpoints(names).items() if parts}
    if not commits | set(checkpoints):
        raise BrokenLog("no commit and no checkpoint")
    last = max(commits | set(checkpoints))
    wanted = last if version is None else version
    if not 0 <= wanted <= last:
        raise BrokenLog(f"there is no version {wanted}")
    base = max((number for number in checkpoints if number <= wanted), default=-1)
    state = State(version=wanted)
    for place, name in enumerate(checkpoints.get(base, [])):
        apply(state, checkpoint_rows(root / "_delta_log", name), after_commits(place))
    for number in range(base + 1, wanted + 1):
        if number not in commits:
            raise BrokenLog(f"commit {number} is missing")
        apply(state, json_lines(root / "_delta_log" / f"{number:020}.json"), -number)
    if state.protocol is None or state.metadata is None:
        raise BrokenLog("no protocol or no metadata")
    return state


def after_commits(place: int) -> int:
    """Returns the position of a checkpoint's part. That of a commit is its negative version: newest first."""
    return 1 + place


def complete_checkpoints(names: list[str]) -> dict[int, list[str]]:
    """For each version the files of one whole checkpoint; without one, none."""
    found: dict[int, dict[tuple[str, int], list[str]]] = {}
    for match in filter(None, map(CHECKPOINT.fullmatch, names)):
        kind = (match[2] or "", int(match[4] or 1))
        found.setdefault(int(match[1]), {}).setdefault(kind, []).append(match[0])
    return {
        version: next((parts for (_, count), parts in sorted(kinds.items()) if len(parts) == count), [])
        for version, kinds in found.items()
    }


def checkpoint_rows(log: Path, name: str) -> list[Action]:
    """The actions of a checkpoint's part, and after them those of its sidecars."""
    rows = json_lines(log / name) if name.endswith(".json") else parquet_rows(log / name)
    sidecars = [row["sidecar"]["path"] for row in rows if "sidecar" in row]
    return rows + [row for path in sidecars for row in parquet_rows(log / "_sidecars" / unquote(path))]


def json_lines(path: Path) -> list[Action]:
    """The actions of a commit."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def parquet_rows(path: Path) -> list[Action]:
    """The actions of a parquet checkpoint, maps as dicts and nulls left out, as JSON would spell them."""
    return [plain(row) for row in pyarrow.parquet.read_table(path).to_pylist(maps_as_pydicts="strict")]


def plain(value: Any) -> Any:
    """A value without the nulls that only a column has; those of a map are values."""
    if not isinstance(value, dict):
        return value
    kept = {name: plain(inner) for name, inner in value.items() if inner is not None}
    return kept | {name: value[name] for name in ("partitionValues", "tags") if name in kept}


def apply(state: State, actions: list[Action], source: int) -> None:
    """Applies the actions of one log file; adds get the position (source, row)."""
    for row, action in enumerate(actions):
        match action:
            case {"protocol": protocol}:
                state.protocol = protocol
            case {"metaData": metadata}:
                state.metadata = metadata
            case {"remove": remove}:
                state.live.pop(key(remove), None)
            case {"add": add}:
                state.live[key(add)] = ((source, row), add)


def key(action: Action) -> tuple[str, str]:
    """Returns the key of a logical file: the path and the deletion vector's unique id."""
    path = re.sub(r"^file:/+", "/", action["path"])
    return path, deletion_vector_id(action.get("deletionVector"))


def deletion_vector_id(descriptor: Action | None) -> str:
    """`storageType pathOrInlineDv [@offset]`; empty without a vector."""
    if not descriptor:
        return ""
    at = f"@{descriptor['offset']}" if descriptor.get("offset") is not None else ""
    return f"{descriptor['storageType']}{descriptor['pathOrInlineDv']}{at}"
