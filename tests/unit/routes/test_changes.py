"""Changes between versions through a real socket: versions, metadata, formats and pages."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.gateway_app import Clock, bearer, error_of, serve
from support.history_table import (
    FILES_PER_VERSION,
    FIRST_MS,
    LIFETIME_SECONDS,
    TABLE,
    VERSIONS,
    Client,
    changes,
    commit,
    configuration,
    end,
    ids,
    lines_of,
    metadata_of_version,
    query,
)


async def test_changes_since_a_version(client: Client) -> None:
    response, lines = await query(client, {"startingVersion": 2, "endingVersion": 99})
    assert response.headers["Delta-Table-Version"] == "2"
    versions = [line["add"]["version"] for line in lines if "add" in line]
    assert versions == [2] * 3 + [3] * 3


@pytest.mark.parametrize(
    ("requested", "protocols"), [({}, []), ({"includeHistoricalProtocol": True}, [2, VERSIONS])]
)
async def test_metadata_and_protocols_of_later_versions_stand_at_their_version(
    client: Client, root: Path, requested: dict[str, Any], protocols: list[int]
) -> None:
    first = [json.loads(line) for line in (root / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    heads = [action for action in first if "protocol" in action or "metaData" in action]
    info = {"commitInfo": {"inCommitTimestamp": FIRST_MS + VERSIONS * 1000}}
    last = root / "_delta_log" / f"{VERSIONS:020}.json"
    last.write_text("".join(json.dumps(action) + "\n" for action in [info, *heads]))
    capable = {"delta-sharing-capabilities": "responseformat=delta"}
    response, lines = await query(client, {"startingVersion": 2} | requested, headers=capable)
    assert response.headers["Delta-Table-Version"] == "2"
    assert [line["metaData"]["version"] for line in lines if "metaData" in line] == [2, VERSIONS]
    assert [*lines[0], *lines[1]] == ["protocol", "metaData"]
    found = [line["protocol"]["version"] for line in lines if "version" in line.get("protocol", {})]
    assert found == protocols
    assert {line["file"]["version"] for line in lines if "file" in line} == {2, 3}
    assert all(line["file"]["timestamp"] >= FIRST_MS for line in lines if "file" in line)


@pytest.mark.parametrize("delta", [False, True])
async def test_the_current_metadata_heads_changes(client: Client, root: Path, delta: bool) -> None:
    metadata_of_version(root, 3, name="renamed")
    headers = {"delta-sharing-capabilities": "responseformat=delta"} if delta else {}
    lines = await changes(client, "startingVersion=0&endingVersion=1", headers)
    (head,) = [line["metaData"] for line in lines if "metaData" in line]
    assert head.get("deltaMetadata", head)["name"] == "renamed"
    assert head.get("version") == (3 if delta else None)
    assert (head["numFiles"], len(lines) - 2) == (12, 6)


async def test_historical_metadata_begins_with_that_of_the_start(client: Client, root: Path) -> None:
    metadata_of_version(root, 3, name="renamed")
    lines = await changes(client, "startingVersion=1&includeHistoricalMetadata=true")
    heads = [line["metaData"] for line in lines if "metaData" in line]
    assert [(head["version"], head.get("name")) for head in heads] == [(1, None), (3, "renamed")]
    assert heads[0]["numFiles"] == 6


async def test_reader_features_of_the_current_metadata_must_be_announced(client: Client, root: Path) -> None:
    path = root / "_delta_log" / f"{3:020}.json"
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": features, "writerFeatures": [*features, "inCommitTimestamp"]}
    path.write_text(path.read_text() + json.dumps({"protocol": protocol}) + "\n")
    response = await client.get(f"{TABLE}/changes?startingVersion=0&endingVersion=1", headers=bearer())
    assert (response.status, error_of(await response.read())) == (400, "UNSUPPORTED_OPERATION")
    historical = "startingVersion=0&endingVersion=1&includeHistoricalMetadata=true"
    assert len(await changes(client, historical)) == 2 + 6


@pytest.mark.parametrize("historical_metadata", ["true", "false"])
async def test_the_parquet_format_has_no_historical_protocol(
    client: Client, root: Path, historical_metadata: str
) -> None:
    log = root / "_delta_log"
    text = (log / f"{2:020}.json").read_text()
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
    (log / f"{2:020}.json").write_text(text + json.dumps({"protocol": protocol}) + "\n")
    requested = f"startingVersion=1&includeHistoricalMetadata={historical_metadata}"
    with_protocol = await changes(client, f"{requested}&includeHistoricalProtocol=true")
    _, queried = await query(client, {"startingVersion": 1, "includeHistoricalProtocol": True})
    for lines in (with_protocol, queried):
        assert lines[0] == {"protocol": {"minReaderVersion": 1}}
        assert not [line for line in lines[1:] if "protocol" in line]
    assert {*with_protocol[1]} == {*(await changes(client, requested))[1]}


@pytest.mark.parametrize("shared", [True, False])
async def test_the_parquet_format_names_the_change_data_feed_where_it_can_be_read(
    root: Path, clock: Clock, shared: bool
) -> None:
    client, _ = await serve(configuration(root, history_shared=shared), clock=clock)
    response = await client.get(f"{TABLE}/metadata", headers=bearer())
    metadata = lines_of(await response.read())
    _, queried = await query(client, {})
    configurations = [lines[1]["metaData"]["configuration"] for lines in (metadata, queried)]
    assert configurations == [{"enableChangeDataFeed": "true"} if shared else {}] * 2
    capable = {"delta-sharing-capabilities": "responseformat=delta"}
    response = await client.get(f"{TABLE}/metadata", headers=bearer() | capable)
    (_, line) = lines_of(await response.read())
    logged = line["metaData"]["deltaMetadata"]["configuration"]
    assert logged["delta.enableChangeDataFeed"] == "true", "the delta format hands on what the log says"
    await client.close()


async def test_a_limit_of_zero_is_no_limit(client: Client) -> None:
    _, lines = await query(client, {"limitHint": 0})
    assert len(ids(lines)) == FILES_PER_VERSION * VERSIONS
    _, page = await query(client, {"limitHint": 0, "maxFiles": 5})
    _, following = await query(client, {"maxFiles": 9, "pageToken": end(page)["nextPageToken"]})
    assert ids(page) + ids(following) == ids(lines)


async def test_a_missing_in_commit_timestamp_fails_only_questions_about_time(
    client: Client, root: Path
) -> None:
    path = root / "_delta_log" / f"{3:020}.json"
    path.write_text(path.read_text().replace("inCommitTimestamp", "timestamp"))
    _, latest = await query(client, {})
    assert len(ids(latest)) == FILES_PER_VERSION * VERSIONS
    _, lines = await query(client, {"version": 3})
    assert len(ids(lines)) == FILES_PER_VERSION * VERSIONS
    assert all("timestamp" not in line["file"] for line in lines[2:]), "what is not known is not said"
    _, added = await query(client, {"startingVersion": 2})
    assert ["timestamp" in line["add"] for line in added[2:]] == [True] * 3 + [False] * 3
    response = await client.get(f"{TABLE}/metadata?version=3", headers=bearer())
    assert response.status == 200
    assert len(await changes(client, "startingVersion=0&endingVersion=2")) == 2 + 9
    for requested in ("version?startingTimestamp=2023-11-14T22:13:23Z", "changes?startingVersion=2"):
        response = await client.get(f"{TABLE}/{requested}", headers=bearer())
        body = await response.read()
        assert (response.status, error_of(body)) == (500, "INTERNAL_ERROR")
        assert "this commit has none; read its version by number" in orjson.loads(body)["message"]


async def test_a_property_alone_enables_no_in_commit_timestamps(client: Client, root: Path) -> None:
    for version in range(VERSIONS):
        path = root / "_delta_log" / f"{version:020}.json"
        text = path.read_text().replace('"inCommitTimestamp"]', '"appendOnly"]')
        path.write_text(text.replace("inCommitTimestamp", "timestamp"))
        seconds = FIRST_MS / 1000 + 100 * version
        os.utime(path, (seconds, seconds))
    _, lines = await query(client, {"version": 2})
    assert {line["file"]["timestamp"] for line in lines[2:]} == {FIRST_MS + 200_000}
    _, lines = await query(client, {"timestamp": "2023-11-14T22:15:30Z"})
    assert len(ids(lines)) == 2 * FILES_PER_VERSION


@pytest.mark.parametrize("size", [1, 4, 100])
async def test_pages_of_changes(client: Client, root: Path, size: int) -> None:
    path = f"{TABLE}/changes?startingVersion=1&endingTimestamp=2023-11-14T22:13:23Z"
    whole = lines_of(await (await client.get(path, headers=bearer())).read())
    seen: list[Any] = []
    token, head = "", None
    while True:
        paged = f"{path}&maxFiles={size}" + (f"&pageToken={token}" if token else "")
        response = await client.get(paged, headers=bearer())
        assert response.headers["Delta-Table-Version"] == "1"
        page = lines_of(await response.read())
        head = head or page[:2]
        assert page[:2] == head
        seen += [line["add"]["id"] for line in page if "add" in line]
        commit(root, VERSIONS)
        token = end(page).get("nextPageToken", "")
        if not token:
            break
    assert seen == [line["add"]["id"] for line in whole if "add" in line]
    assert len(seen) == 9


async def test_changes_requested_again_are_the_same_files_with_new_urls(client: Client, clock: Clock) -> None:
    path = f"{TABLE}/changes?startingVersion=1&endingVersion=2&includeHistoricalMetadata=true"
    first = lines_of(await (await client.get(path, headers=bearer())).read())
    clock.now_ms += (LIFETIME_SECONDS - 900) * 1000
    again = lines_of(await (await client.get(path, headers=bearer())).read())
    assert again[:2] == first[:2]
    for old, new in zip(first[2:], again[2:], strict=True):
        assert [new["add"][name] for name in ("id", "version", "timestamp")] == [
            old["add"][name] for name in ("id", "version", "timestamp")
        ]
        assert new["add"]["url"] != old["add"]["url"]
        assert new["add"]["expirationTimestamp"] > old["add"]["expirationTimestamp"]


async def test_short_pages_of_changes_leave_as_they_are(client: Client) -> None:
    path = f"{TABLE}/changes?startingVersion=0"
    for pages, coding in (("", "gzip"), ("&maxFiles=2", None), ("&maxFiles=500", "gzip")):
        response = await client.get(path + pages, headers=bearer() | {"Accept-Encoding": "gzip"})
        assert response.status == 200
        assert response.headers.get("Content-Encoding") == coding


async def test_versions_and_changes_of_a_recreated_table_are_its_own(client: Client, root: Path) -> None:
    async def urls(body: dict[str, Any]) -> str:
        _, lines = await query(client, body)
        return " ".join(line[kind]["url"] for line in lines for kind in ("file", "add") if kind in line)

    requested = [{"version": 1}, {"startingVersion": 0, "endingVersion": 1}]
    for body in requested:
        assert "table-id-1-" in await urls(body)
    shutil.rmtree(root)
    for version in range(2):
        commit(root, version, table_id="another-id")
    for body in [{}, *requested]:
        found = await urls(body)
        assert "another-id-1-" in found
        assert "table-id" not in found
