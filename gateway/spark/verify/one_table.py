"""Compares one shared table, as a recipient reads it, with the same table read by delta-spark.

Out: a `TableResult`: the schema, the digest, the change data, several uses of one DataFrame and the soundness
of predicate hints, each compared with delta-spark's reading of the same version. Where the recipient's grants
have conditions, Spark evaluates them on the rows that it read. A difference is traced to partitions, files
and rows. delta-spark reads with data skipping off; if it skips wrongly itself, a second read with skipping on
shows it.
"""

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from gateway.client.actions import TableHead
from gateway.client.pages import ShareClient
from gateway.client.profile import Profile
from gateway.client.table_name import TableName
from gateway.client.transport import HttpError
from gateway.spark.project.table_log import TableLog
from gateway.spark.read.directory import DIRECTORY
from gateway.spark.read.reading import FILE_NAME_FIELD
from gateway.spark.source import FORMAT
from gateway.spark.targets import Target
from gateway.spark.verify.answers import Answers
from gateway.spark.verify.commit_mark import commit_mark
from gateway.spark.verify.compare import (
    Comparison,
    GroupDifference,
    compare_groups,
    compare_schemas,
    differing_rows,
    in_groups,
)
from gateway.spark.verify.digest import digest, digests, quoted
from gateway.spark.verify.directory import compare_directory
from gateway.spark.verify.errors import NotCompared, described, is_lasting
from gateway.spark.verify.history import Proof
from gateway.spark.verify.predicates import Predicate, draw_predicates
from gateway.spark.verify.readings import Filtered, Found, read_all, remark_on, use_differences
from gateway.spark.verify.results import Check, TableResult, VerifyOptions
from gateway.spark.verify.rules import filtered_without_skipping, within_rule
from gateway.times import epoch_ms

CONNECTOR_FORMAT = "deltaSharing"
_FEW_ROWS_BYTES = 8 << 20
_CHANGE_KEYS = ("_change_type", "_commit_version")
_MOST_FILES = 50
_BAD_REQUEST = 400


@dataclass(frozen=True)
class Share:
    """A profile: as the option of Spark's sources, and parsed."""

    source: str
    profile: Profile


