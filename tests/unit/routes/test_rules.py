"""Grants with conditions through a real socket: what a recipient learns, and when it is refused."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from support.gateway_app import TOKENS, bearer, error_of, serve
from support.history_table import CAPABLE, TABLE, Client, changes, commit, end, ids, lines_of, query

from gateway import _native
from gateway.authentication.credential_table import token_hash
from gateway.catalog.grants import Rule
from gateway.cli import check
from gateway.config import Config, ConfigError, loads
from gateway.state import GatewayState
from gateway.tables import rules
from gateway.tables.rules import RuleCache
from gateway.tables.visible_errors import shared_error

INSIDE = "p = recipient.part"


def text_of(root: Path, condition: str = INSIDE, *, part: str = "part-1", modes: str = "[url]") -> str:
    """Alice reads the table by a condition, bob all of it."""
    grant = json.dumps({"share": "s", "condition": condition})
    table = f"{{name: t, location: '{root}', historyShared: true, id: the-id, accessModes: {modes}}}"
    digests = {name: token_hash(TOKENS[name]).hex() for name in ("alice", "bob")}
    return f"""
shares: [{{name: s, schemas: [{{name: d, tables: [{table}]}}]}}]
gateway:
  tokenKeys: [{{id: k1, secret: a secret for the tests}}]
  recipients:
  - {{name: alice, tokens: [{{sha256: {digests["alice"]}}}], shares: [{grant}], properties: {{part: {part}}}}}
  - {{name: bob, tokens: [{{sha256: {digests["bob"]}}}], shares: [s]}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for version in range(4):
        commit(tmp_path / "table", version)
    return tmp_path / "table"


@pytest.fixture
async def client(root: Path) -> AsyncIterator[Client]:
    client, _ = await serve(text_of(root))
    yield client
    await client.close()


def reload(client: Client, text: str) -> None:
    """Replace the configuration, as a reload does."""
    pipeline = client.server.pipeline  # type: ignore[attr-defined]
    config: Config = loads(f"version: 1\n{text}")
    config = replace(config, host=pipeline.state.config.host, port=pipeline.state.config.port)
    pipeline.state = GatewayState.of(config, previous=pipeline.state)


async def test_metadata_and_counts_are_those_of_the_rule(client: Client) -> None:
    for name, files, size in (("bob", 12, sum(range(100, 112))), ("alice", 4, 101 + 104 + 107 + 110)):
        described = await client.get(f"{TABLE}/metadata", headers=bearer(name))
        metadata = lines_of(await described.read())[1]["metaData"]
        response, lines = await query(client, {}, name=name)
        assert (metadata["numFiles"], metadata["size"]) == (files, size)
        assert lines[1]["metaData"] == metadata
        assert len(ids(lines)) == files
        assert ("delta-sharing-pruning" in response.headers) == (name == "bob")


async def test_a_predicate_and_a_limit_choose_among_the_files_of_the_rule_alone(client: Client) -> None:
    _, lines = await query(client, {"predicateHints": ["x > 6"], "limitHint": 5})
    assert len(ids(lines)) == 1
    _, lines = await query(client, {"predicateHints": ["p = 'part-0'"]})
    assert ids(lines) == []


def write_checkpoint(root: Path, greatest: int) -> None:
    """Writes all files in one row group with typed statistics; `greatest` is the maximum of one outside."""
    commits = [path.read_text() for path in sorted((root / "_delta_log").glob("*.json"))]
    lines = [json.loads(line) for line in "".join(commits).splitlines()]
    protocol = next(line["protocol"] for line in lines if "protocol" in line)
    metadata = next(line["metaData"] for line in lines if "metaData" in line)
    rows: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": metadata | {"format": None}}]
    for add in [line["add"] for line in lines if "add" in line]:
        stats = json.loads(add["stats"])
        if add["path"].endswith("-3-2.parquet"):
            stats["maxValues"]["x"] = greatest
        values = list(add["partitionValues"].items())
        rows.append({"add": add | {"partitionValues": values, "stats": None, "stats_parsed": stats}})
    rows[1]["metaData"]["configuration"] = list(metadata["configuration"].items())
    texts, bounds = pa.map_(pa.string(), pa.string()), pa.struct([("x", pa.int64())])
    schema = {
        "protocol": [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("writerFeatures", pa.list_(pa.string())),
        ],
        "metaData": [
            ("id", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", texts)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", texts),
        ],
        "add": [
            ("path", pa.string()),
            ("partitionValues", texts),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            (
                "stats_parsed",
                pa.struct(
                    [
                        ("numRecords", pa.int64()),
                        ("minValues", bounds),
                        ("maxValues", bounds),
                        ("nullCount", bounds),
                    ]
                ),
            ),
        ],
    }
    columns = {name: pa.array([row.get(name) for row in rows], pa.struct(of)) for name, of in schema.items()}
    pyarrow.parquet.write_table(pa.table(columns), root / "_delta_log" / f"{3:020}.checkpoint.parquet")


@pytest.mark.parametrize(
    "body",
    [
        {"predicateHints": ["p = 'part-1'", "x > 20"]},
        {"predicateHints": ["p = 'part-1'", "x > 20"], "maxFiles": 1},
    ],
)
async def test_headers_do_not_show_statistics_of_files_outside_of_the_rule(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    """A row group is skipped or read by the statistics of all its files."""
    shown = []
    for greatest in (11, 77):
        root = tmp_path / str(greatest) / "table"
        for version in range(4):
            commit(root, version)
        write_checkpoint(root, greatest)
        client, _ = await serve(text_of(root))
        response, _ = await query(client, body)
        await client.close()
        mine = {name.lower(): text for name, text in response.headers.items()}
        shown.append({name: text for name, text in mine.items() if name.startswith("delta-")})
    assert shown[0] == shown[1]


async def test_an_answer_is_cached_for_each_rule_apart(client: Client, root: Path) -> None:
    for _ in range(3):
        assert len(ids((await query(client, {}, name="bob"))[1])) == 12
        first = ids((await query(client, {}))[1])
    assert len(first) == 4
    reload(client, text_of(root, part="part-2"))
    second = ids((await query(client, {}))[1])
    assert len(second) == 4
    assert not set(first) & set(second)


@pytest.mark.parametrize(
    "change", [{"part": "part-2"}, {"condition": "p = 'part-1'"}, {"condition": "p IS NOT NULL"}]
)
async def test_tokens_end_with_the_rule_that_they_were_made_under(
    client: Client, root: Path, change: dict[str, str]
) -> None:
    _, lines = await query(client, {"maxFiles": 2, "includeRefreshToken": True}, headers=CAPABLE)
    page, refresh = end(lines)["nextPageToken"], end(lines)["refreshToken"]
    reload(client, text_of(root, **change))
    for body in ({"maxFiles": 2, "pageToken": page}, {"refreshToken": refresh}):
        response = await client.post(f"{TABLE}/query", json=body, headers=bearer() | CAPABLE)
        assert (response.status, error_of(await response.read())) == (400, "INVALID_PARAMETER_VALUE")
    reload(client, text_of(root))
    _, lines = await query(client, {"refreshToken": refresh}, headers=CAPABLE)
    assert len(ids(lines)) == 4


async def test_page_tokens_do_not_show_how_many_other_files_come_before(client: Client, root: Path) -> None:
    log = root / "_delta_log" / f"{0:020}.json"
    *head, add, _, _ = map(json.loads, log.read_text().splitlines())
    parts = ["part-1", *["part-0"] * 200, "part-1", "part-1"]
    adds = [
        {"add": add["add"] | {"path": f"{number}.parquet", "partitionValues": {"p": part}}}
        for number, part in enumerate(parts)
    ]
    log.write_text("".join(f"{json.dumps(line)}\n" for line in (*head, *adds)))
    tokens: list[str] = []
    for _ in range(2):
        body = {"version": 0, "maxFiles": 1} | ({"pageToken": tokens[-1]} if tokens else {})
        tokens.append(end((await query(client, body))[1])["nextPageToken"])
    assert len(tokens[0]) == len(tokens[1])


async def test_ranges_have_the_changes_of_the_rule(client: Client) -> None:
    found = [line for line in await changes(client, "startingVersion=0") if "add" in line]
    assert [line["add"]["partitionValues"] for line in found] == [{"p": "part-1"}] * 4


async def test_a_rule_that_the_table_does_not_decide_refuses_its_recipient_alone(
    client: Client, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for condition, reason in (
        ("x = 1", "column 'x' is no partition column"),
        ("region = 'eu'", "no one column is named 'region'"),
        ("p = 1", "the constant cannot be compared exactly with column 'p'"),
    ):
        reload(client, text_of(root, condition))
        for method, path in (("POST", "query"), ("GET", "metadata"), ("GET", "changes?startingVersion=0")):
            refused = await client.request(method, f"{TABLE}/{path}", headers=bearer(), data=b"{}")
            body = await refused.read()
            assert (refused.status, error_of(body)) == (403, "PERMISSION_DENIED")
            assert b"the rule of your grant" in body
            assert b"'" not in body
        assert reason in caplog.text
        assert len(ids((await query(client, {}, name="bob"))[1])) == 12
    recorder = client.server.pipeline.recorder  # type: ignore[attr-defined]
    assert recorder._metrics.refused.labels("rule")._value.get() == 9


async def test_the_error_of_a_corrupt_log_counts_no_files_outside_of_the_rule(
    client: Client, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = root / "_delta_log"
    commits = [json.loads(line) for file in sorted(log.iterdir()) for line in file.read_text().splitlines()]
    name = f"{3:020}.checkpoint.00000000-0000-0000-0000-000000000003.json"
    lines = [{"checkpointMetadata": {"version": 3}}, *(line for line in commits if "commitInfo" not in line)]
    for file in log.iterdir():
        file.unlink()
    (log / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    stated = {"path": name, "sizeInBytes": 1, "modificationTime": 1}
    hint = {"version": 3, "size": 14, "numOfAddFiles": 13, "v2Checkpoint": stated}
    (log / "_last_checkpoint").write_text(json.dumps(hint))
    commit(root, 4)
    for path in ("query", "metadata"):
        method = "POST" if path == "query" else "GET"
        refused = await client.request(method, f"{TABLE}/{path}", headers=bearer(), data=b"{}")
        message = json.loads(await refused.read())["message"]
        assert (refused.status, message.partition(";")[0]) == (500, "the table's log is corrupt")
    assert "it has at most 12 adds, _last_checkpoint requires 13" in caplog.text


@pytest.mark.parametrize("name", ["alice", "bob"])
async def test_a_replaced_log_file_shows_no_number_of_parts_under_a_rule(client: Client, name: str) -> None:
    state = client.server.pipeline.state  # type: ignore[attr-defined]
    recipient = state.credentials.recipients[name]
    part = f"{9:020}.checkpoint.{3:010}.{70:010}.parquet"
    shown = shared_error(
        state.catalog.table(recipient, "s", "d", "t"), _native.FileReplaced(f"{part} is gone")
    )
    assert isinstance(shown, _native.FileReplaced)
    assert (part in str(shown)) is (name == "bob")


async def test_a_table_whose_partitioning_changes_is_refused_until_its_rule_fits(
    client: Client, root: Path
) -> None:
    assert len(ids((await query(client, {}))[1])) == 4
    log = root / "_delta_log"
    first = (log / f"{0:020}.json").read_text().splitlines()
    (head,) = [json.loads(line) for line in first if "metaData" in line]
    head["metaData"]["partitionColumns"] = []
    (log / f"{4:020}.json").write_text(
        f'{{"commitInfo":{{"inCommitTimestamp":1700000009000}}}}\n{json.dumps(head)}\n'
    )
    refused = await client.post(f"{TABLE}/query", data=b"{}", headers=bearer())
    assert (refused.status, error_of(await refused.read())) == (403, "PERMISSION_DENIED")
    _, lines = await query(client, {"version": 3})
    assert len(ids(lines)) == 4
    refused = await client.get(f"{TABLE}/changes?startingVersion=0", headers=bearer())
    assert refused.status == 403
    assert len(ids((await query(client, {}, name="bob"))[1])) == 12


async def test_files_without_partition_values_refuse_changes_by_a_rule(client: Client, root: Path) -> None:
    remove = {"path": "p=part-0/gone.parquet", "deletionTimestamp": 1, "dataChange": True}
    (root / "_delta_log" / f"{4:020}.json").write_text(
        f'{{"commitInfo":{{"inCommitTimestamp":1700000009000}}}}\n{json.dumps({"remove": remove})}\n'
    )
    for path in (f"{TABLE}/changes?startingVersion=4", f"{TABLE}/query"):
        method = "GET" if "changes" in path else "POST"
        body = None if method == "GET" else b'{"startingVersion": 4}'
        refused = await client.request(method, path, data=body, headers=bearer())
        assert refused.status == 403
        assert b"the rule of your grant" in await refused.read()


@pytest.mark.parametrize(("condition", "files"), [("p IS NULL", ["keyless.parquet"]), (INSIDE, [])])
async def test_an_absent_partition_value_is_null_in_snapshots_and_in_ranges(
    client: Client, root: Path, condition: str, files: list[str]
) -> None:
    reload(client, text_of(root, condition))
    before = ids((await query(client, {}))[1])
    keyless = {
        "path": "keyless.parquet",
        "partitionValues": {},
        "size": 7,
        "modificationTime": 1,
        "dataChange": True,
    }
    (root / "_delta_log" / f"{4:020}.json").write_text(
        f'{{"commitInfo":{{"inCommitTimestamp":1700000009000}}}}\n{json.dumps({"add": keyless})}\n'
    )
    assert len(ids((await query(client, {}))[1])) == len(before) + len(files)
    added = [line["add"] for line in await changes(client, "startingVersion=4") if "add" in line]
    assert [one["url"].partition("?")[0].rpartition("/")[2] for one in added] == files


async def test_a_condition_gives_no_directory_access(root: Path) -> None:
    bucket = "s3://bucket/table"
    text = text_of(root, modes="[url, dir]").replace(str(root), bucket)
    storage = (
        "  storages: [{prefix: 's3://bucket', region: eu-west-1, accessKeyId: k, secretAccessKey: s, "
        "directoryRoleArn: 'arn:aws:iam::123456789012:role/reader'}]\n"
    )
    client, _ = await serve(text + storage)
    try:
        for name, offers in (("bob", True), ("alice", False)):
            listed = await client.get(f"{TABLE.rpartition('/')[0]}", headers=bearer(name))
            (table,) = (await listed.json())["items"]
            shown = await (await client.get(TABLE, headers=bearer(name))).json()
            assert ("location" in table, "accessModes" in table) == (offers, offers)
            assert ("location" in json.dumps(shown)) is offers
        refused = await client.post(f"{TABLE}/temporary-table-credentials", headers=bearer(), data=b"{}")
        assert (refused.status, error_of(await refused.read())) == (400, "UNSUPPORTED_OPERATION")
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("p =", "the condition ends too early"),
        ("upper(p) = 'A'", "function 'upper' cannot be part of a rule"),
        ("p = recipient.absent", "the recipient has no property 'absent'"),
        ("p = q", "two columns are compared with each other"),
        ("p LIKE '%x'", "a LIKE pattern has a wildcard before its end"),
        (r"p LIKE 'a\\b%'", "a LIKE pattern with a backslash before no wildcard cannot be part of a rule"),
        ("p = 'a' OR recipient.part = 'a'", "two constants are compared"),
    ],
)
def test_a_condition_that_is_no_rule_stops_the_start_and_refuses_a_reload(
    root: Path, condition: str, reason: str
) -> None:
    config = loads(f"version: 1\n{text_of(root, condition)}")
    with pytest.raises(ConfigError, match=r"gateway\.recipients\.alice\.shares\[0\]\.condition: ") as caught:
        GatewayState.of(config)
    assert reason in str(caught.value)


def test_check_names_recipients_whose_rule_a_table_does_not_decide(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "share.yaml"
    (root / "p=part-0").mkdir()
    for condition, problem in (
        (INSIDE, None),
        ("x = 1", "recipient alice cannot read s.d.t: column 'x' is no partition column"),
    ):
        file.write_text(f"version: 1\n{text_of(root, condition)}")
        assert list(check.refused_rules(loads(file.read_text()))) == ([problem] if problem else [])
    capsys.readouterr()


def test_check_names_a_recipient_whose_conditions_are_together_too_long(root: Path) -> None:
    text = text_of(root)
    grants = [
        {"share": "s", "schema": "d", "table": "t", "condition": f"p = '{letter * 40_000}'"}
        for letter in "ab"
    ]
    text = text.replace(json.dumps({"share": "s", "condition": INSIDE}), ", ".join(map(json.dumps, grants)))
    config = loads(f"version: 1\n{text}")
    assert list(check.refused_rules(config)) == [
        "recipient alice cannot read s.d.t: the conditions have more than 65536 bytes"
    ]


def test_parsed_rules_are_bounded_in_bytes_and_kept_for_20_000_recipients() -> None:
    def rule(country: int, size: int = 1) -> Rule:
        return Rule(("p = recipient.country",), (("country", f"{country}" * size),))

    cache = RuleCache(rules.RULES_BYTES)
    known = [cache.rule(rule(number)) for number in range(20_000)]
    assert all(cache.rule(rule(number)) is known[number] for number in range(20_000))
    small = RuleCache(100_000)
    for number in range(1000):
        small.rule(rule(number, 50))
    assert 0 < len(small._known) < 100
    assert small._bytes == sum(map(rules._rule_bytes, small._known)) <= 100_000
    kept = small.rule(rule(999, 50))
    assert small.rule(rule(999, 50)) is kept
    assert small.rule(rule(998, 50)) is not kept


async def test_a_table_with_directory_access_only_is_not_offered_by_a_rule(root: Path) -> None:
    client, _ = await serve(text_of(root))
    try:
        tables = client.server.pipeline.state.catalog  # type: ignore[attr-defined]
        (one,) = tables.tables()
        object.__setattr__(one, "access_modes", ("dir",))
        for path in ("query", "temporary-table-credentials"):
            response = await client.post(f"{TABLE}/{path}", data=b"{}", headers=bearer())
            assert (response.status, error_of(await response.read())) == (403, "PERMISSION_DENIED")
    finally:
        await client.close()


def _mapped(names: tuple[str, str], kind: str = "string") -> dict[str, Any]:
    """Metadata in which two partition columns have these names, and always the same physical names."""
    fields = [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{number}",
            },
        }
        for number, name in enumerate(names)
    ]
    return {
        "id": "table-id",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(names),
        "configuration": {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"},
    }


async def test_a_rule_means_the_same_column_in_versions_in_which_it_had_another_name(tmp_path: Path) -> None:
    def write(version: int, *actions: dict[str, Any]) -> None:
        path = tmp_path / "table" / "_delta_log" / f"{version:020}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))

    def add(name: str, *values: str) -> dict[str, Any]:
        partition = {f"col-{number}": value for number, value in enumerate(values)}
        path = {"path": name, "size": 1, "modificationTime": 1, "dataChange": True}
        return {"add": path | {"partitionValues": partition}}

    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    write(0, protocol, {"metaData": _mapped(("p", "q"))}, add("first", "a", "b"), add("second", "b", "a"))
    write(1, {"metaData": _mapped(("q", "p"))})
    capable = {"delta-sharing-capabilities": "responseformat=delta;readerfeatures=columnmapping"}
    client, _ = await serve(text_of(tmp_path / "table", "p = 'a'"))

    async def paths(method: str, path: str, body: dict[str, Any] | None = None) -> list[str]:
        data = None if body is None else json.dumps(body).encode()
        response = await client.request(method, f"{TABLE}/{path}", data=data, headers=bearer() | capable)
        assert response.status == 200, await response.text()
        actions = [
            line["file"]["deltaSingleAction"] for line in lines_of(await response.read()) if "file" in line
        ]
        return [action["add"]["path"].partition("?")[0].rpartition("/")[2] for action in actions]

    try:
        # The file that the latest version hides was the one that version 0 showed by its own names.
        for method, path, body in (
            ("POST", "query", {}),
            ("POST", "query", {"version": 0}),
            ("POST", "query", {"startingVersion": 0}),
            ("GET", "changes?startingVersion=0", None),
        ):
            assert await paths(method, path, body) == ["second"], (path, body)
        write(2, {"metaData": _mapped(("q", "p"), "integer")})
        for body in ({}, {"version": 1}, {"version": 0}, {"startingVersion": 0}):
            refused = await client.post(f"{TABLE}/query", json=body, headers=bearer() | capable)
            assert (refused.status, error_of(await refused.read())) == (403, "PERMISSION_DENIED"), body
    finally:
        await client.close()
