"""Brings the work table up to date by few changed rows, which are counted in one process.

In: rows that the rule makes of the source's inserted and deleted rows. Out: one commit of the work table that
removes rows by their places in its files, and adds files. Rows are a bag: of equal rows as many are removed
as the changes say, whichever these are. The files of the source are read for the hashes of the changed rows,
and once more for the rows to add; the files of the table that may have the rows to remove are read once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as f

from gateway.config.projections import Projection
from gateway.spark.project.actions import Action
from gateway.spark.project.changes import (
    ROW,
    Disagreement,
    Hashes,
    Written,
    copies,
    digest_of,
    is_among,
    net_changes,
    with_hashes,
)
from gateway.spark.project.commit_range import CommitRange
from gateway.spark.project.order import in_own_order
from gateway.spark.project.reduced import reduced
from gateway.spark.project.rule import chosen, plain_columns, projected
from gateway.spark.project.search import Search, all_of, conditions, search, searched
from gateway.spark.project.table_log import CHANGE_TYPE, INSERT, TableLog
from gateway.spark.project.transaction import Places, Transaction, files_added
from gateway.spark.verify.digest import EMPTY, HASHES, Digest, digest

MAX_ROWS = 5000
"""More changed rows are counted and joined with the table by Spark."""

MAX_PLACES = 100_000
"""So many places of rows that may be removed are collected. Where the table has more, of equal rows, Spark
counts out as many of each row as are to be removed."""

MAX_REMOVED = 1_000_000
"""So many places of rows that Spark has counted out are collected, by files."""

_PLACE = "place"
_NUMBER = "number"


@dataclass(frozen=True)
class Changed:
    """The rows that a projection makes of the changed rows of its source."""

    source: DataFrame
    projection: Projection

    def rows(self) -> DataFrame:
        """Return all of them with `CHANGE_TYPE`. Lazy."""
        return projected(self.source, self.projection, beside=(CHANGE_TYPE,))

    def chosen(self) -> DataFrame:
        """Return what `rows` are made of: rows of the source with `CHANGE_TYPE`. Lazy."""
        return chosen(self.source, self.projection, beside=(CHANGE_TYPE,))

    def inserted(self) -> DataFrame:
        """Return the inserted ones: other files are not read. Lazy."""
        return projected(self.source.where(f.col(CHANGE_TYPE) == INSERT), self.projection)


@dataclass(frozen=True)
class FewChanges:
    """Changed rows, by their hashes.

    Attributes:
        changed: the changed rows, read when they are needed.
        net: by how many the number of equal rows changes; not of those whose number does not.
        searched: of removed rows, the columns by which the table is searched; none searches all of it.
        are_plain: whether the rows to add are just the inserted ones.

    """

    changed: Changed
    net: Mapping[Hashes, int]
    searched: Sequence[Sequence[Any]] = ()
    are_plain: bool = False

    def release(self) -> None:
        """Let go of the changed rows, if Spark keeps them."""
        self.changed.source.unpersist()

    @property
    def digest(self) -> Digest:
        """Return the digest of the rows to add without those to remove."""
        return digest_of(self.net)

    @property
    def removed(self) -> dict[Hashes, int]:
        """Return how many rows are to be removed."""
        return {hashes: -number for hashes, number in self.net.items() if number < 0}

    @property
    def added(self) -> dict[Hashes, int]:
        """Return how many rows are to be added."""
        return {hashes: number for hashes, number in self.net.items() if number > 0}

    def rows_to_add(self) -> DataFrame:
        """Return the rows to add. Lazy."""
        spark = self.changed.source.sparkSession
        if self.are_plain:
            return self.changed.inserted()
        if max(self.added.values()) == 1:
            inserted = with_hashes(self.changed.inserted()).where(is_among(spark, self.added))
            return inserted.groupBy(*HASHES).agg(f.first(ROW).alias(ROW)).select(f"{ROW}.*")
        rows = with_hashes(self.changed.rows()).where(is_among(spark, self.added))
        return copies(net_changes(rows.select(CHANGE_TYPE, f"{ROW}.*")).where("n > 0"))


def few_changes(changed: Changed, stated: Callable[[], DataFrame | None]) -> FewChanges | None:
    """Count changed rows; None if they are more than `MAX_ROWS`.

    `stated` returns the changes that the source's change data feed states, if it has one. Of files that are
    written anew most rows are on both sides: the feed says at once which are not.
    """
    rows = changed.rows()
    hashed = with_hashes(rows)
    columns = searched(rows.drop(CHANGE_TYPE).schema, ROW)
    collected = hashed.select(CHANGE_TYPE, *HASHES, *columns).limit(MAX_ROWS + 1).collect()
    if len(collected) <= MAX_ROWS:
        return _counted(changed, collected)
    feed = stated()
    small = reduced(
        changed.chosen(),
        None if feed is None else replace(changed, source=feed).chosen(),
        plain_columns(changed.projection),
        most=MAX_ROWS,
    )
    if small is None:
        return None
    with ExitStack() as unneeded:
        unneeded.callback(small.unpersist)
        changed = replace(changed, source=small)
        collected = with_hashes(changed.rows()).select(CHANGE_TYPE, *HASHES, *columns).collect()
        few = _counted(changed, collected)
        unneeded.pop_all()
    return few


def _counted(changed: Changed, collected: Sequence[Row]) -> FewChanges:
    """Count rows that are collected: `CHANGE_TYPE`, the hashes, and the columns of a search."""
    inserted = Counter((row[1], row[2]) for row in collected if row[0] == INSERT)
    counts = Counter(inserted)
    counts.subtract((row[1], row[2]) for row in collected if row[0] != INSERT)
    net = {hashes: number for hashes, number in counts.items() if number}
    are_plain = all(net.get(hashes) == number for hashes, number in inserted.items())
    removed = [row[3:] for row in collected if row[0] != INSERT and net.get((row[1], row[2]), 0) < 0]
    return FewChanges(changed, net, removed, are_plain)


def apply_few(
    work: TableLog,
    base: int,
    files: Sequence[Action] | None,
    few: FewChanges,
    step: Callable[[str], None],
) -> Written:
    """Change the work table's version `base`. Raises Disagreement and NotMarked.

    `files`: all files of that version, where they are known. Without them Delta finds those that may have the
    rows to remove. The digests are of the rows that were read at the places which the commit removes, and of
    those that are read from the files that it adds.
    """
    transaction = Transaction(work)
    if transaction.version != base:
        raise Disagreement
    removed = few.removed
    places = _places(transaction, work, few, files) if removed else {}
    number = sum(few.added.values())
    rows = in_own_order(few.rows_to_add(), number, work.latest().partitions) if number else None
    return replace(_committed(transaction, work, places, rows, step), deleted=digest_of(removed))


def apply_net(work: TableLog, base: int, net: DataFrame, step: Callable[[str], None]) -> Written | None:
    """Change the work table's version `base` by `net_changes`; None for more than `MAX_REMOVED` removed rows.

    Of equal rows as many are removed as the changes say, and none is written again. Raises Disagreement and
    NotMarked.
    """
    lost = net.where("n < 0").select(*HASHES, (-f.col("n")).alias("n"))
    different, number = lost.agg(f.count("n"), f.coalesce(f.sum("n"), f.lit(0))).collect()[0]
    if number > MAX_REMOVED:
        return None
    transaction, partitions = Transaction(work), work.latest().partitions
    if transaction.version != base:
        raise Disagreement
    places: dict[str, list[int]] = {}
    deleted = EMPTY
    if number:
        gone = net.where("n < 0").select(f"{ROW}.*")
        bounds = conditions(gone, partitions) if different <= MAX_ROWS else []
        candidates = transaction.candidates(bounds)
        placed = _placed(candidates.where(all_of(bounds)) if bounds else candidates)
        file, index = (f.col(_PLACE).getField(name) for name in ("file_path", "row_index"))
        by_file = _counted_out(placed, lost, number).groupBy(file).agg(f.collect_list(index))
        places = {transaction.path(path): indexes for path, indexes in by_file.collect()}
        # There are no more places of a row than are to be removed.
        if sum(map(len, places.values())) != number:
            raise Disagreement
        deleted = digest(copies(net.where("n < 0").withColumn("n", -f.col("n"))))
    added = net.where("n > 0")
    number_added = added.agg(f.sum("n")).collect()[0][0] or 0
    rows = in_own_order(copies(added), number_added, partitions) if number_added else None
    return replace(_committed(transaction, work, places, rows, step), deleted=deleted)


def _committed(
    transaction: Transaction,
    work: TableLog,
    places: Places,
    rows: DataFrame | None,
    step: Callable[[str], None],
) -> Written:
    """Remove places and add rows in their order, by one commit. The caller knows the removed rows."""
    base = transaction.version
    if places:
        transaction.remove(places)
    step("removed")
    if rows is not None:
        transaction.add(rows)
    transaction.commit()
    step("added")
    commits = CommitRange(work.actions, base).read_to(work.latest().number)
    added = files_added(work, commits.changes(), places)
    return Written(commits, digest(work.rows(commits.last, added)) if added else EMPTY, EMPTY)


def _places(
    transaction: Transaction, work: TableLog, few: FewChanges, files: Sequence[Action] | None
) -> dict[str, list[int]]:
    """Find as many rows as are to be removed. Raises Disagreement if there are fewer."""
    version, left = work.latest(), few.removed
    narrowed = Search([], None)
    if few.searched:
        narrowed = search(version.schema, few.searched, version.partitions)
    rows = transaction.candidates(narrowed.bounds) if files is None else transaction.rows_of(files)
    if narrowed.all:
        rows = rows.where(all_of(narrowed.all))
    placed = _placed(rows).where(is_among(work.spark, left))
    candidates = placed.limit(MAX_PLACES + 1).collect()
    if len(candidates) > MAX_PLACES:
        lost = [(*hashes, number) for hashes, number in left.items()]
        counts = work.spark.createDataFrame(lost, f"{HASHES[0]} BIGINT, {HASHES[1]} BIGINT, n BIGINT")
        candidates = _counted_out(placed, counts, max(left.values())).collect()
    places: dict[str, list[int]] = defaultdict(list)
    for first, second, (path, index) in candidates:
        if left.get((first, second), 0) > 0:
            left[first, second] -= 1
            places[path].append(index)
    if any(left.values()):
        raise Disagreement
    return {transaction.path(name): indexes for name, indexes in places.items()}


def _placed(rows: DataFrame) -> DataFrame:
    """Return the hashes of rows of files and their places. Lazy."""
    metadata = rows.metadataColumn("_metadata")
    place = f.struct(metadata.getField("file_path"), metadata.getField("row_index")).alias(_PLACE)
    return with_hashes(rows, place).select(*HASHES, _PLACE)


def _counted_out(placed: DataFrame, lost: DataFrame, most: int) -> DataFrame:
    """Return as many places of equal rows as `n` of `lost` says, which is at most `most`. Lazy."""
    order = Window.partitionBy(*HASHES).orderBy(_PLACE)
    wanted = placed.join(f.broadcast(lost), [*HASHES]).withColumn(_NUMBER, f.row_number().over(order))
    # By the first part, which is a constant, Spark leaves rows out before it sorts all equal ones.
    chosen_rows = wanted.where((f.col(_NUMBER) <= most) & (f.col(_NUMBER) <= f.col("n")))
    return chosen_rows.select(*HASHES, _PLACE)
