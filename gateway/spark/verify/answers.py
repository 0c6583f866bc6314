"""Compares what a server answers about a table, beside the rows of one version, with the table's own log.

In: a client, and the log that delta-spark reads. Out: descriptions of differences. What is compared follows
from the log and the configuration alone: a server that refuses, hides or leaves out a part differs.
"""

import datetime as dt
import json
import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from gateway.client.actions import FileKind, TableHead
from gateway.client.pages import Query, ShareClient
from gateway.client.transport import MALFORMED, HttpError
from gateway.spark.project.table_log import TableLog
from gateway.spark.read.schema import shared_schema
from gateway.spark.targets import Target
from gateway.spark.verify.bounds import bound_differences
from gateway.spark.verify.compare import compare_schemas
from gateway.spark.verify.counts import Listed, count_differences, limit_differences, listed, row_differences
from gateway.spark.verify.errors import NotCompared, is_lasting
from gateway.spark.verify.files import (
    FileFacts,
    Part,
    facts_of,
    facts_of_action,
    facts_of_log,
    file_differences,
)
from gateway.spark.verify.own_log import Written, has_own_time, latest_versions, own_head
from gateway.spark.verify.rules import within_rule

_UNREADABLE = (PySparkException, Py4JJavaError)

_STREAMED = 2
_TOLD = ("comment", "__CHAR_VARCHAR_TYPE_STRING")
_MOST_ACTIONS = 20_000
_MOST_LINES = 20


