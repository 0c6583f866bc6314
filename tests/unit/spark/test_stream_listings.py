"""The number of listings of a stream. No Spark session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.spark.read import streaming
from gateway.spark.read.streaming import Offset, ShareStreamReader

VERSIONS, MOST = 10, 3


def task(version: int) -> Any:
    return SimpleNamespace(file=SimpleNamespace(version=version, id=str(version)), change_type=None)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ranges that were listed."""
    ranges: list[Any] = []

    def list_range(_reader: ShareStreamReader, versions: tuple[int, int]) -> Any:
        ranges.append(versions)
        tasks = [task(version) for version in range(versions[0], versions[1] + 1)]
        return streaming._Piece(None, tuple(streaming._in_versions(tasks, whole=False)))  # type: ignore[arg-type]

    monkeypatch.setattr(ShareStreamReader, "_list", list_range)
    monkeypatch.setattr(ShareStreamReader, "_check_start", lambda _reader, _start: None)
    monkeypatch.setattr(streaming, "partitions_of", lambda _options, _listing, _shape, tasks: tasks)
    monkeypatch.setattr(streaming.TableShape, "of", lambda _head: None)
    return ranges


def test_a_batch_of_a_backlog_lists_it_once(listed: list[Any]) -> None:
    options: Any = SimpleNamespace(
        starting_version=1,
        starting_timestamp=None,
        ending_version=None,
        max_files_per_trigger=MOST,
        max_versions_per_trigger=None,
        client=lambda: SimpleNamespace(version=lambda: VERSIONS),
    )
    reader = ShareStreamReader(options, None, None)  # type: ignore[arg-type]
    start, read = reader.initialOffset(), []
    while (end := reader.latestOffset()) != start:
        read.append([one.file.version for one in reader.partitions(start, end)])
        start = end
    assert read == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10]]
    assert listed == [(1, 10), (4, 10), (7, 10), (10, 10)]
    again = ShareStreamReader(options, None, None)  # type: ignore[arg-type]
    assert len(again.partitions(Offset(3).document, Offset(6).document)) == MOST
    assert listed[-1] == (4, 6)
