"""One commit of the work table that removes rows by their places in files, and adds others.

In: places (a file, and the indexes of rows in it) and a DataFrame. Out: a version. DELETE finds its rows by a
condition, which cannot tell equal rows apart, and is a commit of its own. Delta does the work here, too: its
transaction finds the files, writes rows and deletion vectors, and commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from gateway.spark import java
from gateway.spark.project.actions import Action, Changes
from gateway.spark.project.table_log import TableLog, as_added
from gateway.times import epoch_ms

Places = Mapping[str, Sequence[int]]
"""Rows by the paths of their files in the log, and their indexes there."""


class NotMarked(Exception):
    """Raised for a row that is removed already, or a commit with other deletion vectors than were written."""


class Transaction:
    """A commit in the making: nothing of it is in the table before `commit`."""

    def __init__(self, work: TableLog) -> None:
        self._spark = spark = work.spark
        self._delta = java.classes(spark).org.apache.spark.sql.delta
        self._log = work.log
        self._transaction = self._log.startTransaction()
        self._files = java.sequence(spark, [])
        self._actions: list[Any] = []
        self._by_name: Any = None
        self._added: dict[str, Any] = {}
        self._have_statistics = False

    @property
    def version(self) -> int:
        """Return the version that is changed."""
        return int(self._transaction.readVersion())

    def candidates(self, conditions: Iterable[Column]) -> DataFrame:
        """Return the rows of the files that may have rows for which all conditions are true. Lazy."""
        rows = self._rows()
        filters = [java.condition_of(rows.where(condition)) for condition in conditions]
        with java.active(self._spark):
            self._files = self._transaction.filterFiles(java.sequence(self._spark, filters), False)
        return self._rows()

    def rows_of(self, files: Iterable[Action]) -> DataFrame:
        """Return the rows of all files of the version, which are given as `add` of the log. Lazy."""
        self._transaction.readWholeTable()
        actions = [self._delta.actions.Action.fromJson(json.dumps({"add": file})) for file in files]
        self._files = java.sequence(self._spark, actions)
        self._have_statistics = True
        return self._rows()

    def path(self, name: str) -> str:
        """Return the path in the log of a file of `candidates`, which `_metadata.file_path` names."""
        helper = java.companion(self._delta.commands, "DMLWithDeletionVectorsHelper")
        root = self._log.dataPath()
        if self._by_name is None:
            self._by_name = helper.generateCandidateFileMap(root, self._files)
        file = helper.getTouchedFile(root, name, self._by_name)
        self._added[file.path()] = file
        return str(file.path())

    def remove(self, places: Places) -> None:
        """Remove rows by their places, of which `path` has given the files. Raises NotMarked."""
        if not self._have_statistics:
            self._find_statistics(places)
        with closing(_NewVectors(self._spark, self._log)) as vectors:
            for path, indexes in places.items():
                file = self._added[path]
                vector = vectors.write(file.deletionVector(), indexes)
                self._actions += java.pair(file.removeRows(vector, True, True))

    def add(self, rows: DataFrame) -> None:
        """Write rows into files."""
        with java.active(self._spark):
            written = self._transaction.writeFiles(java.dataset(rows))
        self._actions += java.as_list(self._spark, written)

    def replace(self, files: Iterable[Action], rows: DataFrame) -> None:
        """Write the rows of files into others, which change no data."""
        self.add(rows)
        now = epoch_ms()
        added = [json.loads(action.json()) for action in self._actions]
        from_text = self._delta.actions.Action.fromJson
        self._actions = [from_text(as_added(file)).removeWithTimestamp(now, False) for file in files]
        for action in added:
            action["add"]["dataChange"] = False
            self._actions.append(from_text(json.dumps(action)))

    def commit(self) -> None:
        """Commit what was removed and added. Without any there is no version."""
        if not self._actions:
            return
        # Without a condition, whose values would be in the log. For a manual update Delta would compute the
        # state of the table anew.
        operation = java.companion(self._delta, "DeltaOperations$Update").apply(java.none(self._spark))
        with java.active(self._spark):
            self._transaction.commit(java.sequence(self._spark, self._actions), operation)

    def _find_statistics(self, paths: Iterable[str]) -> None:
        """Give files their statistics, which the log has beside deletion vectors, too."""
        snapshot = self._transaction.snapshot()
        with java.active(self._spark):
            files = snapshot.getSpecificFilesWithStats(java.sequence(self._spark, paths))
        self._added |= {str(file.path()): file for file in java.as_list(self._spark, files)}

    def _rows(self) -> DataFrame:
        snapshot, none = self._transaction.snapshot(), java.none(self._spark)
        with java.active(self._spark):
            frame = self._log.createDataFrame(snapshot, self._files, False, none)
        return java.frame(frame, self._spark)


def files_added(work: TableLog, committed: Changes, places: Places) -> list[Action]:
    """Return the files that a commit adds, once it has removed the rows of `places` and no others.

    The deletion vectors are read as the commit has them. Raises NotMarked.
    """
    vectors = _Vectors(work.spark, work.log)
    added = {path: action for (path, _), action in committed.added.items()}
    removed = {path: action for (path, _), action in committed.removed.items()}
    if removed.keys() != places.keys() or not removed.keys() <= added.keys():
        raise NotMarked
    for path, indexes in places.items():
        before, after = vectors.of_file(removed[path]), vectors.of_file(added.pop(path))
        if not vectors.united(before, indexes).equals(after):
            raise NotMarked
    return list(added.values())


class _Vectors:
    def __init__(self, spark: SparkSession, log: Any) -> None:
        self._spark = spark
        self._root, self._configuration = log.dataPath(), log.newDeltaHadoopConf()
        self._delta = java.classes(spark).org.apache.spark.sql.delta
        stores = java.companion(self._delta.storage.dv, "DeletionVectorStore")
        self._store = stores.createInstance(self._configuration)

    def of_file(self, file: Action) -> Any:
        """Return the indexes of the rows that a file of the log has lost."""
        added = self._delta.actions.Action.fromJson(as_added(file))
        return self.read(added.deletionVector())

    def read(self, vector: Any | None) -> Any:
        """Return the indexes of the rows that a deletion vector removes."""
        bitmaps = self._delta.deletionvectors.RoaringBitmapArray
        if vector is None:
            return bitmaps()
        if vector.isInline():
            return bitmaps.readFrom(vector.inlineData())
        return self._store.read(vector, self._root)

    def united(self, before: Any, indexes: Sequence[int]) -> Any:
        """Return the indexes of removed rows with others. Raises NotMarked for one that is among them."""
        after = before.copy()
        after.addAll(java.longs(self._spark, indexes))
        if after.cardinality() != before.cardinality() + len(indexes):
            raise NotMarked
        after.runOptimize()
        return after


class _NewVectors(_Vectors):
    """The deletion vectors of one commit, which are written into one file."""

    def __init__(self, spark: SparkSession, log: Any) -> None:
        super().__init__(spark, log)
        self._format = java.companion(self._delta.deletionvectors, "RoaringBitmapArrayFormat").Portable()
        self._writing = java.companion(self._delta.commands, "DeletionVectorWriter")
        paths = java.companion(self._delta.util, "PathWithFileSystem")
        prefix = ""
        table = paths.withConf(self._root, self._configuration)
        self._writer, name = java.pair(self._writing.createWriter(self._store, table, prefix))
        context = getattr(self._delta.commands, "DeletionVectorWriter$DeletionVectorMapperContext")
        self._context = context(self._store, self._writer, self._root, name, prefix)

    def write(self, before: Any | None, indexes: Sequence[int]) -> Any:
        """Write the deletion vector `before` of a file with more rows; return its descriptor."""
        after = self.united(self.read(before), indexes)
        content = after.serializeAsByteArray(self._format)
        return self._writing.storeSerializedBitmap(self._context, content, after.cardinality())

    def close(self) -> None:
        """End the file."""
        self._writer.close()
