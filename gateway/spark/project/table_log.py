"""The log of a Delta table through delta-spark: its versions, their actions, and the rows they change.

In: a session and a table's root. Out: versions, actions and DataFrames. Python's interface of delta-spark has
no access to actions, so these calls go to its Java classes, whose version is pinned.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gateway.spark import java
from gateway.spark.project.actions import Action, fold
from gateway.spark.project.objects import Directory, Refused

CHANGE_TYPE = "_change_type_5eed0004"
"""The column of `TableLog.changes` beside those of the table, of which none has this name by chance."""
INSERT, DELETE = "insert", "delete"
"""Its values."""
_KIND = "_change_type"
_COMMIT = ("_commit_version", "_commit_timestamp")
_OF_DELTA = frozenset({_KIND, *_COMMIT})
"""The columns that Delta adds to changed rows, in place of a table's own ones by these names."""
_CHECKPOINT_INTERVAL = 10
_LINES = 5000
"""Lines of a commit that Java gives to Python at once."""
_NO_VERSION = -1
_FEED = "delta.enableChangeDataFeed"
_LAST_CHECKPOINT = "_last_checkpoint"
_STAGED = ("_staged_commits", "_commits")
"""Directories of commits that a catalog has accepted and that are not in the log yet."""


class CommitExists(Exception):
    """Raised for a version that is there already."""

    def __init__(self, number: int) -> None:
        super().__init__(f"another writer was faster with version {number}; the next run starts again")


@dataclass(frozen=True)
class Version:
    """A version of a table; `number` is -1 without any. `has_feed`: its writers state the changed rows."""

    number: int
    table_id: str
    schema: t.StructType
    partitions: tuple[str, ...] = ()
    has_feed: bool = False

    @property
    def exists(self) -> bool:
        """Return whether the table is there."""
        return self.number != _NO_VERSION


