"""The actions of the work table's commits, put together into one commit of the published table.

In: commits as lists of actions. Out: what changed between the first and the last, with paths as the published
table sees them: its root is the directory that contains the work table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import xor
from typing import Any

from gateway.config.projections import WORK_DIRECTORY

Action = dict[str, Any]
FileKey = tuple[str, str | None]
"""The path of a file and the identity of its deletion vector."""

WORK_PROPERTIES = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
"""Properties of the work table alone: the published history is kept as long as that of other tables."""

_RELATIVE_VECTOR = "u"


@dataclass
class Changes:
    """What a range of commits changes.

    Attributes:
        removed: files of the version before the range that are not in its last version.
        added: files of the last version that were not in the version before.
        others: the last `protocol` and `metaData`, and the last action of each metadata domain.

    """

    removed: dict[FileKey, Action] = field(default_factory=dict)
    added: dict[FileKey, Action] = field(default_factory=dict)
    others: dict[str, Action] = field(default_factory=dict)

    def lines(self) -> Iterator[Action]:
        """Iterate over the actions of the published commit."""
        for name, action in self.others.items():
            yield {name.partition(":")[0]: _published(action)}
        # A file that gets another deletion vector is removed and added: in this order for careless readers.
        for action in self.removed.values():
            yield {"remove": moved(action)}
        for action in self.added.values():
            yield {"add": moved(action)}

    def apply(self, commit: Iterable[Action]) -> None:
        """Extend the range by a commit.

        Change data files are left out: every commit of the job removes whole files, or rows by deletion
        vectors, and adds files. Readers derive the changed rows from these.
        """
        # Actions of one commit have no order: a remove is always of an earlier version.
        actions = list(commit)
        for action in (entry["remove"] for entry in actions if "remove" in entry):
            key = file_key(action)
            if self.added.pop(key, None) is None:
                self.removed[key] = action
        for action in (entry["add"] for entry in actions if "add" in entry):
            key = file_key(action)
            if self.removed.pop(key, None) is None:
                self.added[key] = action
        for entry in actions:
            for name in ("protocol", "metaData"):
                if name in entry:
                    self.others[name] = entry[name]
            if "domainMetadata" in entry:
                self.others[f"domainMetadata:{entry['domainMetadata']['domain']}"] = entry["domainMetadata"]


def fold(commits: Iterable[Iterable[Action]]) -> Changes:
    """Put the commits of a range together, in order."""
    changes = Changes()
    for commit in commits:
        changes.apply(commit)
    return changes


def mark_of(keys: Iterable[FileKey]) -> str:
    """Return what tells a set of files from others. The mark of two sets together is their exclusive or."""
    return f"{reduce(xor, map(hash_of, keys), 0):064x}"


def hash_of(key: FileKey) -> int:
    """Return a hash of what identifies a file."""
    return int.from_bytes(hashlib.sha256(json.dumps(key).encode()).digest())


def changed_file(action: Action) -> tuple[str, FileKey] | None:
    """Return whether an action is an `add` or a `remove`, and of which file; None for another action."""
    return next(((kind, file_key(action[kind])) for kind in ("add", "remove") if kind in action), None)


def file_key(action: Mapping[str, Any]) -> FileKey:
    """Return what identifies a file of a version."""
    vector = action.get("deletionVector")
    if not vector:
        return action["path"], None
    return action["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def _published(action: Action) -> Action:
    """Return an action without the work table's own properties."""
    properties = action.get("configuration")
    if not isinstance(properties, dict):
        return action
    public = {name: value for name, value in properties.items() if name not in WORK_PROPERTIES}
    return action | {"configuration": public}


def moved(action: Action) -> Action:
    """Return a file action with paths relative to the directory that contains the work table."""
    path = action["path"]
    if ":" in path.partition("/")[0] or path.startswith("/"):
        raise ValueError("the work table has a file outside of its directory")
    published_action = action | {"path": f"{WORK_DIRECTORY}/{path}"}
    vector = action.get("deletionVector")
    if vector and vector["storageType"] == _RELATIVE_VECTOR:
        # The text is a directory, if any, and 20 characters that encode the name of the file.
        name = vector["pathOrInlineDv"]
        inner = f"{WORK_DIRECTORY}/{name[:-20]}".rstrip("/")
        published_action["deletionVector"] = vector | {"pathOrInlineDv": inner + name[-20:]}
    return published_action
