"""Plans of change data and streams: of a range that has not begun, and of more files than a driver keeps."""

import json
import pickle
from typing import Any
from urllib.parse import unquote

import pytest
from pyspark.sql.types import StructType
from support.gateway_process import RunningGateway
from support.scripted_server import HEAD, listening
from tables.demo import CITIES, ORDER_CHANGES, ORDERS, in_any_order

from gateway.client.actions import TableHead, UnsupportedTable
from gateway.client.files import StaleListing
from gateway.client.transport import HttpError
from gateway.spark import source
from gateway.spark.read import planning
from gateway.spark.read.options import ReadOptions
from gateway.spark.read.planning import NothingNew, list_version, plan_changes, plan_snapshot
from gateway.spark.read.reading import PagePartition, RangePartition, read_partition
from gateway.spark.read.schema import CHANGE_FIELDS, shared_schema
from gateway.spark.read.streaming import ShareStreamReader

GIVEN = {
    "profile": '{"endpoint": "http://h/p/", "bearerToken": "secret"}',
    "path": "a.b.c",
    "readChangeFeed": "true",
    "startingVersion": "8",
}
LOADED = TableHead("{}", (), {}, version=7)


def test_change_data_after_the_latest_version_are_nothing_new() -> None:
    with pytest.raises(NothingNew, match="startingVersion 8 is after version 7"):
        plan_changes(ReadOptions.parse(GIVEN), LOADED)
    assert plan_changes(ReadOptions.parse(GIVEN | {"allowNoVersions": "true"}), LOADED) == []


@pytest.mark.parametrize(
    ("end", "answered", "asked"),
    [
        ({}, [2], ["endingVersion=4"]),
        ({"endingVersion": "3"}, [1], ["endingVersion=3"]),
        ({"endingVersion": "9"}, [2], ["endingVersion=4"]),
        ({"endingTimestamp": "2100"}, [3, 2], ["endingTimestamp=2100-01-01T00:00:00Z", "endingVersion=4"]),
        ({"endingTimestamp": "2020"}, [1], ["endingTimestamp=2020-01-01T00:00:00Z"]),
    ],
)
def test_change_data_end_at_the_version_of_the_load(
    end: dict[str, str], answered: list[int], asked: list[str]
) -> None:
    """The table has moved on to version 5. Another use of the DataFrame may have read it before."""
    with listening() as server:
        profile = {"shareCredentialsVersion": 1, "endpoint": server.url, "bearerToken": "t"}
        given = {"readChangeFeed": "true", "startingVersion": "3", "timeZone": "UTC", **end}
        options = parsed(json.dumps(profile), "s.d.t", **given)
        loaded = TableHead(METADATA["metaData"]["schemaString"], (), {}, version=4)
        lines = [file_line("add", f"a{version}", version) for version in (3, 4, 5)]
        for count in answered:
            server.say(*DELTA_HEAD, *lines[:count], END, **{"Delta-Table-Version": "5"})
        partitions: Any = plan_changes(options, loaded)
    found = [task.file.id for one in partitions for task in one.tasks]
    assert found == ["a3", "a4", "a5"][: answered[-1]]
    requested = [unquote(path).partition("?")[2].split("&") for path, _ in server.requests]
    assert [next(part for part in parts if part.startswith("ending")) for parts in requested] == asked


def test_a_range_that_begins_after_the_load_is_nothing_new_also_where_it_ends_by_a_time() -> None:
    """Version 5 was committed after the load."""
    with listening() as server:
        profile = {"shareCredentialsVersion": 1, "endpoint": server.url, "bearerToken": "t"}
        given = {"readChangeFeed": "true", "startingVersion": "5", "endingTimestamp": "2100-01-01T00:00:00Z"}
        server.say(*DELTA_HEAD, file_line("add", "a5", 5), END, **{"Delta-Table-Version": "5"})
        with pytest.raises(NothingNew, match="startingVersion 5 is after version 4"):
            plan_changes(
                parsed(json.dumps(profile), "s.d.t", **given),
                TableHead(METADATA["metaData"]["schemaString"], (), {}, version=4),
            )
    assert len(server.requests) == 1


