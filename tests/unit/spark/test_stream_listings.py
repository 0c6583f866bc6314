"""The requests of a stream: its listings, and the columns that it reads. No Spark session."""

import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from support.scripted_server import listening

from gateway.client.actions import TableHead
from gateway.spark import source
from gateway.spark.read import streaming
from gateway.spark.read.evolution import SchemaChanged
from gateway.spark.read.options import ReadOptions
from gateway.spark.read.streaming import Offset, ShareStreamReader

VERSIONS, MOST = 10, 3


MINUTE_MS = 60_000


class Clock:
    """`step_ms` pass with each look at the time; URLs live for `lifetime_ms`, or nobody knows."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.step_ms = 0
        self.lifetime_ms: int | None = None

    def __call__(self) -> int:
        self.now_ms += self.step_ms
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def task(version: int, expires_ms: int | None) -> Any:
    file = SimpleNamespace(version=version, id=str(version), expires_ms=expires_ms)
    return SimpleNamespace(file=file, change_type=None)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[Any]:
    """The ranges that were listed."""
    ranges: list[Any] = []

    def list_range(_reader: ShareStreamReader, versions: tuple[int, int], now_ms: int, **_words: Any) -> Any:
        ranges.append(versions)
        expires_ms = None if clock.lifetime_ms is None else clock.now_ms + clock.lifetime_ms
        tasks = [task(version, expires_ms) for version in range(versions[0], versions[1] + 1)]
        placed = tuple(streaming._in_versions(tasks, whole=False))
        return streaming._Piece(versions, now_ms, None, placed)  # type: ignore[arg-type]

    monkeypatch.setattr(ShareStreamReader, "_list", list_range)
    monkeypatch.setattr(ShareStreamReader, "_check_start", lambda _reader, _start: None)
    monkeypatch.setattr(streaming, "partitions_of", lambda _options, _listing, tasks, _inserted: tasks)
    return ranges


def reader(clock: Clock, table_id: str | None = None) -> ShareStreamReader:
    options: Any = SimpleNamespace(
        starting_version=1,
        starting_timestamp=None,
        ending_version=None,
        max_files_per_trigger=MOST,
        max_versions_per_trigger=None,
        client=lambda: SimpleNamespace(version=lambda: VERSIONS),
    )
    head = TableHead("", (), {}, table_id=table_id)
    return ShareStreamReader(options, None, head, now_ms=clock)  # type: ignore[arg-type]


def batches(mine: ShareStreamReader) -> list[list[int]]:
    start, read = mine.initialOffset(), []
    while (end := mine.latestOffset()) != start:
        partitions: Any = mine.partitions(start, end)
        read.append([one.file.version for one in partitions])
        start = end
    return read


@pytest.mark.parametrize(
    ("step_ms", "lifetime_ms", "listings"),
    [
        (0, None, [(1, 10)]),
        (0, 5 * MINUTE_MS, [(1, 10)]),
        # The second look plans the batch; the third one, for the next batch, is after half of the lifetime.
        (2 * MINUTE_MS, 5 * MINUTE_MS, [(1, 10), (4, 10), (7, 10), (10, 10)]),
        (3 * MINUTE_MS, 60 * MINUTE_MS, [(1, 10)]),
        (4 * MINUTE_MS, None, [(1, 10), (7, 10)]),
    ],
)
def test_a_backlog_is_listed_again_after_half_of_the_lifetime_of_its_urls(
    listed: list[Any], clock: Clock, step_ms: int, lifetime_ms: int | None, listings: list[Any]
) -> None:
    clock.step_ms, clock.lifetime_ms = step_ms, lifetime_ms
    assert batches(reader(clock)) == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10]]
    assert listed == listings


def test_a_backlog_is_not_listed_again_for_each_commit(
    listed: list[Any], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = reader(clock)
    latest = iter(range(10, 15))
    client = SimpleNamespace(version=lambda: next(latest, 14))
    monkeypatch.setattr(mine._options, "client", lambda: client)
    assert batches(mine) == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10], [11, 12, 13], [14]]
    assert listed == [(1, 10), (11, 14)]


@pytest.mark.usefixtures("listed")
def test_a_batch_of_a_long_backlog_looks_at_few_of_its_files(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "VERSIONS", 600)
    looks, order = [0], streaming._order

    def counted(offset: Offset) -> tuple[int, int, float]:
        looks[0] += 1
        return order(offset)

    monkeypatch.setattr(streaming, "_order", counted)
    found = batches(reader(clock))
    assert [version for batch in found for version in batch] == list(range(1, 601))
    assert looks[0] < 100 * len(found)


def test_a_restarted_stream_lists_the_batch_that_it_repeats(listed: list[Any], clock: Clock) -> None:
    assert len(reader(clock).partitions(Offset(3).document, Offset(6).document)) == MOST
    assert listed == [(4, 6)]


@pytest.mark.usefixtures("listed")
def test_a_restarted_stream_does_not_continue_in_another_table_of_the_same_name(clock: Clock) -> None:
    first = reader(clock, "mine")
    start, end = first.initialOffset(), first.latestOffset()
    assert len(first.partitions(start, end)) == MOST
    for offset in (start, end):
        assert reader(clock, "mine").partitions(offset, offset) == []
        with pytest.raises(SchemaChanged, match="DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"):
            reader(clock, "another").partitions(offset, end)
    # Checkpoints of earlier releases do not name the table, nor do some servers.
    assert reader(clock, "mine").partitions(Offset(3).document, Offset(3).document) == []
    assert reader(clock).partitions(end, end) == []


TIME = "2024-01-31T00:00:00Z"


@pytest.mark.parametrize(
    ("end", "refused", "requested", "version"),
    [
        ({"endingVersion": "2"}, False, ["", "?version=2"], 2),
        ({"endingVersion": "3"}, False, [""], 3),
        ({"endingVersion": "9"}, False, [""], 3),
        ({"endingTimestamp": TIME}, False, ["", f"?timestamp={quote(TIME)}"], 2),
        ({"endingTimestamp": TIME}, True, ["", f"?timestamp={quote(TIME)}"], 3),
    ],
)
def test_changes_of_mapped_columns_are_read_in_those_of_their_end(
    end: dict[str, str], refused: bool, requested: list[str], version: int
) -> None:
    mapped = {"schemaString": "{}", "configuration": {"delta.columnMapping.mode": "name"}}
    with listening() as server:
        for number in (3, 2):
            head = ({"protocol": {"minReaderVersion": 1}}, {"metaData": mapped})
            server.say(*head, **{"Delta-Table-Version": str(number)})
        if refused:
            server.answers[-1] = (400, {}, b"{}")
        given = {"path": "s.d.t", "readChangeFeed": "true", **end}
        profile = {"shareCredentialsVersion": 1, "endpoint": server.url, "bearerToken": "t"}
        head_read = source._load(ReadOptions.parse({"profile": json.dumps(profile), **given}))
    assert head_read.version == version
    assert [path.partition("/metadata")[2] for path, _ in server.requests] == requested
