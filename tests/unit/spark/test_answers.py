"""What verify makes of answers about another version than the one that it compares."""

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql.types import StructType

from gateway.client.actions import TableHead
from gateway.client.pages import Page
from gateway.spark.targets import Target
from gateway.spark.verify import answers, one_table
from gateway.spark.verify.answers import Answers
from gateway.spark.verify.errors import NotCompared
from gateway.spark.verify.one_table import Verification
from gateway.spark.verify.own_log import Written
from gateway.spark.verify.results import TableResult, VerifyOptions

SCHEMA = json.dumps({"type": "struct", "fields": []})
HEAD = TableHead(SCHEMA, (), {}, version=5, num_files=0, size_bytes=0)


def answers_of(
    monkeypatch: pytest.MonkeyPatch, listed: int, latest: int, *, has_history: bool, written: Any = (5,)
) -> Answers:
    """Answers about version 5, of a server that lists another version. `written`: the versions of the log."""
    pages = [Page(replace(HEAD, version=listed), (), listed)]
    client: Any = SimpleNamespace(pages=lambda _query: iter(pages), version=lambda: latest)
    snapshot = SimpleNamespace(numOfFiles=lambda: 0)
    log: Any = SimpleNamespace(
        snapshot=lambda _version: snapshot, at=lambda _version: SimpleNamespace(has_feed=False)
    )
    monkeypatch.setattr(answers, "own_head", lambda _log, version: replace(HEAD, version=version))
    monkeypatch.setattr(answers, "facts_of_log", lambda *_words: Counter())
    monkeypatch.setattr(answers, "bound_differences", lambda *_words: [])
    looks = iter([written] if isinstance(written[0], int) else written)
    monkeypatch.setattr(answers, "latest_versions", lambda _log: [Written(one, 0) for one in next(looks)])
    return Answers(client, HEAD, log, Target("s.d.t", "/t"), 1, has_history, late_ms=1 << 50, begun_ms=0)


CHECKS = ("counts", "parquet", "statistics")


def check(one: Answers, name: str) -> list[str]:
    lines: list[str] = one.counts(0) if name == "counts" else getattr(one, name)()
    return lines


