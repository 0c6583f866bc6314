"""Brings one projection up to date: writes it, proves it and publishes it.

A projection is two Delta tables, one inside the other. Spark writes the work table, in the directory `data`.
The log around it lists the same files, and only its versions are served. If the source has version 8 and the
published version equals rule(source at 7), the job changes the work table until it equals rule(source at 8),
compares digests, and adds one commit to the published log. The commit is written as a whole, after the proof,
so no request reaches rows without a proof. After a failure recipients still read rule(source at 7), and the
next job undoes what the failed one left in the work table.

In: the rule, the source and the projection's directory. Out: a version that equals rule(source), or an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gateway.config.projections import WORK_DIRECTORY
from gateway.spark.project.actions import WORK_PROPERTIES, Action, file_key, mark_of
from gateway.spark.project.changes import Disagreement, Written, apply_changes, net_changes, signed_digest
from gateway.spark.project.commit_range import CommitRange
from gateway.spark.project.compaction import compact
from gateway.spark.project.errors import NotKept, NotProved, kind_of
from gateway.spark.project.few import Changed, apply_few, apply_net, few_changes
from gateway.spark.project.lock import locked
from gateway.spark.project.order import in_own_order
from gateway.spark.project.record import RECORD_FIELD, Record
from gateway.spark.project.results import Options, Outcome, Target
from gateway.spark.project.rule import check_rule, clean_schema, projected
from gateway.spark.project.table_log import CHANGE_TYPE, TableLog, Version
from gateway.spark.project.transaction import NotMarked
from gateway.spark.verify.digest import HASHES, Digest, digest, quoted, row_hashes
from gateway.times import epoch_ms

APP_ID = "delta-gateway.projection."
_KEPT_DAYS = 90
_PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    # The published commits have none, whatever a cluster gives to new tables.
    "delta.enableInCommitTimestamps": "false",
    # VACUUM takes a removed file for one that never was in the table once Delta has forgotten its removal.
    **dict.fromkeys(WORK_PROPERTIES, f"interval {_KEPT_DAYS} days"),
}
_HOUR_MS = 3_600_000
_MIN_RETAINED_HOURS = 168
"""Removed files are kept longer than signed URLs and tokens are valid."""

_ALL_PARTITIONS = ("partitionOverwriteMode", "static")
"""An option of a whole write, which a setting of the session would change."""

_GROUP_ROWS = "rows of a group"
"""No column of a projection has a space in its name."""

_MANY_FILES = 1000
_SMALL_FILE_BYTES = 1 << 20

_UNREADABLE = (PySparkException, Py4JJavaError, FileNotFoundError)


@dataclass(frozen=True)
class _Proved:
    """The commits of the work table that lead to a proved version, and the digest of its rows."""

    digest: Digest
    commits: CommitRange


def _as_read(node: Any) -> Any:
    """Return the parts of a field, in JSON, by which files are read.

    Comments are none of them, nor the state of an identity column, which each insert changes.
    """
    if isinstance(node, dict):
        return {
            name: _as_read(value)
            for name, value in node.items()
            if name != "comment" and not name.startswith("delta.identity.")
        }
    return [_as_read(item) for item in node] if isinstance(node, list) else node


def _no_step(_name: str) -> None:
    pass


@dataclass
class Job:
    """The work on one projection, in a session of its own. Tests kill it in `step`, between two writes."""

    spark: SparkSession
    target: Target
    options: Options = field(default_factory=Options)
    step: Callable[[str], None] = _no_step
    now_ms: Callable[[], int] = epoch_ms

    def __post_init__(self) -> None:
        """Name the tables: nothing is read."""
        self._source = TableLog(self.spark, self.target.source)
        self._work = TableLog(self.spark, f"{self.target.root}/{WORK_DIRECTORY}")
        self._published = TableLog(self.spark, self.target.root)

    @property
    def locations(self) -> tuple[str, ...]:
        return (self._source.root, self._work.root, self._published.root)

    def run(self) -> Outcome:
        """Bring the projection up to date. Raises Locked, InvalidRule, NotKept and Spark's errors."""
        unchanged = self.unchanged()
        if unchanged is not None:
            return unchanged
        source = self._source.latest()
        if not source.exists:
            raise NotKept("the source is not a Delta table")
        # Read before its rows. If the source is replaced meanwhile, the next run sees another stamp.
        self._source_stamp = self._source.stamp(source.number)
        # Without files: the rule is checked against the columns alone.
        self._evaluation = check_rule(self._source.rows(source.number, ()), self.target.projection)
        if self.options.check:
            return Outcome(self.target.names, how="checked", source_version=source.number)
        with locked(self.spark, self.target.root) as self._check_lock:
            self._step("locked")
            return self._run(source)

    def unchanged(self) -> Outcome | None:
        """Return the outcome of a run without work; None if there may be work.

        There is none if the proved version is the latest of the source and has the same commit as before, and
        the work table exists. The check reads the file names of three logs and the start of one commit. It
        writes nothing and takes no lock.
        """
        if self.options.check or self.options.whole:
            return None
        number = self._published.number()
        record = Record.of(self._published.actions(number)) if number >= 0 else None
        if record is None or not record.source_stamp or self._is_time_to_maintain(record):
            return None
        version = record.source_version
        # The stamp comes from one object: some stores list times in milliseconds and state them in seconds.
        if self._source.listed(version) != [version] or self._source.stamp(version) != record.source_stamp:
            return None
        if self._source.has_staged(version + 1) or not self._work.listed(record.work_version):
            return None
        return Outcome(self.target.names, version=number, source_version=version, rows=record.digest.rows)

    def _is_time_to_maintain(self, record: Record) -> bool:
        now = self.now_ms()
        return self._may_compact(record, now) or self._is_due(
            record.vacuumed_ms, self.options.vacuum_hours, now
        )

    def _may_compact(self, record: Record, now: int) -> bool:
        # Rows that have not changed since are in the files that the last compaction has left.
        is_done = 0 < record.changed_ms <= record.optimized_ms <= now
        return not is_done and self._is_due(record.optimized_ms, self.options.optimize_hours, now)

    def _step(self, name: str) -> None:
        """Check the lock before the next write. Raises Locked if another job may have it."""
        self.step(name)
        self._check_lock()

    def _run(self, source: Version) -> Outcome:
        outcome = Outcome(self.target.names)
        published = self._published.number()
        record = Record.of(self._published.actions(published)) if published >= 0 else None
        if published >= 0 and record is None:
            raise NotKept(
                f"version {published} of its directory is another writer's, and has no proof: remove "
                "the commits of that writer from _delta_log, or move the directory away to begin again"
            )
        outcome.version = published
        base = self._recovered(record)
        is_proved = record is not None and self._is_proved(source, record)
        if record is not None and not is_proved and self._is_early(record):
            outcome.how, outcome.remark = (
                "postponed",
                "publishEverySeconds have not passed since its last version",
            )
            outcome.source_version, outcome.rows = record.source_version, record.digest.rows
            return outcome
        if record is None or not is_proved:
            record = self._update(outcome, base, source, record)
        elif self.options.whole:
            record = self._prove_again(outcome, base, source, record)
        outcome.source_version, outcome.rows = record.source_version, record.digest.rows
        self._maintain(outcome, record)
        return outcome

    def _recovered(self, record: Record | None) -> int:
        """Undo unpublished writes. Return the version of the work table that equals the published one."""
        work = self._work.latest()
        if record is None:
            return -1
        if work.number < record.work_version:
            raise NotKept("the directory lacks versions of the work table; move it away to begin again")
        # Delta never overwrites a commit of a local directory. In S3 a job that was suspended can do so.
        if not self.target.root.startswith("/"):
            published = self._commits(record.work_base).read_to(record.work_version)
            if published.stamp != record.work_stamp:
                raise NotKept(
                    "another writer has changed its work table; move the directory away to begin again"
                )
        return self._restore(record.work_version)

    def _commits(self, base: int) -> CommitRange:
        return CommitRange(self._work.actions, base)

    def _restore(self, version: int) -> int:
        """Undo all versions after one. Return the number of the new version that equals it."""
        if self._work.latest().number == version:
            return version
        DeltaTable.forPath(self.spark, self._work.root).restoreToVersion(version)
        restored = self._work.latest().number
        if not self._commits(version).read_to(restored).keeps_files:
            raise NotProved("the work table cannot be restored")
        self._step("restored")
        return restored

    def _update(self, outcome: Outcome, base: int, source: Version, record: Record | None) -> Record:
        """Update the work table to a version of the source, and publish it."""
        if record is not None:
            reason = self._reason_to_rewrite(source, record)
            if reason is None:
                try:
                    proved = self._by_changes(outcome, base, source, record)
                    return self._publish(outcome, source, proved, record)
                except (Disagreement, NotMarked, NotProved):
                    reason = "the applied changes did not give the rows of the rule"
                except _UNREADABLE as error:
                    reason = f"the source's changes cannot be read ({kind_of(error)})"
                base = self._restore(base)
            outcome.remark = f"rewritten: {reason}"
        return self._publish(outcome, source, self._whole(outcome, base, source), record)

    def _is_proved(self, source: Version, record: Record) -> bool:
        """Return whether the record is about this version of the source."""
        proved = (record.source_id, record.source_version)
        return (source.table_id, source.number) == proved and self._has_proved_commit(record)

    def _is_early(self, record: Record) -> bool:
        """Return whether `publishEverySeconds` postpones the next version."""
        seconds = self.target.projection.publish_every_seconds
        if seconds is None or self.options.whole:
            return False
        return 0 <= self.now_ms() - record.changed_ms < seconds * 1000

    def _has_proved_commit(self, record: Record) -> bool:
        """Return whether the source has the commit of the proved version: a restored copy has another one."""
        stamp = self._source.stamp(record.source_version)
        return not stamp or not record.source_stamp or stamp == record.source_stamp

    def _reason_to_rewrite(self, source: Version, record: Record) -> str | None:
        """Return why the changes of the source cannot be applied; None if they can. Raises NotKept."""
        if other := record.evaluation.difference(self._evaluation):
            if not self.options.whole:
                raise NotKept(
                    f"the rule may give other rows now ({other}): check its rows, then run with --whole, "
                    "which rewrites all rows"
                )
            return f"the rule is evaluated differently ({other})"
        if source.table_id != record.source_id:
            return "the source is another table"
        if source.number < record.source_version:
            return "the source was restored to an earlier version"
        if not self._has_proved_commit(record):
            return "the source has another history"
        try:
            before = self._source.at(record.source_version)
        except _UNREADABLE:
            return "the source's log does not go back far enough"
        columns = {column.name: _as_read(column.jsonValue()) for column in source.schema.fields}
        if any(columns.get(column.name) != _as_read(column.jsonValue()) for column in before.schema.fields):
            return "the source's columns have changed"
        if CHANGE_TYPE in source.schema.names:
            return f"the source has a column '{CHANGE_TYPE}'"
        if before.partitions != source.partitions:
            # Old files lack the old partition columns: their values are in the log.
            return "the source is partitioned by other columns"
        return None

    def _by_changes(self, outcome: Outcome, base: int, source: Version, record: Record) -> _Proved:
        """Apply the changes of the source to the work table, and prove them."""
        versions = record.source_version + 1, source.number
        changed = Changed(self._source.changes(*versions), self.target.projection)
        few = few_changes(
            changed, lambda: self._source.stated_changes(*versions) if source.has_feed else None
        )
        if few is not None:
            expected = few.digest
            try:
                written = apply_few(self._work, base, self._files_of(base, record), few, self._step)
            finally:
                few.release()
        else:
            expected, written = self._by_many(base, changed.rows())
        change = written.inserted - written.deleted
        if change != expected:
            raise NotProved("the changed rows differ from those of the source")
        outcome.how, outcome.changed_rows = "changed", written.inserted.rows + written.deleted.rows
        total = record.digest + change
        if self.options.whole and not (
            self._digest_of_source(source) == total == self._digest_of_work(written.commits.last)
        ):
            raise NotProved("the rows differ from those of the source")
        return _Proved(total, written.commits)

    def _files_of(self, base: int, record: Record) -> list[Action] | None:
        """Return the published files of the work table; None if its checksum file does not list them."""
        files = self._work.files(base)
        if files is None or mark_of(map(file_key, files)) != record.files:
            return None
        return files

    def _by_many(self, base: int, rows: DataFrame) -> tuple[Digest, Written]:
        """Apply changed rows. Return the expected change of the digest, and what was written."""
        rows = rows.persist()
        net = net_changes(rows).persist()
        try:
            inserted, deleted = signed_digest(rows)
            written = apply_net(self._work, base, net, self._step)
            if written is None:
                written = apply_changes(self._work, base, net, self._step)
            return inserted - deleted, written
        finally:
            net.unpersist()
            rows.unpersist()

    def _whole(self, outcome: Outcome, base: int, source: Version) -> _Proved:
        """Write and prove all rows."""
        rows = projected(self._source.table(source.number), self.target.projection)
        schema, work = clean_schema(rows.schema), self._work.latest()
        partitions = self.target.projection.partition_by
        if not work.exists:
            builder = DeltaTable.create(self.spark).location(self._work.root).addColumns(schema)
            for name, value in _PROPERTIES.items():
                builder = builder.property(name, value)
            builder.partitionedBy(*partitions).execute()
            self._step("created")
        elif work.schema != schema:
            # That of the rows has comments and constraints of the source.
            empty = self.spark.createDataFrame([], schema).write.format("delta").mode("overwrite")
            empty.option(*_ALL_PARTITIONS).option("overwriteSchema", "true").partitionBy(*partitions).save(
                self._work.root
            )
            self._step("created")
        with self._read_once(source, rows):
            expected = digest(rows)
            ordered = in_own_order(rows, expected.rows, partitions)
            writing = ordered.write.format("delta").mode("overwrite").option(*_ALL_PARTITIONS)
            writing.save(self._work.root)
        self._step("written")
        commits = self._commits(base).read_to(self._work.latest().number)
        written = self._digest_of_work(commits.last)
        if written != expected:
            texts = [name for name in partitions if schema[name].dataType == t.StringType()]
            if any(rows.where(f.col(quoted(name)) == "").take(1) for name in texts):
                raise NotProved(
                    "a column of partitionBy has empty texts, which Delta keeps as null: leave out their "
                    "rows by `where`, or do not partition by it"
                )
            raise NotProved(f"{written.rows} rows were written, and the rule gives {expected.rows}")
        outcome.how, outcome.changed_rows = "whole", written.rows
        return _Proved(written, commits)

    @contextmanager
    def _read_once(self, source: Version, rows: DataFrame) -> Iterator[None]:
        """Keep the rows of many small files on disk between two readings within a block.

        To open such a file costs more than its rows. Those of large files are read again: they might fill
        the disk.
        """
        files, size = self._source.content(source.number)
        is_kept = files >= _MANY_FILES and size < files * _SMALL_FILE_BYTES
        if is_kept:
            rows.persist(StorageLevel.DISK_ONLY)
        try:
            yield
        finally:
            if is_kept:
                rows.unpersist()

    def _prove_again(self, outcome: Outcome, base: int, source: Version, record: Record) -> Record:
        """Prove all rows of the published version, and rewrite it if they differ."""
        if other := record.evaluation.difference(self._evaluation):
            outcome.remark = f"rewritten: the rule is evaluated differently ({other})"
        elif (
            self._digest_of_source(source)
            == record.digest
            == self._digest_of_work(self._work.latest().number)
        ):
            return record
        else:
            outcome.remark = "rewritten: it differed from its source"
        return self._publish(outcome, source, self._whole(outcome, base, source), record)

    def _publish(self, outcome: Outcome, source: Version, proved: _Proved, before: Record | None) -> Record:
        """Publish the proved version of the work table. Another writer may have added later ones."""
        self._check_groups(proved.commits.last)
        now = self.now_ms()
        optimized, vacuumed = (before.optimized_ms, before.vacuumed_ms) if before else (now, now)
        record = Record(
            source_id=source.table_id,
            source_version=source.number,
            work_version=proved.commits.last,
            digest=proved.digest,
            optimized_ms=optimized,
            vacuumed_ms=vacuumed,
            evaluation=self._evaluation,
            changed_ms=now,
            source_stamp=self._source_stamp,
            files=mark_of(()) if before is None else before.files,
        )
        return self._commit(outcome, proved.commits, record)

    def _check_groups(self, version: int) -> None:
        """Raise NotKept if fewer rows than `minimumGroup` share values. No message names the values."""
        least = self.target.projection.minimum_group
        if least is None:
            return
        rows = self._work.table(version).select(*map(quoted, least.columns))
        # By hashes, since Spark takes -0.0 and 0.0 for one value, and recipients see two.
        groups = rows.select(*row_hashes(rows.schema)).groupBy(*HASHES)
        small = (
            groups.agg(f.count(f.lit(1)).alias(_GROUP_ROWS)).where(f.col(_GROUP_ROWS) < least.rows).count()
        )
        if small:
            raise NotKept(
                f"{small} combinations of {', '.join(least.columns)} have fewer than {least.rows} rows "
                "(minimumGroup): the version is not published"
            )

    def _commit(self, outcome: Outcome, commits: CommitRange, record: Record) -> Record:
        """Publish what commits of the work table change. Raises NotProved if they were replaced."""
        number, now = outcome.version + 1, self.now_ms()
        files = commits.mark(record.files)
        record = replace(record, work_base=commits.base, work_stamp=commits.stamp, files=files)
        information: dict[str, Any] = {
            "timestamp": now,
            "operation": "PROJECT",
            "operationParameters": {},
            "engineInfo": "delta-gateway",
            RECORD_FIELD: record.as_json(),
        }
        transaction = {
            "appId": APP_ID + self.target.projection.name,
            "version": record.source_version,
            "lastUpdated": now,
        }
        with commits.published([{"commitInfo": information}, {"txn": transaction}]) as commit:
            self._step("proved")
            self._published.publish(number, commit)
        outcome.version = number
        self._step("published")
        self._published.checkpoint(number)
        return record

    def _maintain(self, outcome: Outcome, record: Record) -> None:
        """Compact and clean the work table when it is due."""
        now = self.now_ms()
        if max(record.optimized_ms, record.vacuumed_ms) > now:
            ahead = "the time of its last compaction or cleaning is in the future, and is ignored"
            outcome.remark = f"{outcome.remark}; {ahead}" if outcome.remark else ahead
        if self._may_compact(record, now):
            record = self._optimize(outcome, record, now)
        if self._is_due(record.vacuumed_ms, self.options.vacuum_hours, now):
            self._vacuum(now)
            commits = self._commits(record.work_version).read_to(self._work.latest().number)
            if not commits.keeps_files:
                raise NotKept("another writer has changed its work table meanwhile; the next run undoes that")
            # VACUUM changes no files of a version: the published commit only says when it ran.
            self._commit(outcome, commits, replace(record, vacuumed_ms=now, work_version=commits.last))

    @staticmethod
    def _is_due(last_ms: int, hours: int, now: int) -> bool:
        # A clock that was ahead has written a time in the future.
        return hours > 0 and not 0 <= now - last_ms < hours * _HOUR_MS

    def _optimize(self, outcome: Outcome, record: Record, now: int) -> Record:
        """Compact small files and files with removed rows, and publish the result if no row changed.

        Without such files the published commit only says when this was looked at.
        """
        base = record.work_version
        compact(self._work)
        self._step("optimized")
        commits = self._commits(base).read_to(self._work.latest().number)
        changes = commits.changes()
        before = digest(self._work.rows(base, changes.removed.values()))
        after = digest(self._work.rows(commits.last, changes.added.values()))
        if before != after:
            self._restore(base)
            raise NotProved("compaction has changed rows")
        return self._commit(outcome, commits, replace(record, work_version=commits.last, optimized_ms=now))

    def _vacuum(self, now: int) -> None:
        """Remove files that neither a version of the shared history nor its change data needs."""
        hours = _MIN_RETAINED_HOURS
        if self.target.first_version is not None:
            oldest = max(self._published.oldest(), self.target.first_version)
            oldest = min(oldest, self._published.number())
            begun_ms = self._published.begun_ms(oldest)
            if begun_ms > now:
                # Without its age the files that recipients need are unknown.
                return
            # VACUUM reads the clock later: at least one of the two hours remains.
            hours = max(hours, (now - begun_ms) // _HOUR_MS + 2)
        if hours > _KEPT_DAYS * 24:
            return
        DeltaTable.forPath(self.spark, self._work.root).vacuum(hours)
        self._step("vacuumed")

    def _digest_of_source(self, source: Version) -> Digest:
        return digest(projected(self._source.table(source.number), self.target.projection))

    def _digest_of_work(self, version: int) -> Digest:
        return digest(self._work.table(version))
