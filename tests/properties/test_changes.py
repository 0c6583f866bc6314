"""Ranges of versions against a reference in Python: the actions that a client gets."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import reference
from support.native import lines, native, object_key, table
from tables import random_logs

Change = tuple[int, str, str, str]
"""Version, kind of action, path, and the rest of what the log says of the file."""


@pytest.fixture(scope="module", autouse=True)
def needs_the_native_module() -> None:
    native()


def changes_of(root: Path, first: int, last: int, *, change_data_feed: bool) -> Iterator[Change]:
    """Change files if a commit has some and they are requested, else the actions that changed data."""
    for version in range(first, last + 1):
        actions = reference.json_lines(root / "_delta_log" / f"{version:020}.json")
        found = [(kind, fields) for action in actions for kind, fields in action.items()]
        if change_data_feed and any(kind == "cdc" for kind, _ in found):
            chosen = [(kind, fields) for kind, fields in found if kind == "cdc"]
        else:
            chosen = [
                (kind, fields) for kind, fields in found if kind in {"add", "remove"} and fields["dataChange"]
            ]
        yield from ((version, kind, unquote(fields["path"]), rest(fields)) for kind, fields in chosen)


def rest(fields: dict[str, Any]) -> str:
    """What an action says beside paths; an empty partition value is null."""
    kept = {name: value for name, value in fields.items() if name != "path"}
    if "partitionValues" in kept:
        values = {"part": None} | kept["partitionValues"]
        kept["partitionValues"] = {name: value or None for name, value in values.items()}
    if "deletionVector" in kept:
        vector = kept["deletionVector"]
        kept["deletionVector"] = {name: vector.get(name) for name in ("offset", "sizeInBytes", "cardinality")}
    return json.dumps(kept, sort_keys=True)


def answered(answer: list[dict[str, Any]]) -> Iterator[Change]:
    """The same of an answer in the delta format."""
    for line in answer:
        if "file" in line:
            ((kind, fields),) = line["file"]["deltaSingleAction"].items()
            assert line["file"]["timestamp"] == random_logs.START_MS + 1000 * line["file"]["version"]
            yield line["file"]["version"], kind, object_key(fields["path"]), rest(fields)


@given(drawn=random_logs.steps, data=st.data(), change_data_feed=st.booleans())
def test_a_range_holds_the_changes_of_its_commits(
    drawn: list[tuple], data: st.DataObject, change_data_feed: bool
) -> None:
    drawn = [step for step in drawn if step[0] != "clean up"]
    with tempfile.TemporaryDirectory() as directory:
        log = random_logs.written(Path(directory) / "table", drawn, partitioned=True)
        first = data.draw(st.integers(0, log.next_version - 1))
        last = data.draw(st.integers(first, log.next_version - 1))
        subject = table(log.root).changes(
            starting_version=first, ending_version=last, change_data_feed=change_data_feed
        )
        answer, _ = lines(log.root, subject, "delta")
        found = list(answered(answer))
        assert [change[0] for change in found] == sorted(change[0] for change in found)
        assert sorted(found) == sorted(changes_of(log.root, first, last, change_data_feed=change_data_feed))


@given(drawn=random_logs.steps, first=st.integers(0, 12), is_partitioned=st.booleans())
def test_removed_files_in_the_parquet_format_have_the_fields_of_their_adds(
    drawn: list[tuple], first: int, is_partitioned: bool
) -> None:
    drawn = [without_vectors(step) for step in drawn if step[0] != "clean up"]
    with tempfile.TemporaryDirectory() as directory:
        log = random_logs.written(Path(directory) / "table", drawn, partitioned=is_partitioned)
        first = min(first, log.next_version - 1)
        subject = table(log.root).changes(starting_version=first, change_data_feed=False)
        answer, _ = lines(log.root, subject, "parquet")
        removes = [line["remove"] for line in answer if "remove" in line]
        wanted = [
            log.at_version[version - 1][reference.key(action["remove"])]
            for version in range(max(first, 1), log.next_version)
            for action in reference.json_lines(log.log / f"{version:020}.json")
            if "remove" in action and action["remove"]["dataChange"]
        ]
        assert [
            (object_key(remove["url"]), remove["size"], remove["partitionValues"]) for remove in removes
        ] == [
            (
                unquote(add["path"]),
                add["size"],
                {name: value or None for name, value in add["partitionValues"].items()},
            )
            for add in wanted
        ]


def without_vectors(step: tuple) -> tuple:
    """A drawn step whose files have no deletion vectors."""
    match step:
        case ("commit", added, removed, changing):
            return ("commit", [draw | {"vector": None} for draw in added], removed, changing)
        case _:
            return step


@given(drawn=random_logs.steps, page_size=st.integers(1, 4))
def test_pages_of_a_range_concatenate_to_the_unpaged_answer(drawn: list[tuple], page_size: int) -> None:
    drawn = [step for step in drawn if step[0] != "clean up"]
    with tempfile.TemporaryDirectory() as directory:
        log = random_logs.written(Path(directory) / "table", drawn, partitioned=True)
        arguments = {"starting_version": 0, "ending_version": log.next_version - 1, "change_data_feed": True}
        whole, _ = lines(log.root, table(log.root).changes(**arguments), "delta")
        pages: list[dict[str, Any]] = []
        cursor = None
        while True:
            replica = table(log.root).changes(**arguments)
            page, summary = lines(log.root, replica, "delta", {"max_files": page_size, "cursor": cursor})
            assert page[:2] == whole[:2]
            pages += page[2:]
            log.commit([])
            cursor = summary.next_cursor
            if cursor is None:
                break
        assert pages == whole[2:]
