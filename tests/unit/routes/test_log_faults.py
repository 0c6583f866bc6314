"""Logs whose sources contradict each other, or with damaged optional files, through a real socket."""

import json
import logging
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from aiohttp.test_utils import TestClient
from pyarrow import parquet
from support.gateway_app import PREFIX, serve

from gateway.tables.native import log_faults

Client = TestClient[Any, Any]
TABLES = f"{PREFIX}/shares/s/schemas/d/tables"
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
METADATA = {
    "metaData": {
        "id": "00000000-0000-0000-0000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(
            {
                "type": "struct",
                "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
            }
        ),
        "partitionColumns": [],
        "configuration": {},
    }
}
CONFIGURATION = {"delta.enableChangeDataFeed": "true"}
WITH_FEED = {"metaData": METADATA["metaData"] | {"configuration": CONFIGURATION}}
VERSIONS = 4
STRINGS = pa.map_(pa.string(), pa.string())
METADATA_FIELDS = {
    "id": pa.string(),
    "format": pa.struct([("provider", pa.string()), ("options", STRINGS)]),
    "schemaString": pa.string(),
    "partitionColumns": pa.list_(pa.string()),
    "configuration": STRINGS,
}
ADD_FIELDS = [
    ("path", pa.string()),
    ("partitionValues", STRINGS),
    ("size", pa.int64()),
    ("modificationTime", pa.int64()),
    ("dataChange", pa.bool_()),
]
HEAD_FIELDS = [
    ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
    ("metaData", pa.struct(list(METADATA_FIELDS.items()))),
]


def write_log(root: Path, *, stated_files: int | None = None) -> None:
    """Write a log of a file in each version, and a checksum file that states a number of files."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    for version in range(VERSIONS):
        head = [PROTOCOL, METADATA] if version == 0 else []
        lines = [*head, file_action(version)]
        (log / f"{version:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if stated_files is not None:
        stated = {
            "tableSizeBytes": 10 * VERSIONS,
            "numFiles": stated_files,
            "numMetadata": 1,
            "numProtocol": 1,
        }
        (log / f"{VERSIONS - 1:020}.crc").write_text(json.dumps(stated))


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A gateway with a right table, one of too many stated files, and one with a damaged checkpoint."""
    write_log(tmp_path / "right", stated_files=VERSIONS)
    write_log(tmp_path / "wrong", stated_files=VERSIONS + 3)
    write_log(tmp_path / "damaged")
    (tmp_path / "damaged/_delta_log" / f"{2:020}.checkpoint.parquet").write_bytes(bytes(500))
    entries = ", ".join(
        f"{{name: {name}, location: '{tmp_path / name}'}}" for name in ("right", "wrong", "damaged")
    )
    started, _ = await serve(
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{entries}]}}]}}]\ngateway: {{anonymous: true}}\n"
    )
    yield started
    await started.close()


async def answer(client: Client, table: str, **body: Any) -> tuple[int, list[dict[str, Any]]]:
    response = await client.post(f"{TABLES}/{table}/query", json=body)
    return response.status, [orjson.loads(line) for line in (await response.read()).splitlines()]


