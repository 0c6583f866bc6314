"""Ranges of versions against plain Python: which actions of which commits a client gets."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import logs, twin
from tables.native import lines, native, object_key, table

Change = tuple[int, str, str]
"""Version, kind of action and path."""


@pytest.fixture(scope="module", autouse=True)
def needs_the_native_module() -> None:
    native()


def changes_of(root: Path, first: int, last: int, *, change_data_feed: bool) -> Iterator[Change]:
    """Change files where a commit has some and they are asked for, else what changed data."""
    for version in range(first, last + 1):
        actions = twin.json_lines(root / "_delta_log" / f"{version:020}.json")
        found = [(kind, fields) for action in actions for kind, fields in action.items()]
        if change_data_feed and any(kind == "cdc" for kind, _ in found):
            chosen = [(kind, fields) for kind, fields in found if kind == "cdc"]
        else:
            chosen = [
                (kind, fields) for kind, fields in found if kind in {"add", "remove"} and fields["dataChange"]
            ]
        yield from ((version, kind, unquote(fields["path"])) for kind, fields in chosen)


def answered(answer: list[dict[str, Any]]) -> Iterator[Change]:
    """The same of an answer in the delta format."""
    for line in answer:
        if "file" in line:
            ((kind, fields),) = line["file"]["deltaSingleAction"].items()
            assert line["file"]["timestamp"] == logs.START_MS + 1000 * line["file"]["version"]
            yield line["file"]["version"], kind, object_key(fields["path"])


@settings(max_examples=100, deadline=None)
@given(drawn=logs.steps, data=st.data(), change_data_feed=st.booleans())
def test_a_range_holds_the_changes_of_its_commits(
    drawn: list[tuple], data: st.DataObject, change_data_feed: bool
) -> None:
    drawn = [step for step in drawn if step[0] != "clean up"]
    with tempfile.TemporaryDirectory() as directory:
        log = logs.written(Path(directory) / "table", drawn, partitioned=True)
        first = data.draw(st.integers(0, log.next_version - 1))
        last = data.draw(st.integers(first, log.next_version - 1))
        subject = table(log.root).changes(
            starting_version=first, ending_version=last, change_data_feed=change_data_feed
        )
        answer, _ = lines(log.root, subject, "delta")
        found = list(answered(answer))
        assert [version for version, _, _ in found] == sorted(version for version, _, _ in found)
        assert sorted(found) == sorted(changes_of(log.root, first, last, change_data_feed=change_data_feed))


@settings(max_examples=50, deadline=None)
@given(drawn=logs.steps, page_size=st.integers(1, 4))
def test_pages_of_a_range_concatenate_to_the_whole(drawn: list[tuple], page_size: int) -> None:
    drawn = [step for step in drawn if step[0] != "clean up"]
    with tempfile.TemporaryDirectory() as directory:
        log = logs.written(Path(directory) / "table", drawn, partitioned=True)
        arguments = {"starting_version": 0, "ending_version": log.next_version - 1, "change_data_feed": True}
        whole, _ = lines(log.root, table(log.root).changes(**arguments), "delta")
        pages: list[dict[str, Any]] = []
        place = None
        while True:
            replica = table(log.root).changes(**arguments)
            page, summary = lines(log.root, replica, "delta", {"max_files": page_size, "place": place})
            assert page[:2] == whole[:2]
            pages += page[2:]
            log.commit([])
            place = summary.next_place
            if place is None:
                break
        assert pages == whole[2:]
