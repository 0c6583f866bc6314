"""Snapshots against the reference replay: the same files in the same order at every version of any log."""

import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import reference
from support.native import lines, native, object_key, table
from tables import random_logs


@pytest.fixture(scope="module", autouse=True)
def needs_the_native_module() -> None:
    native()


@given(drawn=random_logs.steps, partitioned=st.booleans())
def test_every_version_holds_the_same_files_in_the_same_order(drawn: list[tuple], partitioned: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = random_logs.written(Path(directory) / "table", drawn, partitioned=partitioned)
        subject = table(log.root)
        for version in range(log.next_version):
            try:
                expected = reference.replay(log.root, version)
            except reference.BrokenLog:
                with pytest.raises(native().VersionNotFound):
                    subject.snapshot(version=version)
                continue
            found = answered(log.root, subject.snapshot(version=version))
            assert found == [described(add) for add in expected.files()]


@given(drawn=random_logs.steps, page_size=st.integers(1, 4), later=random_logs.steps)
def test_pages_concatenate_to_the_unpaged_answer_while_a_writer_continues(
    drawn: list[tuple], page_size: int, later: list[tuple]
) -> None:
    later = [step for step in later if step[0] != "clean up"]
    with tempfile.TemporaryDirectory() as directory:
        log = random_logs.written(Path(directory) / "table", drawn, partitioned=True)
        whole, pages = paged(log, page_size, later, lambda: table(log.root))
        assert pages == whole


@given(
    drawn=random_logs.steps,
    page_size=st.integers(1, 4),
    later=random_logs.steps,
    is_one_process=st.booleans(),
)
def test_pages_are_right_or_refused_where_the_log_is_cleaned_up(
    drawn: list[tuple], page_size: int, later: list[tuple], is_one_process: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = random_logs.written(Path(directory) / "table", drawn, partitioned=True)
        known = table(log.root)
        try:
            whole, pages = paged(log, page_size, later, lambda: known if is_one_process else table(log.root))
        except (native().VersionNotFound, native().InvalidCursor):
            return
        assert pages == whole


def paged(
    log: random_logs.Log, page_size: int, later: list[tuple], replica: Callable[[], Any]
) -> tuple[list[Any], list[Any]]:
    """The files of the latest version at once, and by pages between which a writer continues."""
    first = replica().snapshot()
    whole, _ = lines(log.root, first, "delta")
    pages: list[Any] = []
    cursor = None
    steps = iter(later)
    while True:
        snapshot = replica().snapshot(identity=first.identity)
        page, summary = lines(log.root, snapshot, "delta", {"max_files": page_size, "cursor": cursor})
        assert page[:2] == whole[:2]
        assert len(page) - 2 <= page_size
        pages += page[2:]
        cursor = summary.next_cursor
        if cursor is None:
            return whole[2:], pages
        for step in itertools.islice(steps, 2):
            random_logs.carry_out(log, step)


def answered(root: Path, snapshot: Any) -> list[tuple]:
    """What a delta-format answer says of each file, and that its head is the sum of them."""
    (_, head, *files), _ = lines(root, snapshot, "delta")
    adds = [line["file"]["deltaSingleAction"]["add"] for line in files]
    assert (head["metaData"]["numFiles"], head["metaData"]["size"]) == (
        len(adds),
        sum(add["size"] for add in adds),
    )
    return [
        (
            object_key(add["path"]),
            add["size"],
            values(add),
            json.loads(add["stats"]) if "stats" in add else None,
            add["deletionVector"]["cardinality"] if "deletionVector" in add else None,
            add["deletionVector"].get("offset") if "deletionVector" in add else None,
            # Where all tags of a row group are empty, Parquet's statistics look as if there were none.
            add.get("tags") or None,
        )
        for add in adds
    ]


def described(add: reference.Action) -> tuple:
    """The same of an add action in the log."""
    vector = add.get("deletionVector") or {}
    return (
        unquote(add["path"]),
        add["size"],
        values(add),
        json.loads(add["stats"]) if add.get("stats") else None,
        vector.get("cardinality"),
        vector.get("offset"),
        add.get("tags") or None,
    )


def values(add: reference.Action) -> dict[str, str | None]:
    """Partition values; an empty string is null."""
    return {name: value or None for name, value in add["partitionValues"].items()}