@pytest.mark.parametrize("more", [{}, {"allowNoVersions": "true"}])
def test_a_range_that_ends_before_its_start_is_the_error_of_the_server(more: dict[str, str]) -> None:
    """Of a mapped table, the version of the load is that of the time."""
    with listening() as server:
        profile = {"shareCredentialsVersion": 1, "endpoint": server.url, "bearerToken": "t"}
        given = {"readChangeFeed": "true", "startingVersion": "5", "endingTimestamp": "2020-01-01T00:00:00Z"}
        server.answers.append((400, {}, b"the range ends at version 3, before its start at version 5"))
        with pytest.raises(HttpError, match="before its start"):
            plan_changes(parsed(json.dumps(profile), "s.d.t", **given, **more), LOADED_AT_3)


LOADED_AT_3 = TableHead("{}", (), {}, version=3)


def parsed(profile: Any, table: str, **more: str) -> ReadOptions:
    given = {"profile": str(profile), "path": table, "maxFilesPerPage": "1", "partitionBytes": "1"}
    return ReadOptions.parse(given | more)


def rows(partitions: Any, head: TableHead, *names: str) -> list[Any]:
    fields = [*shared_schema(head).fields, *CHANGE_FIELDS]
    schema = StructType([next(one for one in fields if one.name == name) for name in names])
    batches = (batch for one in partitions for batch in read_partition(one, schema, head))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


COLUMNS = ("order", "customer", "amount")


@pytest.mark.processes
def test_change_data_of_many_files_are_listed_by_tasks(
    local_gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_MOST_KEPT_FILES", 1)
    given = {"readChangeFeed": "true", "startingVersion": "0"}
    options = parsed(local_gateway.profile, "demo.default.orders", **given)
    head = options.client().head()
    partitions = plan_changes(options, head)
    assert {type(one) for one in partitions} == {RangePartition}
    found = rows(partitions, head, "_commit_version", "_change_type", *COLUMNS)
    assert in_any_order(found) == in_any_order(ORDER_CHANGES)
    assert b"amount" not in pickle.dumps(partitions)


@pytest.mark.processes
@pytest.mark.parametrize("first", [None, 0])
@pytest.mark.parametrize("feed", [True, False])
def test_a_batch_of_a_stream_with_many_files_is_listed_by_tasks(
    local_gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, first: int | None, *, feed: bool
) -> None:
    monkeypatch.setattr(planning, "_MOST_KEPT_FILES", 1)
    table, columns = ("orders", COLUMNS) if feed else ("cities", ("city",))
    given = {} if first is None else {"startingVersion": str(first)}
    options = parsed(local_gateway.profile, f"demo.default.{table}", readChangeFeed=str(feed), **given)
    head = options.client().head()
    reader = ShareStreamReader(options, StructType(), head)
    partitions = reader.partitions(reader.initialOffset(), reader.latestOffset())
    listed_again = PagePartition if first is None else RangePartition
    assert any(isinstance(one, listed_again) for one in partitions)
    found = rows(partitions, head, *columns, *(("_change_type", "_commit_version") if feed else ()))
    if not feed:
        expected: list[Any] = [(row[0],) for row in CITIES]
    elif first is None:
        expected = [(*row, "insert", head.version) for row in ORDERS]
    else:
        expected = [(*row[2:], row[1], row[0]) for row in ORDER_CHANGES]
    assert in_any_order(found) == in_any_order(expected)


def file_line(kind: str, name: str, version: int, **more: Any) -> Any:
    action = {"path": f"http://x/{name}?s", "size": 10, "partitionValues": {}, "dataChange": True, **more}
    return {"file": {"id": name, "version": version, "deltaSingleAction": {kind: action}}}


METADATA = {"metaData": {"schemaString": json.dumps({"type": "struct", "fields": []})}}
DELTA_HEAD = [HEAD[0], METADATA]
END = {"endStreamAction": {}}


def planned(
    lines: list[Any], monkeypatch: pytest.MonkeyPatch, again: list[Any], later: Any = (), **given: str
) -> Any:
    """What the tasks of a stream's batch read, whose tasks are answered other lines, then `later` ones."""
    monkeypatch.setattr(planning, "_MOST_KEPT_FILES", 1)
    with listening() as server:
        profile = {"shareCredentialsVersion": 1, "endpoint": server.url, "bearerToken": "t"}
        options = parsed(json.dumps(profile), "s.d.t", startingVersion="1", **given)
        loaded = TableHead(METADATA["metaData"]["schemaString"], (), {}, version=9)
        server.say(*DELTA_HEAD, *lines, END, **{"Delta-Table-Version": "9"})
        reader = ShareStreamReader(options, StructType(), loaded)
        partitions: Any = reader.partitions({"version": 0}, {"version": 9})
        found: list[Any] = []
        for one in partitions:
            first, last = (one.origin.query.parameters[f"{end}ingVersion"] for end in ("start", "end"))
            mine = [line for line in again if "file" not in line or first <= line["file"]["version"] <= last]
            server.say(*DELTA_HEAD, *mine, *later, END)
            found += [(task.file.id, task.change_type) for task in one.listed().tasks]
        assert len(partitions) >= len(found)
        return sorted(found)


VERSION = [file_line("add", f"a{number}", 4) for number in range(9)]
VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 34, "cardinality": 2}