class TableLog:
    """The log of one table."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root
        self.spark = spark
        self._delta = java.classes(spark).org.apache.spark.sql.delta
        self._none = java.none(spark)

    @cached_property
    def log(self) -> Any:
        """Return the log as Delta's Java classes see it, which read its latest version."""
        return self._delta.DeltaLog.forTable(java.session(self.spark), self.root)

    def has_staged(self, first: int) -> bool:
        """Return whether a catalog may have accepted a version from one on that the log does not list yet."""
        return any(number >= first for name in _STAGED for number in self._staged(name))

    def listed(self, first: int) -> list[int]:
        """Return the versions from one on whose commits are in the log. Nothing but the names is read."""
        try:
            files = self._store.listFrom(self._file(first), self._hadoop)
        except Py4JJavaError as error:
            if java.is_missing(error):
                return []
            raise
        commits = []
        while files.hasNext():
            stem, _, kind = files.next().getPath().getName().partition(".")
            if kind == "json" and stem.isdigit():
                commits.append(int(stem))
        return commits

    def number(self) -> int:
        """Return the number of the latest version, -1 without any, by the names of the commits alone."""
        checkpoint = 0
        path, files = self._found(_LAST_CHECKPOINT)
        if files.exists(path):
            with suppress(Py4JJavaError, ValueError, KeyError):
                (line,) = self._lines(path)
                checkpoint = int(json.loads(line)["version"])
        versions = self.listed(checkpoint) or self.listed(0)
        return max(versions, default=_NO_VERSION)

    def latest(self) -> Version:
        return _version(self.log.update(False, self._none, self._none))

    def at(self, number: int) -> Version:
        """Return an earlier version."""
        return _version(self.snapshot(number))

    def snapshot(self, number: int) -> Any:
        """Return a version as Delta's Java classes see it."""
        return self.log.getSnapshotAt(number, self._none, self._none, False)

    def actions(self, number: int) -> Iterator[Action]:
        """Yield the actions of a version. Raises FileNotFoundError for one that was cleaned up."""
        try:
            yield from (json.loads(line) for line in self._lines(self._file(number)) if line.strip())
        except Py4JJavaError as error:
            if not java.is_missing(error):
                raise
            raise FileNotFoundError(f"version {number} is not in the log") from error

    def changes(self, first: int, last: int) -> DataFrame:
        """Return the rows that a range of versions inserts and deletes, with `CHANGE_TYPE`. Lazy.

        They are found by the files and deletion vectors that the versions add and remove, and not by the
        change data that a writer stated. A range without versions has no rows.
        """
        if first > last:
            empty = t.StructType([*self.latest().schema.fields, t.StructField(CHANGE_TYPE, t.StringType())])
            return self.spark.createDataFrame([], empty)
        if self._has_columns_of_delta(last):
            changed = fold(map(self.actions, range(first, last + 1)))
            inserted, deleted = (
                self.rows(last, files.values()).withColumn(CHANGE_TYPE, f.lit(kind))
                for kind, files in ((INSERT, changed.added), (DELETE, changed.removed))
            )
            return inserted.union(deleted)
        reader, none = self._delta.commands.cdc.CDCReader, self._none
        session = java.session(self.spark)
        frame = reader.changesToBatchDF(self.log, first, last, session, none, none, True, none)
        return java.frame(frame, self.spark).drop(*_COMMIT).withColumnRenamed(_KIND, CHANGE_TYPE)

    def stated_changes(self, first: int, last: int) -> DataFrame | None:
        """Return the rows that the change data feed of a range of versions states, as `changes` does.

        None where some of them have no feed. Nothing is checked: a writer may have stated others. Lazy.
        """
        if self._has_columns_of_delta(last):
            return None
        try:
            feed = self.spark.read.format("delta").option("readChangeFeed", "true")
            feed_rows = feed.option("startingVersion", first).option("endingVersion", last).load(self.root)
        except (PySparkException, Py4JJavaError):
            return None
        is_insert = f.col(_KIND).isin(INSERT, "update_postimage")
        stated = feed_rows.withColumn(CHANGE_TYPE, f.when(is_insert, INSERT).otherwise(DELETE))
        return stated.drop(_KIND, *_COMMIT)

    def table(self, number: int) -> DataFrame:
        """Return all rows of a version. Lazy."""
        return self.spark.read.format("delta").option("versionAsOf", str(number)).load(self.root)

    def rows(self, number: int, files: Iterable[Action]) -> DataFrame:
        """Return the rows of some files of a version, without those of their deletion vectors. Lazy."""
        actions = java.sequence(
            self.spark, (self._delta.actions.Action.fromJson(as_added(file)) for file in files)
        )
        # Delta takes the settings of the rule from the active session.
        with java.active(self.spark):
            frame = self.log.createDataFrame(self.snapshot(number), actions, False, self._none)
        return java.frame(frame, self.spark)

    def files(self, number: int) -> list[Action] | None:
        """Return all files of a version as its checksum file lists them, each as an `add`; None without that.

        Delta writes such lists for small tables, from one commit to the next and without a look at the state.
        """
        listed = self._checksum(number).get("allFiles")
        return None if listed is None else list(listed)

    def content(self, number: int) -> tuple[int, int]:
        """Return the number of files of a version and their bytes."""
        snapshot = self.snapshot(number)
        return int(snapshot.numOfFiles()), int(snapshot.sizeInBytes())

    def size(self, number: int) -> tuple[int, int] | None:
        """Return the number of files of a version and their bytes; None if its checksum file has neither."""
        checksum = self._checksum(number)
        try:
            return int(checksum["numFiles"]), int(checksum["tableSizeBytes"])
        except KeyError:
            return None

    def publish(self, number: int, commit: Path) -> None:
        """Write a version, as a whole and once beside other writers. Raises CommitExists and Unsafe.

        `commit`: a file of this machine with the lines, in ASCII.
        """
        directory = Directory(self.spark, self._directory, self._hadoop)
        if directory.is_s3:
            # Delta's own way takes turns within one process alone.
            try:
                directory.create(f"{number:020}.json", commit)
            except Refused:
                raise CommitExists(number) from None
            return
        file = self._file(number)
        if number == 0:
            file.getFileSystem(self._hadoop).mkdirs(file.getParent())
        lines = java.companion(java.classes(self.spark).scala.io, "Source").fromFile(str(commit), "US-ASCII")
        try:
            self._store.write(file, lines.getLines(), False, self._hadoop)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName().endswith("FileAlreadyExistsException"):
                raise CommitExists(number) from None
            raise
        finally:
            lines.close()

    def checkpoint(self, number: int) -> None:
        """Write a checkpoint where one is due, and remove commits that the table's retention no longer keeps.

        Readers do without a checkpoint, so one that fails is left to the next version.
        """
        if number and number % _CHECKPOINT_INTERVAL == 0:
            with suppress(Py4JError):
                self.latest()
                self.log.checkpoint()

    def oldest(self) -> int:
        """Return the oldest version whose commit is in the log."""
        return min(self.listed(0), default=0)

    def begun_ms(self, number: int) -> int:
        """Return when a version was begun: its first file was removed, or else its commit was written.

        The commit knows it: the time of its file is that of a copy, where the log was copied.
        """
        begun = int(self._status(number).getModificationTime())
        for action in self.actions(number):
            removed = action.get("remove", {}).get("deletionTimestamp")
            stated = action.get("commitInfo", {}).get("timestamp")
            begun = min([begun, *(int(time) for time in (removed, stated) if time is not None)])
        return begun

    def stamp(self, number: int) -> str:
        """Return what tells the commit of a version from another one of that number; empty if it is gone."""
        try:
            status = self._status(number)
        except Py4JJavaError as error:
            if not java.is_missing(error):
                raise
            return ""
        return f"{status.getModificationTime()}-{status.getLen()}"

    def _status(self, number: int) -> Any:
        file = self._file(number)
        return file.getFileSystem(self._hadoop).getFileStatus(file)

    def _has_columns_of_delta(self, number: int) -> bool:
        return not _OF_DELTA.isdisjoint(map(str.casefold, self.at(number).schema.names))

    def _checksum(self, number: int) -> dict[str, Any]:
        """Return what the checksum file of a version states; nothing without the file."""
        try:
            (line,) = self._lines(self._path(self._directory, f"{number:020}.crc"))
            checksum = json.loads(line)
        except (Py4JJavaError, ValueError):
            return {}
        return checksum if isinstance(checksum, dict) else {}

    def _staged(self, name: str) -> list[int]:
        path, files = self._found(name)
        # An exception of Java takes longer to reach Python than all else of a look at a log.
        if not files.exists(path):
            return []
        stems = (status.getPath().getName().partition(".")[0] for status in files.listStatus(path))
        return [int(stem) for stem in stems if stem.isdigit()]

    def _found(self, name: str) -> tuple[Any, Any]:
        """Return the path of a file of the log, and its file system."""
        path = self._path(self._directory, name)
        return path, path.getFileSystem(self._hadoop)

    def _lines(self, path: Any) -> Iterator[str]:
        lines = self._store.readAsIterator(path, self._hadoop)
        try:
            parts = lines.grouped(_LINES)
            while parts.hasNext():
                yield from str(parts.next().mkString("\n")).split("\n")
        finally:
            lines.close()

    def _file(self, number: int) -> Any:
        return self._path(self._directory, f"{number:020}.json")

    @cached_property
    def _path(self) -> Any:
        return java.classes(self.spark).org.apache.hadoop.fs.Path

    @cached_property
    def _directory(self) -> Any:
        return self._path(self.root, "_delta_log")

    @cached_property
    def _hadoop(self) -> Any:
        return java.hadoop_settings(self.spark)

    @cached_property
    def _store(self) -> Any:
        return java.companion(self._delta.storage, "LogStore").apply(java.session(self.spark))


def _version(snapshot: Any) -> Version:
    number = int(snapshot.version())
    if number == _NO_VERSION:
        return Version(number, "", t.StructType([]))
    metadata = snapshot.metadata()
    schema = t.StructType.fromJson(json.loads(metadata.schemaString()))
    partitions = metadata.partitionColumns().mkString("\x00").split("\x00")
    feed = metadata.configuration().get(_FEED)
    has_feed = bool(feed.isDefined()) and str(feed.get()).lower() == "true"
    return Version(number, str(metadata.id()), schema, tuple(filter(None, partitions)), has_feed)


def as_added(file: Action) -> str:
    """Return an `add` or `remove` as the text of an `add`, with what is needed to read the file."""
    needed = ("path", "partitionValues", "size", "deletionVector")
    add: Action = {"partitionValues": {}, "size": 0, "modificationTime": 0, "dataChange": False}
    add |= {name: file[name] for name in needed if file.get(name) is not None}
    return json.dumps({"add": add})
