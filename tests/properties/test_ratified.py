"""Tables that a catalog manages against a naive replayer: answers are of ratified versions, or errors."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.native import lines, native
from support.ratified_log import Answering, RatifiedLog

from gateway.config import Location
from gateway.storage.unity_catalog import RatifiedCommits
from gateway.tables.ratified import ManagedTable

QUICK, LONG = 200, 2000

Step = Callable[[RatifiedLog], None]
STEPS: dict[str, Step] = {
    "commit": lambda log: log.commit(),
    "replace": lambda log: log.commit(removes=1),
    "commit inline": lambda log: log.commit(inline=True),
    "reject": lambda log: log.reject(),
    "publish": lambda log: log.publish(),
    "publish and delete": lambda log: log.publish(deletes=True),
    "publish and die": lambda log: log.publish(dies_before_the_catalog_knows=True),
    "publish, delete and die": lambda log: log.publish(dies_before_the_catalog_knows=True, deletes=True),
    "publish all": lambda log: log.publish_all(),
    "learn": lambda log: log.backfilled(),
    "restore": lambda log: log.restore(2),
    "write beside": lambda log: log.write_beside(),
    "checkpoint": lambda log: log.checkpoint(),
    "clean up": lambda log: log.clean_up(),
    # What brings the table back may be published later.
    "move": lambda log: log.move(publishes=log.is_managed),
}
LATE = sorted(STEPS.keys() - {"move"})
"""What may happen between the answer of the catalog and the listing."""
LIES: list[Callable[[RatifiedCommits], RatifiedCommits]] = [
    lambda told: replace(told, latest=None),
    lambda told: replace(told, latest=None, staged=(), inline=()),
    lambda told: replace(told, staged=(), inline=()),
    lambda told: replace(told, staged=()),
    lambda told: replace(told, inline=()),
    lambda told: replace(told, staged=told.staged[:-1]),
]
"""Answers that a fault of the catalog has torn."""
histories = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 99)), min_size=1, max_size=14)


@dataclass
class Telling:
    """A catalog with one answer."""

    told: RatifiedCommits

    def ratified(self, location: Location) -> RatifiedCommits:
        """Return the answer."""
        return self.told


class Replica:
    """A process that reads the table."""

    def __init__(self, log: RatifiedLog) -> None:
        self.log = log
        self.table = native().Table(native().Storage.local(), str(log.root), has_catalog=True)
        self.managed = ManagedTable(self.table, Answering(log), Location.parse(str(log.root)))

    def asked(self) -> Any:
        self.managed.ask()
        return self.table


def files_of(log: RatifiedLog, snapshot: Any) -> set[str]:
    found, _ = lines(log.root, snapshot, "delta")
    return {
        line["file"]["deltaSingleAction"]["add"]["path"].rpartition("/")[2].partition("?")[0]
        for line in found[2:]
    }


def expect(log: RatifiedLog, snapshot: Any, version: int) -> None:
    assert snapshot.version == version
    assert files_of(log, snapshot) == log.files(version)


def check_now(replica: Replica, drawn: int) -> None:
    """Compare what a request at rest gets: everything that the catalog has ratified, and nothing else."""
    log, table = replica.log, replica.asked()
    latest = table.snapshot()
    expect(log, latest, log.latest)
    assert table.snapshot(timestamp_ms=log.timestamp_ms(log.latest)).version == log.latest
    with pytest.raises(native().VersionNotFound) as refused:
        table.snapshot(version=log.latest + 1)
    assert refused.value.latest == log.latest
    version = refused.value.earliest + drawn % (log.latest - refused.value.earliest + 1)
    expect(log, table.snapshot(version=version), version)
    assert table.version_at_or_after(log.timestamp_ms(version)) == version
    check_changes(log, table, version)
    # Another replica continues the pages of this one.
    try:
        continued = Replica(log).asked().snapshot(identity=latest.identity)
    except (native().InvalidCursor, native().VersionNotFound):
        # The first page was of a checkpoint that is gone.
        assert log.is_cleaned
        return
    expect(log, continued, log.latest)


def check_changes(log: RatifiedLog, table: Any, version: int) -> None:
    try:
        changes = table.changes(starting_version=version, change_data_feed=True)
    except native().VersionNotFound:
        # Cleanup deleted the commit and left its checkpoint.
        assert not (log.log / f"{version:020}.json").exists()
        return
    found, _ = lines(log.root, changes, "delta")
    expected = [
        (number, kind, action[kind]["path"])
        for number in range(version, log.latest + 1)
        for action in log.history[number]
        for kind in ("add", "remove")
        if kind in action
    ]
    answered = []
    for line in found:
        if "file" in line:
            file = line["file"]
            ((kind, action),) = file["deltaSingleAction"].items()
            answered.append((file["version"], kind, action["path"].rpartition("/")[2].partition("?")[0]))
    assert sorted(answered) == sorted(expected)


def check_while(replica: Replica, late: Step) -> None:
    """Compare what a request gets while the table changes behind the answer of its catalog."""
    log, table = replica.log, replica.asked()
    version, before = log.latest, log.files(log.latest)
    late(log)
    try:
        snapshot = table.snapshot()
        found = files_of(log, snapshot)
    except native().LogError:
        return
    if log.is_managed:
        assert (snapshot.version, found) == (version, before)
    else:
        # The log alone decides, and is listed later.
        assert (snapshot.version, found) in [(version, before), (log.latest, log.files(log.latest))]


def check_torn(replica: Replica, lie: Callable[[RatifiedCommits], RatifiedCommits], drawn: int) -> None:
    """Compare what a request gets by a torn answer: the whole version, or an error."""
    log, table = replica.log, replica.table
    told = lie(log.answer())
    files = (log.log / f"{version:020}.json" for version in range(log.published, log.latest + 2))
    if told == log.answer() or (told.latest is not None and any(file.exists() for file in files)):
        # No reader can tell a published file that the catalog knows from one that nobody ratified.
        return
    version = drawn % (log.latest + 2)
    requests: list[dict[str, int]] = [
        {},
        {"version": version},
        {"timestamp_ms": log.timestamp_ms(log.latest)},
    ]
    try:
        replace(replica.managed, catalog=Telling(told)).ask()
    except native().LogError:
        return
    for request in requests[drawn % 3 :]:
        with suppress(native().LogError):
            snapshot = table.snapshot(**request)
            expect(log, snapshot, request.get("version", log.latest))


def run(drawn: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = RatifiedLog(Path(directory) / "table")
        replica = Replica(log)
        for step, number in drawn:
            if number % 5 == 0:
                check_torn(replica if number % 2 else Replica(log), LIES[number % len(LIES)], number)
            if number % 3 == 0:
                check_while(replica, STEPS[LATE[number % len(LATE)]])
            STEPS[step](log)
            if number % 2:
                check_now(replica, number)
        check_now(replica, 0)
        check_now(Replica(log), 1)


@settings(max_examples=QUICK)
@given(drawn=histories)
def test_every_answer_is_that_of_a_ratified_version(drawn: list[tuple[str, int]]) -> None:
    native()
    run(drawn)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@settings(max_examples=LONG)
@given(drawn=histories)
def test_every_answer_is_that_of_a_ratified_version_in_many_histories(drawn: list[tuple[str, int]]) -> None:
    native()
    run(drawn)