@pytest.mark.parametrize("vector", [{}, {"deletionVector": VECTOR}])
@pytest.mark.parametrize("plan", [plan_snapshot, plan_changes])
def test_a_file_that_is_listed_twice_is_an_error(plan: Any, vector: Any) -> None:
    with listening() as server:
        profile = {"shareCredentialsVersion": 1, "endpoint": server.url, "bearerToken": "t"}
        options = parsed(
            json.dumps(profile), "s.d.t", **({"startingVersion": "4"} if plan is plan_changes else {})
        )
        loaded = TableHead(METADATA["metaData"]["schemaString"], (), {}, version=4)
        again = file_line("add", "a0", 4, **vector)
        server.say(*DELTA_HEAD, *VERSION, again, END, **{"Delta-Table-Version": "4"})
        with pytest.raises(UnsupportedTable, match="twice"):
            plan(options, loaded)


def wide_head(*names: str) -> list[Any]:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
    schema = json.dumps({"type": "struct", "fields": fields})
    return [HEAD[0], {"metaData": {"schemaString": schema}}]


@pytest.mark.parametrize(
    ("at", "answered", "reason"),
    [
        ({"versionAsOf": "5"}, ["9", "5", "5"], None),
        ({"versionAsOf": "5"}, ["9", "9", "9"], "answered version 9, not 5"),
        ({"versionAsOf": "5"}, ["5", "9"], "answered version 9, not 5"),
        ({"timestampAsOf": "2024-01-01T00:00:00Z"}, ["5", "5"], None),
        ({"timestampAsOf": "2024-01-01T00:00:00Z"}, ["9", "5"], "version 5, and the metadata of version 9"),
    ],
)
def test_a_past_version_is_read_or_an_error_where_metadata_are_of_the_latest_one(
    at: dict[str, str], answered: list[str], reason: str | None
) -> None:
    """Servers by the protocol's first releases know a version and a time of a query alone."""
    with listening() as server:
        profile = {"shareCredentialsVersion": 1, "endpoint": server.url, "bearerToken": "t"}
        options = parsed(json.dumps(profile), "s.d.t", **at)
        heads = {"5": wide_head("n"), "9": wide_head("n", "added")}
        for version in answered:
            lines = [file_line("add", f"of-{version}", int(version)), END]
            server.say(*heads[version], *lines, **{"Delta-Table-Version": version})
        loaded = source._load(options)
        if reason is not None:
            with pytest.raises(UnsupportedTable, match=reason):
                plan_snapshot(options, loaded)
            return
        assert shared_schema(loaded).names == ["n"]
        partitions: Any = plan_snapshot(options, loaded)
    assert [task.file.id for one in partitions for task in one.tasks] == ["of-5"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_stream_begins_with_the_version_that_was_asked_for(*, whole: bool) -> None:
    with listening() as server:
        profile = {"shareCredentialsVersion": 1, "endpoint": server.url, "bearerToken": "t"}
        server.say(*DELTA_HEAD, *VERSION, END, **{"Delta-Table-Version": "9"})
        with pytest.raises(UnsupportedTable, match="answered version 9, not 7"):
            list_version(parsed(json.dumps(profile), "s.d.t"), 7, whole=whole)


def test_the_files_of_one_version_are_in_one_bucket_each(monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned(VERSION, monkeypatch, VERSION[::-1])
    assert found == [(f"a{number}", None) for number in range(9)]


def test_a_version_with_change_files_has_no_others_in_any_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [*VERSION, file_line("cdc", "c", 4), file_line("add", "later", 5), file_line("remove", "a1", 5)]
    found = planned(lines, monkeypatch, lines, readChangeFeed="true")
    assert found == [("a1", "delete"), ("c", None), ("later", "insert")]


@pytest.mark.parametrize(
    "again",
    [VERSION[:-1], [*VERSION, VERSION[0]], [*VERSION[:-1], file_line("remove", "a8", 4)]],
    ids=["fewer", "twice", "removed"],
)
def test_versions_that_have_other_files_later_are_an_error(
    monkeypatch: pytest.MonkeyPatch, again: list[Any]
) -> None:
    with pytest.raises(StaleListing, match="read it again"):
        planned(VERSION, monkeypatch, again)


@pytest.mark.parametrize("feed", ["true", "false"])
def test_files_after_the_end_of_a_range_are_of_the_next_batch(
    monkeypatch: pytest.MonkeyPatch, feed: str
) -> None:
    """The end of a range is a hint: a server may answer files of later versions, also to the tasks."""
    later = [file_line("add", "later", 10)]
    monkeypatch.setattr(ShareStreamReader, "_check_start", lambda _reader, _start: None)
    found = planned([*VERSION, *later], monkeypatch, VERSION, later=later, readChangeFeed=feed)
    assert [name for name, _ in found] == [f"a{number}" for number in range(9)]


def test_versions_that_remove_rows_are_left_out_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        file_line("add", "a", 3),
        file_line("add", "b", 4),
        file_line("remove", "a", 4),
        file_line("remove", "c", 5, dataChange=False),
        file_line("add", "d", 5),
        file_line("remove", "d", 6),
    ]
    found = planned(lines, monkeypatch, lines, skipChangeCommits="true")
    assert found == [("a", None), ("d", None)]
    with pytest.raises(UnsupportedTable, match="version 4 removes"):
        planned(lines, monkeypatch, lines, ignoreDeletes="true")
    others = [*lines[:1], *lines[3:]]
    assert planned(others, monkeypatch, others, ignoreDeletes="true") == found


def test_a_limited_stream_lists_some_versions_of_a_backlog() -> None:
    with listening() as server:
        profile = {"shareCredentialsVersion": 1, "endpoint": server.url, "bearerToken": "t"}
        options = parsed(json.dumps(profile), "s.d.t", startingVersion="1", maxFilesPerTrigger="5")
        loaded = TableHead(METADATA["metaData"]["schemaString"], (), {}, version=90_000)
        server.say(**{"Delta-Table-Version": "90000"})
        server.say(*DELTA_HEAD, *VERSION, END)
        server.say(*DELTA_HEAD, END)
        reader = ShareStreamReader(options, StructType(), loaded)
        assert reader.latestOffset() == {"version": 4, "index": 4, "snapshot": False}
        assert json.loads(server.requests[1][1])["endingVersion"] == 1000