class Verification:
    """Compares one table at one version, and adds what it finds to `result`."""

    def __init__(
        self,
        sessions: Mapping[bool, SparkSession],
        share: Share,
        target: Target,
        options: VerifyOptions,
        result: TableResult,
        *,
        proof: Proof | None = None,
    ) -> None:
        self._profile = share.source
        self._target = target
        self._options = options
        self._result = result
        self._client = ShareClient(share.profile, TableName.parse(target.table))
        self._begun_ms = epoch_ms()
        self._head: TableHead = self._client.head()
        size_bytes = self._head.size_bytes
        self._has_few_rows = size_bytes is not None and size_bytes <= _FEW_ROWS_BYTES
        self._spark = sessions[self._has_few_rows]
        self._proof = proof if options.incremental else None

    def run(self) -> None:
        """Compare the table, unless its proof holds. Raises the errors of either side."""
        result, head = self._result, self._head
        result.version, result.bytes, result.files = head.version, head.size_bytes or 0, head.num_files or 0
        result.table_id = head.table_id
        # Before the rows: if the table is put back meanwhile, the next run finds another mark.
        if head.version is not None:
            result.commit_mark = commit_mark(self._spark, self._target.location, head.version)
        if self._proof is not None and not self._is_of_this_past(self._proof):
            self._proof = None
        if self._proof is not None and self._is_proved(self._proof):
            result.unchanged_since = self._proof.proved_at
            return
        # Before the rows, whose comparison may take hours: of the versions the latest few are known.
        _ = self._answers.written
        shared, direct = self._shared(), self._direct()
        self._check("schema", lambda: compare_schemas(shared.schema, direct.schema))
        if result.checks[-1].passed:
            self._check_readings(shared, direct)
        self._check_answers()
        if self._options.directory:
            self._check_directory()
        if self._target.history and not self._history:
            refused = f"the history is shared, and the server refuses version {head.version}"
            self._check("history", lambda: [refused])
        elif self._target.history is None and not self._history:
            reason = (
                "the server refuses versions, and the list does not say whether that is right (historyShared)"
            )
            self._skip("history", reason, is_expected=False)
        if self._answers.has_feed and self._options.change_versions > 0:
            self._check_changes()

    def _is_of_this_past(self, proof: Proof) -> bool:
        """Return whether the log has the commit of a proof, and not another one of that version."""
        if proof.version == self._head.version:
            mark = self._result.commit_mark
        else:
            mark = commit_mark(self._spark, self._target.location, proof.version)
        return mark is not None and (proof.table_id, proof.commit_mark) == (self._head.table_id, mark)

    def _is_proved(self, proof: Proof) -> bool:
        """Return whether a proof is of this version, and not too old."""
        age = dt.datetime.now(dt.UTC) - proof.proved_at
        return proof.version == self._head.version and age < self._options.prove_again_after

    @cached_property
    def _history(self) -> bool:
        try:
            self._client.head({"version": self._head.version})
        except HttpError as error:
            if error.status != _BAD_REQUEST:
                raise
            return False
        return True

    def has_moved_on(self) -> bool:
        """Return whether the shared rows may be of another version than the direct ones."""
        is_pinned = self._history or not self._options.connector
        return not is_pinned and self._client.head().version != self._head.version

    def _check(self, name: str, compare: Callable[[], Sequence[str]]) -> None:
        started = time.monotonic()
        try:
            differences = tuple(compare())
        except NotCompared as reason:
            self._skip(name, str(reason))
            return
        self._result.checks.append(Check(name, time.monotonic() - started, differences))

    def _skip(self, name: str, reason: str, *, is_expected: bool = True) -> None:
        self._result.checks.append(Check(name, 0.0, skipped=reason, is_expected=is_expected))

    def _shared(self, **options: Any) -> DataFrame:
        if self._history:
            return self._read_share(versionAsOf=self._head.version, **options)
        # Reads of a table that gets a new version meanwhile differ, and are tried again.
        pinned = {} if self._options.connector else {"expectedVersion": self._head.version}
        return self._read_share(**pinned, **options)

    def _read_share(self, **options: Any) -> DataFrame:
        if self._options.connector:
            reading = self._spark.read.format(CONNECTOR_FORMAT).options(responseFormat="delta", **options)
            return reading.load(f"{self._profile}#{self._target.table}")
        reading = self._spark.read.format(FORMAT).options(profile=self._profile, **options)
        return reading.load(self._target.table)

    def _direct(self, *, file_name: str | None = None) -> DataFrame:
        """Return the table's rows that the recipient may read, perhaps with the names of their files."""
        reading = self._spark.read.format("delta").option("versionAsOf", str(self._head.version))
        whole = reading.load(self._target.location)
        if file_name is not None:
            whole = whole.withColumn(file_name, whole.metadataColumn("_metadata").getField("file_name"))
        return within_rule(whole, self._target)

    @cached_property
    def _answers(self) -> Answers:
        log = TableLog(self._spark, self._target.location)
        return Answers(
            self._client,
            self._head,
            log,
            self._target,
            self._options.seed,
            self._history,
            self._options.late_ms,
            self._begun_ms,
        )

    def _check_answers(self) -> None:
        """Compare what the server answers beside the rows of this version."""
        answers, older = self._answers, self._answers.older
        self._check("metadata", answers.metadata)
        if self._history and older is not None:
            self._check(f"version {older.version}", partial(answers.versions, older))
        if self._history:
            first, last = answers.streamed
            self._check(f"stream {first} to {last}", answers.stream)
        if answers.allows_parquet:
            self._check("parquet", answers.parquet)
        if self._head.num_files is None or self._head.size_bytes is None:
            self._skip("sizes", "the server does not state the numbers of files and bytes", is_expected=False)

    def _check_directory(self) -> None:
        if DIRECTORY not in self._head.access_modes:
            self._skip("directory", "the table does not offer directory access")
            return
        compare = partial(compare_directory, self._client, self._head.version, has_history=self._history)
        self._check("directory", compare)

    def _check_readings(self, shared: DataFrame, direct: DataFrame) -> None:
        """Compare all rows, filters, and several uses of one DataFrame, with one reading of the table."""
        started = time.monotonic()
        drawn = draw_predicates(
            direct,
            self._options.predicates,
            self._options.seed,
            first_on=self._head.partition_columns,
        )
        hinted = list(map(self._hinted, drawn))
        results = read_all(shared, direct, drawn, hinted, in_one_task=self._has_few_rows)
        # One job has made them all.
        seconds = (time.monotonic() - started) / (len(drawn) + 2 if drawn else 1)
        self._result.rows = results.shared.rows
        self._result.checks.append(
            Check("rows", seconds, tuple(self._row_differences(shared, direct, results)))
        )
        self._check("counts", lambda: self._answers.counts(results.direct.rows))
        self._check("statistics", self._answers.statistics)
        for number, (predicate, filtered) in enumerate(zip(drawn, results.filtered, strict=True), 1):
            name = predicate.text if self._options.shown_rows > 0 else f"{number} on {predicate.field}"
            differences = self._filter_differences(predicate, direct, filtered)
            remark = remark_on(filtered)
            check = Check(f"predicate {name}", seconds, tuple(differences), remark=remark)
            self._result.checks.append(check)
        if drawn:
            again = time.monotonic()
            uses = {**results.uses, "all rows, after filters": (digest(shared), results.direct)}
            differences = use_differences(uses)
            seconds += time.monotonic() - again
            self._result.checks.append(Check("uses", seconds, tuple(differences)))

    def _row_differences(self, shared: DataFrame, direct: DataFrame, results: Found) -> list[str]:
        if results.shared == results.direct:
            return []
        keys = list(self._head.partition_columns)
        comparison = compare_groups(shared, direct, keys)
        summary = f"digest {results.shared} shared, {results.direct} in the table"
        lines = [summary, *_partition_lines(comparison, keys, shown=self._options.shown_rows > 0)]
        groups = [group.key for group in comparison.differences[:_MOST_FILES]]
        return lines + self._drill_down(keys, groups)

    def _drill_down(self, keys: Sequence[str], groups: Sequence[tuple[str | None, ...]]) -> list[str]:
        """Find the differing files of the differing partitions, then the differing rows of those files."""
        name = FILE_NAME_FIELD.name
        has_own = name in (column.lower() for column in self._direct().columns)
        if self._options.connector or has_own:
            shared, direct = (in_groups(side, keys, groups) for side in (self._shared(), self._direct()))
            return [f"row {row}" for row in differing_rows(shared, direct, self._options.shown_rows)]
        shared = in_groups(self._shared(withFileName="true"), keys, groups)
        direct = in_groups(self._direct(file_name=name), keys, groups)
        files = compare_groups(shared, direct, [name])
        names = [str(difference.key[0]) for difference in files.differences[:_MOST_FILES]]
        lines = [f"file {difference.key[0]}: {difference}" for difference in files.differences[:_MOST_FILES]]
        rows = differing_rows(
            shared.where(f.col(name).isin(names)).drop(name),
            direct.where(f.col(name).isin(names)).drop(name),
            self._options.shown_rows,
        )
        return lines + [f"row {row}" for row in rows]

    def _hinted(self, predicate: Predicate) -> DataFrame:
        """Return the shared rows of a filter, which is a hint for the server as well.

        By a hint it may omit only files without such rows.
        """
        hints = (
            {} if self._options.connector or predicate.hint is None else {"predicateHints": predicate.hint}
        )
        return self._shared(**hints).where(predicate.column)

    def _filter_differences(self, predicate: Predicate, direct: DataFrame, results: Filtered) -> list[str]:
        if results.shared == results.direct:
            return []
        shared = self._hinted(predicate)
        truth = filtered_without_skipping(direct, predicate.column)
        rows = differing_rows(shared, truth, self._options.shown_rows)
        return [str(GroupDifference((), results.shared, results.direct)), *(f"row {row}" for row in rows)]

    def _check_changes(self) -> None:
        if not self._history:
            self._skip("changes", "the table is not shared with history")
            return
        first = self._first_change_version()
        versions = {"startingVersion": str(first), "endingVersion": str(self._head.version)}
        name = f"changes {first} to {self._head.version}"
        reading = self._spark.read.format("delta").options(readChangeFeed="true", **versions)
        direct = None
        try:
            direct = within_rule(reading.load(self._target.location), self._target)
            shared = self._read_share(readChangeFeed="true", **versions)
            self._check(name, partial(self._compare_changes, shared, direct))
        except Exception as error:
            # Spark itself cannot read some, such as over a rename or of files that are gone.
            reason = error if direct is None else _failure(direct)
            if reason is None:
                raise
            message = described(reason, has_values=self._options.shown_rows > 0)
            lasts = is_lasting(reason)
            self._skip(name, f"Spark cannot read them directly: {message}", is_expected=lasts)

    def _compare_changes(self, shared: DataFrame, direct: DataFrame) -> list[str]:
        schema = compare_schemas(shared.schema, direct.schema)
        if schema:
            return schema
        of_table, of_share = digests([direct, shared], in_one_task=self._has_few_rows)
        if of_share == of_table:
            return []
        comparison = compare_groups(shared, direct, _CHANGE_KEYS)
        groups = [difference.key for difference in comparison.differences[:_MOST_FILES]]
        rows = differing_rows(
            in_groups(shared, _CHANGE_KEYS, groups),
            in_groups(direct, _CHANGE_KEYS, groups),
            self._options.shown_rows,
        )
        # Where a second reading differs no more, this line alone says that the first one did.
        lines = [f"digest {of_share} shared, {of_table} in the table"]
        lines += [
            f"{difference.key[0]} of version {difference.key[1]}: {difference}"
            for difference in comparison.differences
        ]
        return lines + [f"row {row}" for row in rows]

    def _first_change_version(self) -> int:
        """Return the first of the latest versions that all have the change data feed.

        After a proof these are the versions since it, however many.
        """
        most, version = self._options.change_versions, self._head.version or 0
        if self._proof is not None and self._proof.version < version:
            most = version - self._proof.version
        history = self._spark.sql(f"DESCRIBE HISTORY delta.{quoted(self._target.location)}")
        rows = (
            history.where(f.col("version") <= f.lit(self._head.version))
            .orderBy(f.desc("version"))
            .limit(most)
            .select("version", f.to_json("operationParameters").alias("parameters"))
            .collect()
        )
        oldest = int(rows[-1]["version"])
        for row in rows:
            if "enableChangeDataFeed" in (row["parameters"] or ""):
                oldest = int(row["version"])
                break
        return max(oldest, self._target.start_version)


def _failure(frame: DataFrame) -> Exception | None:
    """Return the error of a DataFrame; None if Spark can read all of its rows."""
    try:
        digest(frame)
    except Exception as error:  # noqa: BLE001 - for a report
        return error
    return None


def _partition_lines(comparison: Comparison, keys: Sequence[str], *, shown: bool) -> list[str]:
    if not keys:
        return []
    if not shown:
        return [f"{comparison.differing} of {comparison.groups} partitions differ"]
    lines = []
    for group in comparison.differences:
        values = ", ".join(f"{key}={value}" for key, value in zip(keys, group.key, strict=True))
        lines.append(f"partition {values}: {group}")
    omitted = comparison.differing - len(lines)
    return [*lines, f"and {omitted} more partitions"] if omitted else lines