@dataclass(frozen=True)
class Answers:
    """The answers about one table at one version. `has_history`: whether the server answers others.

    `begun_ms`: when it was asked for the latest version, of which the comparison of rows may take hours.
    """

    client: ShareClient
    head: TableHead
    log: TableLog
    target: Target
    seed: int
    has_history: bool
    late_ms: int
    begun_ms: int

    @property
    def version(self) -> int:
        """Return the version that is compared."""
        return self.head.version or 0

    @cached_property
    def own(self) -> TableHead:
        """Return the head of the version in the log."""
        return own_head(self.log, self.version)

    @cached_property
    def written(self) -> list[Written]:
        """Return the latest versions in the log, the latest one first."""
        return latest_versions(self.log)

    @cached_property
    def older(self) -> Written | None:
        """Return a drawn version of the shared history before this one; None without any."""
        first = self.target.start_version
        earlier = [written for written in self.written if first <= written.version < self.version]
        return random.Random(self.seed).choice(earlier) if earlier else None  # noqa: S311 - no secret

    @property
    def has_feed(self) -> bool:
        """Return whether the log says that there are change data."""
        return self.log.at(self.version).has_feed

    def metadata(self) -> list[str]:
        """Describe what is stated of the table, and is not what its log says."""
        lines = head_differences("the metadata", self.head, self.own)
        feed = {
            name.removeprefix("delta.") for name, value in self.head.configuration.items() if value == "true"
        }
        if self.has_history and self.has_feed and "enableChangeDataFeed" not in feed:
            lines.append("the metadata does not say that there are change data")
        latest = self.client.version()
        newest = self.written[0].version
        if latest > newest:
            # A version may have been committed between the two questions.
            newest = latest_versions(self.log)[0].version
        if not self.version <= latest <= max(newest, self.version):
            lines.append(f"version {latest} is reported as the latest, but the log has version {newest}")
        late = [written for written in self.written if written.version > self.version]
        if late and late[-1].time_ms < self.begun_ms - self.late_ms:
            lines.append(
                f"version {self.version} is returned as the latest, but the log has version "
                f"{late[-1].version} since {_iso(late[-1].time_ms)}"
            )
        return lines

    def counts(self, rows: int) -> list[str]:
        """Describe numbers and files of the listing that are not those of the log, or of its `rows`."""
        at, whole = self._at, self._whole
        self._check_pinned(whole)
        lines = head_differences("the listing", whole.head, self.own)
        lines += count_differences(self.head, whole, rows) + self._file_differences("the listing", whole)
        if rows:
            limit = max(1, rows // 2)
            limited = self._listed(Query({**at, "limitHint": limit}))
            self._check_pinned(limited)
            lines += limit_differences(limited, limit, whole)
            lines += self._file_differences(f"limitHint {limit}", limited, has_all=False)
        return lines

    def statistics(self) -> list[str]:
        """Describe statistics of the listing that do not hold for the rows of their files."""
        self._check_pinned(self._whole)
        return bound_differences(self.log, self.own, self._part, self.seed, self._whole.facts)

    def versions(self, older: Written) -> list[str]:
        """Describe differences of the answers about an older version, asked for by its number and its time.

        Raises NotCompared.
        """
        version, name = older.version, f"version {older.version}"
        try:
            expected, facts = own_head(self.log, version), facts_of_log(self.log, version, self._part)
        except _UNREADABLE as error:
            raise _not_compared(error, "commits") from None
        lines = []
        questions: dict[str, dict[str, object]] = {name: {"version": version}}
        if has_own_time(self.log, older):
            text = _iso(older.time_ms)
            questions[f"{name} by its time"] = {"timestamp": text}
            number = self.client.version(text)
            if number != version:
                lines.append(f"version {number} is reported as the first since the time of {name}")
        for answer, at in questions.items():
            try:
                listing = self._listed(Query(at))
                head = self.client.head(at)
            except HttpError as error:
                lines.append(f"{answer}: {_told(error)}")
                continue
            lines += head_differences(answer, head, expected) + head_differences(
                f"{answer}, listed", listing.head, expected
            )
            lines += self._file_differences(answer, listing, facts)
            if self.target.condition is not None:
                lines += row_differences(answer, listing, self._rows_of(version))
        return lines

    def _rows_of(self, version: int) -> int:
        try:
            return within_rule(self.log.table(version), self.target).count()
        except _UNREADABLE as error:
            raise _not_compared(error, "files") from None

    @property
    def streamed(self) -> tuple[int, int]:
        """Return the first and the last of the versions that are read as a stream."""
        return max(self.target.start_version, self.version - _STREAMED + 1), self.version

    def stream(self) -> list[str]:
        """Describe differences of the latest versions as a stream reads them. Raises NotCompared."""
        first, last = self.streamed
        expected: Counter[tuple[int, FileKind, FileFacts]] = Counter()
        for version in range(first, last + 1):
            try:
                actions = list(islice(self.log.actions(version), _MOST_ACTIONS + 1))
            except FileNotFoundError as error:
                raise NotCompared(str(error)) from None
            if len(actions) > _MOST_ACTIONS:
                raise NotCompared(f"version {version} has more than {_MOST_ACTIONS:,} actions")
            expected.update(
                _changed(version, kind, facts_of_action(action[kind.value]))
                for action in actions
                for kind in (FileKind.ADD, FileKind.REMOVE)
                if kind.value in action and action[kind.value].get("dataChange", True)
            )
        parameters = {"startingVersion": first, "endingVersion": last, "includeHistoricalMetadata": True}
        streamed = [written for written in self.written if first <= written.version <= last]
        times = {written.version: written.time_ms for written in streamed if has_own_time(self.log, written)}
        served: Counter[tuple[int, FileKind, FileFacts]] = Counter()
        lines = []
        for page in self.client.pages(Query(parameters, has_stats=True)):
            for file in page.files:
                version = -1 if file.version is None else file.version
                if version > last:
                    # The end of a range is a hint to a server.
                    continue
                served[_changed(version, file.kind, facts_of(file))] += 1
                if version in times and file.timestamp_ms != times[version]:
                    lines.append(f"a file has another time than version {version}")
        groups = {(version, kind) for version, kind, _ in (*served, *expected)}
        for version, kind in sorted(groups, key=str):
            sides = [
                Counter({change[2]: count for change, count in side.items() if change[:2] == (version, kind)})
                for side in (served, expected)
            ]
            answer = f"{kind.value} of version {version}"
            lines += file_differences(answer, *sides, has_all=self.target.condition is None)
        return list(dict.fromkeys(lines))[:_MOST_LINES]

    @property
    def allows_parquet(self) -> bool:
        """Return whether a table can be read in the parquet format, by its log."""
        protocol = json.loads(self.log.snapshot(self.version).protocol().json())["protocol"]
        return bool(protocol["minReaderVersion"] == 1)

    def parquet(self) -> list[str]:
        """Describe differences of the listing in the parquet format."""
        try:
            listing = self._listed(Query(self._at, is_parquet=True))
        except HttpError as error:
            return [f"the parquet format: {_told(error)}"]
        self._check_pinned(listing)
        lines = head_differences("the parquet format", listing.head, self.own)
        return lines + self._file_differences("the parquet format", listing)

    @property
    def _at(self) -> dict[str, Any]:
        return {"version": self.version} if self.has_history else {}

    @cached_property
    def _whole(self) -> Listed:
        return self._listed(Query(self._at))

    @cached_property
    def _part(self) -> Part:
        return Part.drawn(int(self.log.snapshot(self.version).numOfFiles()), self.seed)

    @cached_property
    def _facts(self) -> Counter[FileFacts]:
        return facts_of_log(self.log, self.version, self._part)

    def _check_pinned(self, listing: Listed) -> None:
        check_pinned(self.client, listing.head.version, self.version, has_history=self.has_history)

    def _listed(self, query: Query) -> Listed:
        return listed(self.client, replace(query, has_stats=True), self._part)

    def _file_differences(
        self, answer: str, served: Listed, expected: Counter[FileFacts] | None = None, *, has_all: bool = True
    ) -> list[str]:
        # A rule leaves files out.
        is_whole = has_all and self.target.condition is None
        return file_differences(
            answer, served.facts, self._facts if expected is None else expected, has_all=is_whole
        )


def _not_compared(error: Exception, what: str) -> Exception:
    """Return what to raise for an error of Spark: itself, where the next run may be without it."""
    return NotCompared(f"Spark cannot read it: its {what} are gone") if is_lasting(error) else error


def check_pinned(
    client: ShareClient, answered: int | None, version: int | None, *, has_history: bool
) -> None:
    """Raise NotCompared for an answer of a later version of a table that is shared without history."""
    if answered != version and not has_history and client.version() != version:
        raise NotCompared("the table has a new version meanwhile")


def head_differences(answer: str, served: TableHead, expected: TableHead) -> list[str]:
    """Describe the differences of what is stated of a table."""
    names = (
        "version",
        "table_id",
        "description",
        "partition_columns",
        "column_mapping_mode",
        "reader_features",
    )
    lines = [
        f"{answer}: the {name.replace('_', ' ')} differs from the log"
        for name in names
        if getattr(served, name) != getattr(expected, name)
    ]
    of_share, of_table = shared_schema(served), shared_schema(expected)
    lines += [f"{answer}: {line}" for line in compare_schemas(of_share, of_table)]
    stated = {field.name: _told_of(field.jsonValue()) for field in of_share.fields}
    if not lines:
        lines += [
            f"{answer}: the metadata of column {field.name}, such as its comment, differs"
            for field in of_table.fields
            if stated[field.name] != _told_of(field.jsonValue())
        ]
    return lines


def _told_of(node: Any) -> Any:
    """Return a column in JSON without metadata that recipients need not be told, such as its default."""
    if isinstance(node, dict):
        return {
            name: {key: value[key] for key in _TOLD if key in value}
            if name == "metadata"
            else _told_of(value)
            for name, value in node.items()
        }
    return [_told_of(item) for item in node] if isinstance(node, list) else node


def _told(error: HttpError) -> HttpError:
    """Return the error of a refusal or of an answer that is no listing; nothing is known of a lost one."""
    if error.is_refusal or error.status == MALFORMED:
        return error
    raise error


def _changed(version: int, kind: FileKind, facts: FileFacts) -> tuple[int, FileKind, FileFacts]:
    """Return a change of a file. A `remove` need not say more than which file it is."""
    if kind is FileKind.REMOVE:
        facts = FileFacts(facts.name, 0, (), facts.deletion_vector, "")
    return version, kind, facts


def _iso(time_ms: int) -> str:
    moment = dt.datetime.fromtimestamp(time_ms // 1000, dt.UTC).replace(tzinfo=None)
    return f"{moment.isoformat()}.{time_ms % 1000:03}Z"