async def test_an_answer_that_contradicts_the_checksum_file_is_an_error_with_a_status(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    before = dict(log_faults())["contradiction"]
    status, lines = await answer(client, "right")
    assert (status, len(lines)) == (200, 2 + VERSIONS)
    status, lines = await answer(client, "wrong")
    assert status == 500
    assert "contradicts itself" in lines[0]["message"]
    assert "7" not in lines[0]["message"].partition(";")[0]
    assert dict(log_faults())["contradiction"] > before
    details = [record.getMessage() for record in caplog.records if record.name == "gateway.errors"]
    assert any("00000000000000000003.crc counts 7 files" in detail for detail in details)
    status, _ = await answer(client, "wrong", limitHint=1)
    assert status == 500


async def test_the_sum_of_the_pages_is_compared_at_the_last_one(client: Client) -> None:
    for table, expected in (("right", VERSIONS), ("wrong", None)):
        found, token = 0, None
        while True:
            body = {"maxFiles": 3} | ({"pageToken": token} if token else {})
            status, lines = await answer(client, table, **body)
            if expected is None:
                assert status == 500
                break
            assert status == 200
            found += sum("file" in line for line in lines)
            token = lines[-1]["endStreamAction"].get("nextPageToken")
            if token is None:
                assert found == expected
                break


async def test_commits_replace_a_damaged_checkpoint_which_is_logged_once(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gateway.tables")
    for _ in range(2):
        status, lines = await answer(client, "damaged")
        assert (status, len(lines)) == (200, 2 + VERSIONS)
    warnings = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(warnings) == 1
    assert "s.d.damaged" in warnings[0]
    assert "00000000000000000002.checkpoint.parquet" in warnings[0]


def file_action(version: int) -> dict[str, Any]:
    add = {"path": f"f{version}.parquet", "partitionValues": {}, "size": 10, "modificationTime": 1}
    return {"add": add | {"dataChange": True}}


def clean_up(log: Path) -> None:
    """Write another version with a checkpoint, and delete all before it."""
    adds = [file_action(version) for version in range(VERSIONS + 1)]
    (log / f"{VERSIONS:020}.json").write_text(json.dumps(adds[-1]) + "\n")
    write_checkpoint(log, VERSIONS, adds)
    for file in log.iterdir():
        if int(file.name.partition(".")[0]) < VERSIONS:
            file.unlink()


def write_checkpoint(log: Path, version: int, adds: list[dict[str, Any]]) -> None:
    lines = [{"checkpointMetadata": {"version": version}}, PROTOCOL, METADATA, *adds]
    name = f"{version:020}.checkpoint.00000000-0000-0000-0000-{version:012}.json"
    (log / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("page", [{}, {"maxFiles": 2}, None])
async def test_a_log_that_is_cleaned_up_during_its_first_answer_is_listed_again(
    tmp_path: Path, page: dict[str, Any] | None
) -> None:
    write_log(tmp_path)
    log = tmp_path / "_delta_log"
    # The last commit has the metadata, so the checkpoint is not read with the version.
    last = log / f"{VERSIONS - 1:020}.json"
    last.write_text("".join(json.dumps(line) + "\n" for line in (PROTOCOL, METADATA)) + last.read_text())
    write_checkpoint(log, 1, [])
    started, _ = await serve(
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{{name: t, location: '{tmp_path}'}}]}}]}}]\n"
        "gateway: {anonymous: true, maxStalenessSeconds: 600}\n"
    )
    try:
        response = await started.get(f"{TABLES}/t/version")
        assert response.headers["Delta-Table-Version"] == str(VERSIONS - 1)
        clean_up(log)
        if page is None:
            response = await started.get(f"{TABLES}/t/metadata")
            assert response.status == 200
            assert f'"numFiles":{VERSIONS + 1}' in await response.text()
            return
        status, lines = await answer(started, "t", **page)
        assert status == 200
        assert sum("file" in line for line in lines) == page.get("maxFiles", VERSIONS + 1)
    finally:
        await started.close()


