"""A commit that cannot be read is not a commit that is gone."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from gateway.spark.project.table_log import TableLog


def failing(kind: str, monkeypatch: pytest.MonkeyPatch) -> TableLog:
    """The log of a table whose commits fail with an exception of Java."""
    thrown: Any = SimpleNamespace(
        _target_id="o1", getClass=lambda: SimpleNamespace(getSimpleName=lambda: kind)
    )

    def fail(*_words: Any) -> Any:
        raise Py4JJavaError("", thrown)

    log = TableLog.__new__(TableLog)
    monkeypatch.setattr(log, "_file", lambda number: number, raising=False)
    monkeypatch.setattr(log, "_lines", fail, raising=False)
    monkeypatch.setattr(log, "_status", fail, raising=False)
    return log


def test_a_commit_that_is_gone_has_no_actions_and_no_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    log = failing("FileNotFoundException", monkeypatch)
    with pytest.raises(FileNotFoundError, match="version 7 is not in the log"):
        list(log.actions(7))
    assert log.stamp(7) == ""


def test_a_commit_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify would leave the comparison out, and a projection take any commit of that number for its own."""
    log = failing("SocketTimeoutException", monkeypatch)
    with pytest.raises(Py4JJavaError):
        list(log.actions(7))
    with pytest.raises(Py4JJavaError):
        log.stamp(7)
