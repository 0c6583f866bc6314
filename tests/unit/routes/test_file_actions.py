"""File actions in answers: partition values, removes and paths."""

import json
from pathlib import Path
from typing import Any

import orjson
from support.gateway_app import Clock, bearer, error_of
from support.history_table import TABLE, ids, query, served_at
from yarl import URL

LOG_VALUES = {"id": "table-id", "format": {"provider": "parquet", "options": {}}, "configuration": {}}


def write_log(root: Path, partition_type: str, *versions: list[dict[str, Any]]) -> None:
    """A table partitioned by `p` of a type."""
    fields = [{"name": "p", "type": partition_type, "nullable": True, "metadata": {}}]
    schema = json.dumps({"type": "struct", "fields": fields})
    heads: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": LOG_VALUES | {"schemaString": schema, "partitionColumns": ["p"]}},
    ]
    (root / "_delta_log").mkdir(parents=True)
    for version, actions in enumerate(versions):
        lines = [json.dumps(action) + "\n" for action in (heads if version == 0 else []) + actions]
        (root / "_delta_log" / f"{version:020}.json").write_text("".join(lines))


def an_add(path: str, value: str | None, **fields: Any) -> dict[str, Any]:
    common = {
        "path": path,
        "partitionValues": {"p": value},
        "size": 10,
        "modificationTime": 1,
        "dataChange": True,
    }
    return {"add": common | fields}


async def test_timestamps_of_partitions_have_one_spelling_in_the_parquet_format(
    tmp_path: Path, clock: Clock
) -> None:
    spelled = {
        "2024-03-05T13:00:00.000000Z": "2024-03-05 13:00:00",
        "2024-03-05T13:00:00.123456Z": "2024-03-05 13:00:00.123456",
        "2024-03-05 13:00:00": "2024-03-05 13:00:00",
        "": None,
    }
    adds = [an_add(f"f{number}", value) for number, value in enumerate(spelled)]
    write_log(tmp_path / "t", "timestamp", adds)
    client = await served_at(tmp_path / "t", clock)
    _, lines = await query(client, {})
    assert [line["file"]["partitionValues"]["p"] for line in lines[2:]] == [*spelled.values()]
    _, lines = await query(client, {"startingVersion": 0})
    assert [line["add"]["partitionValues"]["p"] for line in lines[2:]] == [*spelled.values()]
    delta = {"delta-sharing-capabilities": "responseformat=delta"}
    _, lines = await query(client, {}, headers=delta)
    values = [line["file"]["deltaSingleAction"]["add"]["partitionValues"]["p"] for line in lines[2:]]
    assert values == [value or None for value in spelled]
    await client.close()


async def test_a_bare_remove_is_completed_in_parquet_and_as_logged_in_delta(
    tmp_path: Path, clock: Clock
) -> None:
    bare = {"remove": {"path": "f0", "dataChange": True, "tags": {"k": "v"}}}
    write_log(tmp_path / "t", "string", [an_add("f0", "x", size=77)], [an_add("f1", "y")], [bare])
    client = await served_at(tmp_path / "t", clock)
    for start in (0, 2):
        _, lines = await query(client, {"startingVersion": start})
        (remove,) = [line["remove"] for line in lines if "remove" in line]
        assert (remove["partitionValues"], remove["size"]) == ({"p": "x"}, 77)
    _, lines = await query(client, {"startingVersion": 0, "predicateHints": ["p = 'y'"]})
    assert not [line for line in lines if "remove" in line], "what was found prunes, too"
    delta = {"delta-sharing-capabilities": "responseformat=delta"}
    _, lines = await query(client, {"startingVersion": 2}, headers=delta)
    (line,) = lines[2:]
    logged = line["file"]["deltaSingleAction"]["remove"]
    assert {name: logged[name] for name in logged if name != "path"} == {
        "dataChange": True,
        "tags": {"k": "v"},
    }
    await client.close()


async def test_a_remove_without_its_add_in_the_log_is_a_distinct_error(tmp_path: Path, clock: Clock) -> None:
    bare = {"remove": {"path": "secret-path", "dataChange": True}}
    write_log(tmp_path / "t", "string", [], [bare], [an_add("f1", "y")])
    client = await served_at(tmp_path / "t", clock)
    response = await client.post(f"{TABLE}/query", data=b'{"startingVersion": 1}', headers=bearer())
    body = await response.read()
    assert (response.status, error_of(body)) == (400, "INVALID_PARAMETER_VALUE")
    assert "version 1 removes a file" in orjson.loads(body)["message"]
    assert b"secret-path" not in body
    assert len((await query(client, {"startingVersion": 2}))[1]) == 3
    await client.close()


async def test_a_file_with_a_colon_in_its_path_is_read(tmp_path: Path, clock: Clock) -> None:
    root = tmp_path / "t"
    write_log(root, "string", [an_add("a-b:c/d%20e.parquet", "x")])
    (root / "a-b:c").mkdir()
    (root / "a-b:c" / "d e.parquet").write_bytes(b"PAR1")
    client = await served_at(root, clock)
    _, lines = await query(client, {})
    response = await client.session.get(URL(lines[2]["file"]["url"], encoded=True))
    assert (response.status, await response.read()) == (200, b"PAR1")
    await client.close()


async def test_an_invalid_path_fails_its_answers_with_a_distinct_error(tmp_path: Path, clock: Clock) -> None:
    write_log(tmp_path / "t", "string", [an_add("good", "x")], [an_add("secret%00name", "y")])
    client = await served_at(tmp_path / "t", clock)
    response = await client.post(f"{TABLE}/query", data=b"{}", headers=bearer())
    body = await response.read()
    assert (response.status, error_of(body)) == (500, "INTERNAL_ERROR")
    assert "a file by a path that holds NUL" in orjson.loads(body)["message"]
    assert b"secret" not in body
    for requested in ({"version": 0}, {"predicateHints": ["p = 'x'"]}):
        _, lines = await query(client, requested)
        assert len(ids(lines)) == 1
    await client.close()