async def serve_with_history(table: Path) -> Client:
    """Serve a table of which earlier versions are shared."""
    started, _ = await serve(
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{{name: t, location: '{table}', "
        "historyShared: true}]}]}]\ngateway: {anonymous: true}\n"
    )
    return started


def damaged_checkpoint(root: Path, column_path: str) -> None:
    """Write a checkpoint of which a column is overwritten, before a commit with all that loads a version."""
    log = root / "_delta_log"
    # The checkpoint is opened for its files alone.
    lines = (PROTOCOL, WITH_FEED, file_action(VERSIONS - 1))
    (log / f"{VERSIONS - 1:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    add = pa.struct([*ADD_FIELDS, ("stats", pa.string())])
    adds = [{"add": file_action(version)["add"] | {"stats": '{"numRecords":1}'}} for version in range(2)]
    rows = pa.Table.from_pylist([PROTOCOL, METADATA, *adds], schema=pa.schema([*HEAD_FIELDS, ("add", add)]))
    checkpoint = log / f"{1:020}.checkpoint.parquet"
    parquet.write_table(rows, checkpoint)
    row_group = parquet.ParquetFile(checkpoint).metadata.row_group(0)
    columns = [row_group.column(index) for index in range(row_group.num_columns)]
    (column,) = (column for column in columns if column.path_in_schema == column_path)
    content = bytearray(checkpoint.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    checkpoint.write_bytes(content)


@pytest.mark.parametrize("body", [{}, {"limitHint": 3}, {"version": VERSIONS - 1}])
async def test_a_checkpoint_whose_damage_shows_in_the_first_line_gives_way_to_the_commits(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    write_log(tmp_path)
    # The sums of the header read other columns.
    damaged_checkpoint(tmp_path, "add.stats")
    started = await serve_with_history(tmp_path)
    try:
        for _ in range(2):
            status, lines = await answer(started, "t", **body)
            assert (status, sum("file" in line for line in lines)) == (200, VERSIONS)
    finally:
        await started.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("query", {}),
        ("query", {"startingVersion": VERSIONS - 1}),
        ("metadata", None),
        (f"metadata?version={VERSIONS - 1}", None),
        (f"changes?startingVersion={VERSIONS - 1}", None),
        (f"changes?startingVersion={VERSIONS - 1}&includeHistoricalMetadata=true", None),
    ],
)
async def test_a_checkpoint_whose_damage_shows_in_the_sums_of_the_header_gives_way_to_the_commits(
    tmp_path: Path, path: str, body: dict[str, Any] | None
) -> None:
    write_log(tmp_path)
    damaged_checkpoint(tmp_path, "add.size")
    started = await serve_with_history(tmp_path)
    try:
        for _ in range(2):
            method = "GET" if body is None else "POST"
            response = await started.request(method, f"{TABLES}/t/{path}", json=body)
            _, head, *_ = [orjson.loads(line) for line in (await response.read()).splitlines()]
            assert (response.status, head["metaData"]["numFiles"]) == (200, VERSIONS)
    finally:
        await started.close()


@pytest.mark.parametrize("staleness_seconds", [0, 600])
@pytest.mark.parametrize("checkpoint", [None, 1, VERSIONS - 1])
@pytest.mark.parametrize("earlier", ["", "metadata", "part"])
async def test_the_first_whole_answer_of_a_contradicting_log_is_as_the_next_ones(
    tmp_path: Path, staleness_seconds: int, checkpoint: int | None, earlier: str
) -> None:
    write_log(tmp_path, stated_files=VERSIONS + 3)
    if checkpoint is not None:
        adds = [file_action(version) for version in range(checkpoint + 1)]
        write_checkpoint(tmp_path / "_delta_log", checkpoint, adds)
    started, _ = await serve(
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{{name: t, location: '{tmp_path}'}}]}}]}}]\n"
        f"gateway: {{anonymous: true, maxStalenessSeconds: {staleness_seconds}}}\n"
    )
    try:
        if earlier == "metadata":
            assert (await started.get(f"{TABLES}/t/metadata")).status == 200
        if earlier == "part":
            assert (await answer(started, "t", limitHint=1))[0] == 500
        for _ in range(3):
            status, lines = await answer(started, "t")
            assert status == 500
            assert "contradicts itself" in lines[0]["message"]
    finally:
        await started.close()


@pytest.mark.parametrize("body", [{}, {"limitHint": 100}, {"version": VERSIONS - 1}])
async def test_a_multi_part_checkpoint_whose_first_part_is_another_one_gives_way(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    write_log(tmp_path, stated_files=VERSIONS)
    schema = pa.schema([*HEAD_FIELDS, ("add", pa.struct(ADD_FIELDS))])
    first = [PROTOCOL, METADATA, *map(file_action, range(2))]
    second = [file_action(version) for version in range(2, VERSIONS)]
    for number, rows in enumerate((first, second), 1):
        path = tmp_path / "_delta_log" / f"{VERSIONS - 1:020}.checkpoint.{number:010}.{2:010}.parquet"
        parquet.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    shutil.copyfile(path, path.with_name(path.name.replace(f"{2:010}.{2:010}", f"{1:010}.{2:010}")))
    # As many heads as a server needs that does not open the checkpoint for them.
    checksum = tmp_path / "_delta_log" / f"{VERSIONS - 1:020}.crc"
    checksum.write_text(
        json.dumps(json.loads(checksum.read_text()) | PROTOCOL | {"metadata": METADATA["metaData"]})
    )
    started = await serve_with_history(tmp_path)
    try:
        for _ in range(2):
            status, lines = await answer(started, "t", **body)
            ids = [line["file"]["id"] for line in lines if "file" in line]
            assert (status, len(ids), len(set(ids))) == (200, VERSIONS, VERSIONS)
    finally:
        await started.close()
