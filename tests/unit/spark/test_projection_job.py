"""What a job decides without reading a row: when work is due, and why a projection is written anew."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from gateway.spark.project import job as writing
from gateway.spark.project.changes import Written
from gateway.spark.project.errors import NotKept, NotProved
from gateway.spark.project.job import Job
from gateway.spark.project.results import Options, Outcome
from gateway.spark.project.table_log import CHANGE_TYPE
from gateway.spark.verify.digest import EMPTY, Digest

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("last_ms", "hours", "due"),
    [
        (NOW_MS - 23 * HOUR_MS, 24, False),
        (NOW_MS, 24, False),
        (NOW_MS - 24 * HOUR_MS, 24, True),
        # A clock that was ahead wrote it: it counts as never.
        (NOW_MS + 1, 24, True),
        (NOW_MS + 9000 * HOUR_MS, 24, True),
        (NOW_MS + 1, 0, False),
        (0, 0, False),
    ],
)
def test_work_is_due_after_its_hours_and_after_a_date_ahead_of_now(
    last_ms: int, hours: int, *, due: bool
) -> None:
    assert Job._is_due(last_ms, hours, NOW_MS) is due


@pytest.mark.parametrize(
    ("changed_ms", "optimized_ms", "due"),
    [
        (NOW_MS - 30 * HOUR_MS, NOW_MS - 30 * HOUR_MS, False),
        (NOW_MS - 40 * HOUR_MS, NOW_MS - 30 * HOUR_MS, False),
        (NOW_MS - 29 * HOUR_MS, NOW_MS - 30 * HOUR_MS, True),
        (NOW_MS - HOUR_MS, NOW_MS - 23 * HOUR_MS, False),
        (NOW_MS - HOUR_MS, NOW_MS + HOUR_MS, True),
        (0, NOW_MS - 30 * HOUR_MS, True),
    ],
)
def test_rows_that_have_not_changed_since_are_not_compacted_again(
    changed_ms: int, optimized_ms: int, *, due: bool
) -> None:
    job = Job.__new__(Job)
    job.options = Options(optimize_hours=24)
    record: Any = SimpleNamespace(changed_ms=changed_ms, optimized_ms=optimized_ms)
    assert job._may_compact(record, NOW_MS) is due


def column(name: str, kind: str = "long", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def source(*columns: dict[str, Any], table_id: str = "t", number: int = 7, partitions: str = "") -> Any:
    """A version of a source, as far as a reason looks at it."""
    schema = StructType.fromJson({"type": "struct", "fields": [*columns]})
    return SimpleNamespace(table_id=table_id, number=number, partitions=partitions.split(), schema=schema)


NUMBERED = column("id", **{"delta.identity.highWaterMark": 3})
BEFORE = source(NUMBERED, column("zip", "string"), number=5)


def reason(now: Any, *, before: Any = BEFORE, stamp: str = "a", whole: bool = False, other: str = "") -> Any:
    """Why changes from the version that the record is of up to another one cannot be applied."""

    def at(_number: int) -> Any:
        if before is None:
            raise FileNotFoundError
        return before

    record = SimpleNamespace(
        source_id="t",
        source_version=5,
        source_stamp="a",
        evaluation=SimpleNamespace(difference=lambda _now: other),
    )
    job = Job.__new__(Job)
    job.options = SimpleNamespace(whole=whole)  # type: ignore[assignment]
    job._evaluation = None  # type: ignore[assignment]
    job._source = SimpleNamespace(at=at, stamp=lambda _number: stamp)  # type: ignore[assignment]
    return job._reason_to_rewrite(now, record)  # type: ignore[arg-type]


def test_comments_and_numbers_of_an_identity_column_are_no_reason_to_write_anew() -> None:
    later = column("id", **{"delta.identity.highWaterMark": 9})
    assert reason(source(later, column("zip", "string", comment="changed"), column("more"))) is None
    nested = {"type": "struct", "fields": [column("a", comment="inner")]}
    plain = {"type": "struct", "fields": [column("a")]}
    of_struct = source(column("s", nested), number=5)  # type: ignore[arg-type]
    assert reason(source(column("s", plain)), before=of_struct) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"now": source(NUMBERED, table_id="another")}, "the source is another table"),
        ({"now": source(NUMBERED, number=4)}, "the source was restored to an earlier version"),
        ({"now": source(NUMBERED), "stamp": "b"}, "the source has another history"),
        ({"now": source(NUMBERED), "before": None}, "the source's log does not go back far enough"),
        ({"now": source(NUMBERED)}, "the source's columns have changed"),
        ({"now": source(NUMBERED, column("zip"))}, "the source's columns have changed"),
        (
            {"now": source(NUMBERED, column("zip", "string"), column(CHANGE_TYPE))},
            f"the source has a column '{CHANGE_TYPE}'",
        ),
        (
            {"now": source(NUMBERED, column("zip", "string"), partitions="zip")},
            "the source is partitioned by other columns",
        ),
        (
            {"now": BEFORE, "whole": True, "other": "timeParserPolicy"},
            "the rule is evaluated differently (timeParserPolicy)",
        ),
    ],
)
def test_each_reason_to_write_anew_is_said(given: dict[str, Any], said: str) -> None:
    assert reason(**given) == said


def test_a_rule_that_is_evaluated_differently_is_not_applied_unasked() -> None:
    with pytest.raises(NotKept, match=r"timeParserPolicy.*--whole"):
        reason(BEFORE, other="timeParserPolicy")


def one_row(hashed: int) -> Digest:
    return Digest(1, (hashed, hashed), (hashed, hashed))


PUBLISHED, ADDED, OTHER = one_row(5), one_row(17), one_row(40)


def changed(
    monkeypatch: pytest.MonkeyPatch, written: Written, *, whole: Digest | None = None, many: bool = False
) -> tuple[Any, Outcome]:
    """What a job proves of changes by which the rule adds ADDED, where this was written."""
    few = None if many else SimpleNamespace(digest=ADDED, release=lambda: None)
    monkeypatch.setattr(writing, "Changed", lambda *_: SimpleNamespace(rows=lambda: None))
    monkeypatch.setattr(writing, "few_changes", lambda *_: few)
    monkeypatch.setattr(writing, "apply_few", lambda *_: written)
    job, outcome = Job.__new__(Job), Outcome(("s.d.t",))
    job.options = SimpleNamespace(whole=whole is not None)  # type: ignore[assignment]
    job.target = SimpleNamespace(projection=None)  # type: ignore[assignment]
    job._source = SimpleNamespace(changes=lambda *_: None)  # type: ignore[assignment]
    job._work = job._step = None  # type: ignore[assignment]
    fakes = {
        "_files_of": None,
        "_by_many": (ADDED, written),
        "_digest_of_source": whole,
        "_digest_of_work": PUBLISHED + ADDED,
    }
    for name, answer in fakes.items():
        monkeypatch.setattr(job, name, lambda *_, answer=answer: answer)
    record = SimpleNamespace(source_version=5, digest=PUBLISHED)
    return job._by_changes(outcome, 3, BEFORE, record), outcome  # type: ignore[arg-type]


COMMITS: Any = SimpleNamespace(last=4)


@pytest.mark.parametrize("many", [False, True])
def test_changes_are_proved_where_those_of_the_rule_were_written(
    monkeypatch: pytest.MonkeyPatch, *, many: bool
) -> None:
    right = Written(COMMITS, ADDED + OTHER, OTHER)
    for whole in (None, PUBLISHED + ADDED):
        proved, outcome = changed(monkeypatch, right, whole=whole, many=many)
        assert (proved.digest, proved.commits) == (PUBLISHED + ADDED, COMMITS)
        assert (outcome.how, outcome.changed_rows) == ("changed", 3)
    for inserted, deleted in ((EMPTY, EMPTY), (OTHER, EMPTY), (ADDED + OTHER, EMPTY), (ADDED, OTHER)):
        with pytest.raises(NotProved, match="the changed rows differ"):
            changed(monkeypatch, Written(COMMITS, inserted, deleted), many=many)
    with pytest.raises(NotProved, match="the rows differ"):
        changed(monkeypatch, right, whole=PUBLISHED, many=many)


@pytest.mark.parametrize(
    ("seconds", "passed_ms", "early"),
    [(None, 0, False), (60, 59_999, True), (60, 60_000, False), (60, -1, False)],
)
def test_versions_are_apart_by_the_given_time(seconds: int | None, passed_ms: int, *, early: bool) -> None:
    job = Job.__new__(Job)
    job.options = SimpleNamespace(whole=False)  # type: ignore[assignment]
    job.target = SimpleNamespace(  # type: ignore[assignment]
        projection=SimpleNamespace(publish_every_seconds=seconds)
    )
    job.now_ms = lambda: NOW_MS + passed_ms
    assert job._is_early(SimpleNamespace(changed_ms=NOW_MS)) is early  # type: ignore[arg-type]