@pytest.mark.parametrize("name", CHECKS)
def test_a_listing_of_a_newer_version_is_not_compared(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(NotCompared, match="new version meanwhile"):
        check(answers_of(monkeypatch, 6, 6, has_history=False), name)
    assert check(answers_of(monkeypatch, 5, 6, has_history=False), name) == []


@pytest.mark.parametrize("name", ["counts", "parquet"])
@pytest.mark.parametrize(("latest", "has_history"), [(6, True), (5, False)])
def test_a_listing_of_another_version_than_was_asked_for_is_a_difference(
    monkeypatch: pytest.MonkeyPatch, name: str, latest: int, *, has_history: bool
) -> None:
    lines = check(answers_of(monkeypatch, 6, latest, has_history=has_history), name)
    assert any("the version differs from the log" in line for line in lines)


def test_a_version_that_is_committed_during_the_questions_is_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick = answers_of(monkeypatch, 5, 6, has_history=True, written=[[5], [6, 5]])
    assert quick.metadata() == []
    false = answers_of(monkeypatch, 5, 7, has_history=True, written=[[5], [6, 5]])
    assert false.metadata() == ["version 7 is reported as the latest, but the log has version 6"]


MINUTE_MS = 60_000


@pytest.mark.parametrize(("age_ms", "is_late"), [(-5 * MINUTE_MS, False), (11 * MINUTE_MS, True)])
def test_a_version_is_late_if_it_is_older_than_the_question_for_the_latest_one(
    monkeypatch: pytest.MonkeyPatch, age_ms: int, *, is_late: bool
) -> None:
    """Rows were compared for an hour after the question."""
    now_ms, log = 100 * MINUTE_MS, SimpleNamespace(at=lambda _version: SimpleNamespace(has_feed=False))
    client = SimpleNamespace(head=lambda *_words: HEAD, version=lambda: 6)
    monkeypatch.setattr(one_table, "epoch_ms", lambda: now_ms)
    monkeypatch.setattr(one_table, "ShareClient", lambda *_words: client)
    monkeypatch.setattr(one_table, "TableLog", lambda *_words: log)
    monkeypatch.setattr(answers, "own_head", lambda _log, _version: HEAD)
    written = [Written(6, now_ms - age_ms), Written(5, 0)]
    monkeypatch.setattr(answers, "latest_versions", lambda _log: written)
    share, sessions = SimpleNamespace(source="", profile=None), {True: None, False: None}
    one = one_table.Verification(
        sessions,  # type: ignore[arg-type]
        share,  # type: ignore[arg-type]
        Target("s.d.t", "/t"),
        VerifyOptions(),
        TableResult("s.d.t"),
    )
    now_ms += 60 * MINUTE_MS
    lines = one._answers.metadata()
    assert lines == (
        ["version 5 is returned as the latest, but the log has version 6 since 1970-01-01T01:29:00.000Z"]
        if is_late
        else []
    )


def test_the_log_is_listed_before_rows_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later its latest versions may all be newer ones, and no older version is compared."""
    order: list[str] = []
    client = SimpleNamespace(head=lambda *_words: HEAD)
    monkeypatch.setattr(one_table, "ShareClient", lambda *_words: client)
    monkeypatch.setattr(one_table, "TableLog", lambda *_words: SimpleNamespace())
    monkeypatch.setattr(one_table, "commit_mark", lambda *_words: "mark")
    monkeypatch.setattr(answers, "latest_versions", lambda _log: order.append("log") or [Written(5, 0)])
    for name in ("_shared", "_direct"):
        monkeypatch.setattr(one_table.Verification, name, lambda _self: SimpleNamespace(schema=StructType()))
    for name in ("_check_readings", "_check_answers"):
        monkeypatch.setattr(
            one_table.Verification, name, lambda _self, *_words, name=name: order.append(name)
        )
    share, sessions = SimpleNamespace(source="", profile=None), {True: None, False: None}
    target = Target("s.d.t", "/t", history=True)
    options = VerifyOptions(change_versions=0)
    monkeypatch.setattr(Answers, "has_feed", False)
    one = one_table.Verification(sessions, share, target, options, TableResult("s.d.t"))  # type: ignore[arg-type]
    one.run()
    assert order == ["log", "_check_readings", "_check_answers"]


def java_error(kind: str) -> Py4JJavaError:
    """An exception of Java: of a condition of Delta, or of a class."""

    def condition() -> str:
        if kind.startswith("DELTA_"):
            return kind
        raise Py4JError

    simple = SimpleNamespace(getSimpleName=lambda: kind)
    thrown: Any = SimpleNamespace(
        _target_id="o1", getCause=lambda: None, getCondition=condition, getClass=lambda: simple
    )
    return Py4JJavaError("", thrown)


LASTING = ("DELTA_LOG_FILE_NOT_FOUND", "FileNotFoundException")
ERRORS = [*((kind, True) for kind in LASTING), ("SocketTimeoutException", False)]


@pytest.mark.parametrize(("kind", "lasts"), ERRORS)
def test_an_older_version_is_left_out_where_its_commits_are_gone_and_else_an_error(
    monkeypatch: pytest.MonkeyPatch, kind: str, *, lasts: bool
) -> None:
    one = answers_of(monkeypatch, 5, 5, has_history=True)

    def fail(_log: Any, _version: int) -> TableHead:
        raise java_error(kind)

    monkeypatch.setattr(answers, "own_head", fail)
    with pytest.raises(NotCompared if lasts else Py4JJavaError):
        one.versions(Written(4, 0))


@pytest.mark.parametrize(("kind", "lasts"), ERRORS)
def test_change_data_that_spark_cannot_read_now_leave_a_table_unproved(kind: str, *, lasts: bool) -> None:
    class Failing:
        def __getattr__(self, _name: str) -> Any:
            return lambda *_words, **_options: self

        def load(self, _location: str) -> Any:
            raise java_error(kind)

    one: Any = Verification.__new__(Verification)
    one._result, one._target, one._head = TableResult("s.d.t"), Target("s.d.t", "/t"), HEAD
    one._options, one._history = VerifyOptions(shown_rows=0), True
    one._spark, one._first_change_version = SimpleNamespace(read=Failing()), lambda: 1
    one._check_changes()
    assert one._result.outcome == ("equal" if lasts else "unproved")
    assert "Spark cannot read them directly" in one._result.checks[0].skipped
