"""A table that a catalog manages, in a local directory: its commits, its publisher, its catalog, a replayer.

The catalog is the source of truth: `history` has the content of each ratified version. A commit is ratified
as a staged file or inline, and published later, in order (PROTOCOL, section Catalog-managed tables).
"""

import json
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.config import Location
from gateway.storage.unity_catalog import RatifiedCommits

FIRST_MS = 1_700_000_000_000
SCHEMA = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
MANAGED = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["catalogManaged"],
    "writerFeatures": ["catalogManaged", "inCommitTimestamp"],
}
UNMANAGED = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
METADATA = {
    "id": "managed-table",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": SCHEMA,
    "partitionColumns": [],
    "configuration": {"delta.enableInCommitTimestamps": "true", "delta.enableChangeDataFeed": "true"},
}


@dataclass
class RatifiedLog:
    """A table in a directory, and its catalog.

    Attributes:
        root: directory of the table.
        history: actions of each version that counts.
        unpublished: what the catalog still has, by version: the name of the staged file, or the content.
        published: number of versions that are published.
        is_managed: the latest protocol says that the catalog manages the table.
        ratified: number of versions that the catalog knows.
        url: where the catalog says that the table is, if a store has a copy of the directory.

    """

    root: Path
    history: list[list[dict[str, Any]]] = field(default_factory=list)
    unpublished: dict[int, str | bytes] = field(default_factory=dict)
    published: int = 0
    is_managed: bool = True
    ratified: int = 0
    added: int = 0
    restored: int = 0
    is_cleaned: bool = False
    url: str | None = None

    def __post_init__(self) -> None:
        self.staged.mkdir(parents=True)
        self._ratify([{"protocol": MANAGED}, {"metaData": METADATA}], inline=False)
        self.publish()

    @property
    def log(self) -> Path:
        """The directory of the log."""
        return self.root / "_delta_log"

    @property
    def staged(self) -> Path:
        """The directory of staged commits."""
        return self.log / "_staged_commits"

    @property
    def latest(self) -> int:
        """The latest version that counts."""
        return len(self.history) - 1

    def commit(self, removes: int = 0, *, inline: bool = False) -> None:
        """Commit an added file and removals of the oldest live ones."""
        gone = sorted(self.files(self.latest))[:removes]
        actions: list[dict[str, Any]] = [
            self._add(),
            *({"remove": {"path": path, "size": 10}} for path in gone),
        ]
        self._commit(actions, inline=inline)

    def move(self, *, publishes: bool = True) -> None:
        """Commit that the table leaves its catalog, or comes back into it."""
        if self.is_managed:
            self.publish_all()
            for file in self.log.glob("*.json"):
                # Outside of the catalog, what nobody has ratified would count.
                if int(file.name[:20]) > self.latest:
                    file.unlink()
        self._commit([{"protocol": UNMANAGED if self.is_managed else MANAGED}], inline=False, moves=True)
        if publishes:
            self.publish_all()

    def reject(self) -> None:
        """Leave a staged commit that lost, and one that was never proposed."""
        for version in (self.latest, self.latest + 1):
            self._stage(version, [self._add()])

    def publish(self, *, dies_before_the_catalog_knows: bool = False, deletes: bool = False) -> None:
        """Publish the next version; the catalog forgets it, unless the publisher dies before."""
        version = self.published
        if version > self.latest:
            return
        self._write(f"{version:020}.json", version)
        self.published += 1
        kept = self.unpublished.get(version)
        if deletes and isinstance(kept, str):
            (self.staged / kept).unlink(missing_ok=True)
        if not dies_before_the_catalog_knows:
            self.backfilled()

    def publish_all(self) -> None:
        """Publish all versions, and tell the catalog."""
        while self.published <= self.latest:
            self.publish()
        self.backfilled()

    def backfilled(self) -> None:
        """Let the catalog know what is published."""
        self.unpublished = {
            version: kept for version, kept in self.unpublished.items() if version >= self.published
        }

    def restore(self, back: int) -> None:
        """Set the catalog back by versions that are not published, as after a restore of its database."""
        # What brought the table back from its log alone stays.
        while back and len(self.history) > max(self.published, 1) and "protocol" not in self.history[-1][1]:
            self.history.pop()
            self.unpublished.pop(len(self.history), None)
            self.ratified = len(self.history)
            self.restored += 1
            back -= 1

    def write_beside(self) -> None:
        """Publish a version that nobody ratified, as a writer does that ignores the feature."""
        if self.is_managed:
            text = (
                json.dumps({"commitInfo": {"inCommitTimestamp": 1}}) + "\n" + json.dumps(self._add()) + "\n"
            )
            (self.log / f"{len(self.history):020}.json").write_text(text)

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest published version, of the form that has the commits as JSON."""
        version = self.published - 1
        protocol, live = (
            [action for actions in self.history[: version + 1] for action in actions if "protocol" in action][
                -1
            ],
            [],
        )
        adds = {
            action["add"]["path"]: action
            for actions in self.history[: version + 1]
            for action in actions
            if "add" in action
        }
        live = [adds[path] for path in sorted(self.files(version))]
        lines = [{"checkpointMetadata": {"version": version}}, protocol, {"metaData": METADATA}, *live]
        name = f"{version:020}.checkpoint.{uuid.uuid4()}.json"
        (self.log / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    def clean_up(self) -> None:
        """Delete the log before its newest checkpoint, and staged files up to it."""
        found = sorted(self.log.glob("*.checkpoint.*"))
        if not found:
            return
        newest = int(found[-1].name[:20])
        self.is_cleaned = True
        for file in [*self.log.glob("*.json"), *self.staged.glob("*.json")]:
            version = int(file.name[:20])
            if version < newest or (version == newest and file.parent == self.staged):
                file.unlink()

    def files(self, version: int) -> set[str]:
        """Return the live files of a version by a naive replay."""
        live: set[str] = set()
        for actions in self.history[: version + 1]:
            live |= {action["add"]["path"] for action in actions if "add" in action}
            live -= {action["remove"]["path"] for action in actions if "remove" in action}
        return live

    def timestamp_ms(self, version: int) -> int:
        """Return the in-commit timestamp of a version."""
        return int(self.history[version][0]["commitInfo"]["inCommitTimestamp"])

    def answer(self) -> RatifiedCommits:
        """Answer as the catalog."""
        staged = [
            (
                version,
                kept,
                (self.staged / kept).stat().st_size
                if (self.staged / kept).exists()
                else len(self._content(version)),
                FIRST_MS,
            )
            for version, kept in self.unpublished.items()
            if isinstance(kept, str)
        ]
        inline = [
            (version, kept, FIRST_MS) for version, kept in self.unpublished.items() if isinstance(kept, bytes)
        ]
        return RatifiedCommits(self.ratified - 1, tuple(staged), tuple(inline))

    def delete(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.root)

    def _commit(self, actions: list[dict[str, Any]], *, inline: bool, moves: bool = False) -> None:
        was_managed = self.is_managed
        if moves:
            self.is_managed = not was_managed
        if was_managed or self.is_managed:
            # The commit of a move is the catalog's, in both directions.
            self._ratify(actions, inline=inline)
        else:
            self._append(actions)
            self._write(f"{self.latest:020}.json", self.latest)
            self.published = len(self.history)

    def _ratify(self, actions: list[dict[str, Any]], *, inline: bool) -> None:
        self._append(actions)
        version = self.latest
        self.unpublished[version] = (
            self._content(version) if inline else self._stage(version, self.history[version])
        )
        self.ratified = len(self.history)

    def _append(self, actions: list[dict[str, Any]]) -> None:
        # Another commit of a version is a later one.
        committed_ms = FIRST_MS + 1000 * len(self.history) + self.restored
        info = {"inCommitTimestamp": committed_ms, "txnId": str(uuid.uuid4())}
        self.history.append([{"commitInfo": info}, *actions])

    def _add(self) -> dict[str, Any]:
        self.added += 1
        path = f"{self.added:08}.parquet"
        return {
            "add": {
                "path": path,
                "partitionValues": {},
                "size": 10,
                "modificationTime": 1,
                "dataChange": True,
            }
        }

    def _stage(self, version: int, actions: list[dict[str, Any]]) -> str:
        name = f"{version:020}.{uuid.uuid4()}.json"
        (self.staged / name).write_bytes(_lines(actions))
        return name

    def _content(self, version: int) -> bytes:
        return _lines(self.history[version])

    def _write(self, name: str, version: int) -> None:
        (self.log / name).write_bytes(self._content(version))


def _lines(actions: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


@dataclass
class Answering:
    """A catalog of one table that answers from memory."""

    log: RatifiedLog

    def ratified(self, location: Location) -> RatifiedCommits:
        """Return what is ratified."""
        assert location.key == str(self.log.root)
        return self.log.answer()
