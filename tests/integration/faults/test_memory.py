"""The memory of a gateway is bounded by `gateway.cache.memoryBytes` for any requests."""

import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.gateway_process import PREFIX, TOKEN, RunningGateway, running_gateway, share
from support.nightly import at_night
from support.waiting import wait_until
from tables.large_logs import make_log

MIB = 1024 * 1024
VERSIONS = 60
ADDS_PER_VERSION = 2_000
STATISTICS_BYTES = 400
BUDGET_BYTES = 64 * MIB
SMALL_FILES, LARGE_FILES = 10_000, 120_000
"""The columns of the first fit into `COLUMNS_BYTES`, those of the second do not."""
COLUMNS_BYTES = 24 * MIB
UNITS = {"kB": 1024}


def peak_bytes(gateway: RunningGateway) -> int:
    """The most that the process ever held."""
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    _, number, unit = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()
    return int(number) * UNITS[unit]


def head_of_log() -> list[dict[str, Any]]:
    """The first two actions of a table with one column of texts."""
    fields = [{"name": "c", "type": "string", "nullable": True, "metadata": {}}]
    return [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "long",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of commits alone, 57 MB in all."""
    root = tmp_path_factory.mktemp("long") / "table"
    log = root / "_delta_log"
    log.mkdir(parents=True)
    head = head_of_log()
    longest = "x" * (STATISTICS_BYTES // 2)
    statistics = json.dumps({"numRecords": 1, "minValues": {"c": longest}, "maxValues": {"c": longest}})
    for version in range(VERSIONS):
        adds = [
            {
                "add": {
                    "path": f"part-{version:03}-{number:05}.parquet",
                    "partitionValues": {},
                    "size": 1,
                    "modificationTime": 0,
                    "dataChange": True,
                    "stats": statistics,
                }
            }
            for number in range(ADDS_PER_VERSION)
        ]
        lines = (json.dumps(action) for action in (head if version == 0 else []) + adds)
        (log / f"{version:020}.json").write_text("\n".join(lines) + "\n")
    return root


LARGE_COMMITS = 6
ONE_COMMIT = 45
"""The commits of the long log that are one: 43 MB, of which an answer makes twice as much."""
LIMIT_BYTES = 256 * MIB


def test_tables_with_large_commits_leave_their_memory_to_each_other(long_log: Path, tmp_path: Path) -> None:
    # Each table has a log of its own, as links share no cache.
    tables = {f"t{number}": tmp_path / f"t{number}" for number in range(LARGE_COMMITS)}
    for root in tables.values():
        shutil.copytree(long_log, root)
    section = {
        "limits": {"memoryBytes": LIMIT_BYTES, "queueSeconds": 5},
        "drainDelaySeconds": 0,
    }
    shared = share("s", {name: str(root) for name, root in tables.items()})
    with running_gateway(tmp_path, [shared], section) as gateway:

        def files(table: str) -> int:
            """The number of files, after as many attempts as a client makes."""
            for _ in range(5):
                answer = gateway.query(f"s.default.{table}", {"maxFiles": 1}, "responseformat=parquet")
                if answer.status == 200:
                    return answer.lines[1]["metaData"]["numFiles"]
                assert answer.status == 503
            pytest.fail(f"{table} is refused for good")

        for _ in range(2):
            assert [files(table) for table in tables] == [VERSIONS * ADDS_PER_VERSION] * LARGE_COMMITS
        wait_until(lambda: gateway.request("GET", "/readyz").status == 200)


def one_commit(long_log: Path, root: Path, versions: int = ONE_COMMIT) -> str:
    """Write a table of one large commit, and return its location."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    with (log / f"{0:020}.json").open("wb") as commit:
        for version in range(versions):
            commit.write((long_log / "_delta_log" / f"{version % VERSIONS:020}.json").read_bytes())
    return str(root)


def test_large_logs_that_are_read_at_once_stay_within_the_limit_together(
    long_log: Path, tmp_path: Path
) -> None:
    limit_bytes = 192 * MIB
    tables = {f"t{number}": one_commit(long_log, tmp_path / f"t{number}") for number in range(LARGE_COMMITS)}
    section = {"limits": {"memoryBytes": limit_bytes, "queueSeconds": 5}, "drainDelaySeconds": 0}
    with (
        running_gateway(tmp_path, [share("s", tables)], section) as gateway,
        ThreadPoolExecutor(LARGE_COMMITS) as clients,
    ):
        assert gateway.request("GET", "/shares").status == 200
        before = peak_bytes(gateway)

        def status(table: str) -> int:
            return gateway.query(f"s.default.{table}", {"maxFiles": 1}, "responseformat=parquet").status

        waiting = [*tables]
        for _ in range(5 * LARGE_COMMITS):
            found = [*clients.map(status, waiting)]
            assert {*found} <= {200, 503}
            waiting = [table for table, one in zip(waiting, found, strict=True) if one != 200]
        assert not waiting
        assert peak_bytes(gateway) < before + limit_bytes + 64 * MIB
        wait_until(lambda: gateway.request("GET", "/readyz").status == 200)


def test_a_log_that_the_limit_never_allows_is_refused_and_others_are_answered(
    long_log: Path, tmp_path: Path
) -> None:
    tables = {
        "small": str(tmp_path / "small"),
        "large": one_commit(long_log, tmp_path / "large", 2 * ONE_COMMIT),
    }
    (tmp_path / "small" / "_delta_log").mkdir(parents=True)
    shutil.copy(long_log / "_delta_log" / f"{0:020}.json", tmp_path / "small" / "_delta_log")
    section = {"limits": {"memoryBytes": 128 * MIB}, "drainDelaySeconds": 0}
    with running_gateway(tmp_path, [share("s", tables)], section) as gateway:
        answer = gateway.query("s.default.large", {"maxFiles": 1}, "responseformat=parquet")
        assert answer.status == 503
        assert "no memory left for the table's log" in answer.body.decode()
        wait_until(
            lambda: re.search(r"its log takes \d+ bytes of memory", gateway.log.read_text()) is not None
        )
        assert gateway.query("s.default.small", {"maxFiles": 1}, "responseformat=parquet").status == 200


def test_one_commit_that_is_larger_than_the_limit_allows_is_answered_and_the_server_ready_again(
    long_log: Path, tmp_path: Path
) -> None:
    location = one_commit(long_log, tmp_path / "t")
    section = {"limits": {"memoryBytes": 128 * MIB, "queueSeconds": 5}, "drainDelaySeconds": 0}
    with running_gateway(tmp_path, [share("s", {"t": location})], section) as gateway:
        for _ in range(3):
            answer = gateway.query("s.default.t", {"maxFiles": 1}, "responseformat=parquet")
            assert answer.status == 200
            assert answer.lines[1]["metaData"]["numFiles"] == ONE_COMMIT * ADDS_PER_VERSION
        wait_until(lambda: gateway.request("GET", "/readyz").status == 200)


def varint(number: int) -> bytes:
    """A number in the compact protocol of Thrift."""
    head = b""
    while number > 0x7F:
        head, number = head + bytes([number & 0x7F | 0x80]), number >> 7
    return head + bytes([number])


def structs(elements: list[bytes]) -> bytes:
    """A list of structs as the next field."""
    return b"\x19\xfc" + varint(len(elements)) + b"".join(elements)


def group(name: bytes, children: int) -> bytes:
    """A group of a schema."""
    return b"\x35\x02\x18" + varint(len(name)) + name + b"\x15" + varint(2 * children) + b"\x00"


def footer(schema: list[bytes], row_groups: int, columns: int) -> bytes:
    """The footer of a file whose columns say as little as they may."""
    column = bytes.fromhex("2600 1c 1502 1905 2500 1600 1600 1600 2600 00 00")
    row_group = structs([column] * columns) + bytes.fromhex("1600 1600 00")
    return b"\x15\x02" + structs(schema) + b"\x16\x00" + structs([row_group] * row_groups) + b"\x00"


LEAF = bytes.fromhex("1502 2502 18016c 00")
HOSTILE_FOOTERS = {
    "many columns of many row groups": footer([group(b"r", 1000), *[LEAF] * 1000], 200, 1000),
    "a long name around many columns": footer(
        [group(b"r", 1), group(b"g" * (MIB // 8), 1000), *[LEAF] * 1000], 0, 1000
    ),
    "a wide schema": footer([group(b"r", 100_000), *[LEAF] * 100_000], 0, 0),
}
"""Of 0.2 to 4 MB, from which 85 to 250 MB are decoded."""


@pytest.mark.parametrize(
    "content",
    [HOSTILE_FOOTERS["a wide schema"], *at_night(*HOSTILE_FOOTERS.values())],
    ids=["one", *HOSTILE_FOOTERS],
)
def test_footers_that_are_decoded_at_once_stay_within_the_limit_together(
    tmp_path: Path, content: bytes
) -> None:
    limit_bytes = 192 * MIB
    tables = {f"t{number}": str(tmp_path / f"t{number}") for number in range(LARGE_COMMITS)}
    for location in tables.values():
        log = Path(location, "_delta_log")
        log.mkdir(parents=True)
        checkpoint = b"PAR1" + content + len(content).to_bytes(4, "little") + b"PAR1"
        (log / "00000000000000000000.checkpoint.parquet").write_bytes(checkpoint)
        (log / "_last_checkpoint").write_text(json.dumps({"version": 0, "size": 2}))
    section = {"limits": {"memoryBytes": limit_bytes, "queueSeconds": 5}, "drainDelaySeconds": 0}
    with (
        running_gateway(tmp_path, [share("s", tables)], section) as gateway,
        ThreadPoolExecutor(LARGE_COMMITS) as clients,
    ):
        assert gateway.request("GET", "/shares").status == 200
        before = peak_bytes(gateway)
        found = [*clients.map(lambda table: gateway.query(f"s.default.{table}").status, tables)]
        assert {*found} <= {500, 503}
        assert peak_bytes(gateway) < before + limit_bytes + 64 * MIB
        wait_until(lambda: gateway.request("GET", "/readyz").status == 200)


def one_long_line(log: Path) -> None:
    """A commit with an action of 300 MiB."""
    with (log / f"{0:020}.json").open("w") as commit:
        commit.writelines(json.dumps(action) + "\n" for action in head_of_log())
        commit.write('{"add":{"path":"')
        for _ in range(300):
            commit.write("p" * MIB)
        commit.write('"}}\n')


def many_small_commits(log: Path) -> None:
    """Commits of 40 bytes. A link of the same file takes a seventh of the CPU of a file."""
    head = "".join(json.dumps(action) + "\n" for action in head_of_log())
    (log / f"{0:020}.json").write_text(head)
    commit = log.with_name("commit.json")
    commit.write_text(json.dumps({"commitInfo": {"operation": "WRITE"}}) + "\n")
    for version in range(1, 60_000):
        os.link(commit, log / f"{version:020}.json")


@pytest.mark.parametrize(("write", "status"), [(one_long_line, 500), (many_small_commits, 200)])
def test_a_hostile_log_of_commits_makes_no_large_process(
    tmp_path: Path, write: Callable[[Path], None], status: int
) -> None:
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    write(log)
    shared = share("s", {"t": str(tmp_path / "t")})
    with running_gateway(tmp_path, [shared], {"drainDelaySeconds": 0}) as gateway:
        assert gateway.request("GET", "/shares").status == 200
        before = peak_bytes(gateway)
        assert gateway.query("s.default.t").status == status
        assert peak_bytes(gateway) < before + 64 * MIB


HOSTILE_TEXTS = {
    "one text": (
        {"stats": 200 * MIB},
        "the texts of an action are too long|the pages of a row are too large",
    ),
    "many columns": (
        {f"c{number}": 60 * MIB for number in range(8)},
        "the pages of a row are too large",
    ),
}


def hostile_checkpoint(root: Path, lengths: dict[str, int], description: str = "") -> int:
    """Write a table whose checkpoint is small and has texts of these lengths; return the file's size."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    texts = {name: "x" * length for name, length in lengths.items()}
    stats = texts.pop("stats", "{}")
    parsed = {"numRecords": 1, "minValues": texts or {"c": "a"}}
    fields = [
        {"name": name, "type": "string", "nullable": True, "metadata": {}} for name in parsed["minValues"]
    ]
    add = {"path": "f", "size": 1, "modificationTime": 1, "dataChange": True, "partitionValues": []}
    add |= {"stats_parsed": parsed} if texts else {"stats": stats}
    metadata = {
        "id": "hostile",
        "description": description,
        "format": {"provider": "parquet"},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
    }
    rows = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}, "metaData": None, "add": None},
        {"protocol": None, "metaData": metadata, "add": None},
        {"protocol": None, "metaData": None, "add": add},
    ]
    inferred = pa.Table.from_pylist(rows).schema
    string_map = pa.map_(pa.string(), pa.string())
    children = [
        field.with_type(string_map) if field.name == "partitionValues" else field
        for field in inferred.field("add").type
    ]
    versions = pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()})
    types = {"add": pa.struct(children), "protocol": versions, "metaData": inferred.field("metaData").type}
    schema = pa.schema(types.items())
    file = log / "00000000000000000000.checkpoint.parquet"
    pq.write_table(
        pa.Table.from_pylist(rows, schema),
        file,
        compression="zstd",
        write_statistics=False,
        use_dictionary=False,
    )
    (log / "_last_checkpoint").write_text(json.dumps({"version": 0, "size": len(rows)}))
    return file.stat().st_size


@pytest.mark.parametrize(
    ("lengths", "reason"),
    [HOSTILE_TEXTS["one text"], *at_night(*HOSTILE_TEXTS.values())],
    ids=["one", *HOSTILE_TEXTS],
)
def test_a_small_checkpoint_makes_no_large_process(
    tmp_path: Path, lengths: dict[str, int], reason: str
) -> None:
    assert hostile_checkpoint(tmp_path / "t", lengths) < MIB / 4
    with running_gateway(
        tmp_path, [share("s", {"t": str(tmp_path / "t")})], {"drainDelaySeconds": 0}
    ) as gateway:
        assert gateway.request("GET", "/shares").status == 200
        before = peak_bytes(gateway)
        answer = gateway.query("s.default.t")
        assert answer.status == 500, answer
        wait_until(lambda: re.search(reason, gateway.log.read_text()) is not None)
        assert peak_bytes(gateway) < before + 64 * MIB


def test_metadata_that_many_small_checkpoints_unpack_at_once_stays_within_the_limit(tmp_path: Path) -> None:
    limit_bytes = 128 * MIB
    tables = {f"t{number}": str(tmp_path / f"t{number}") for number in range(3 * LARGE_COMMITS)}
    assert hostile_checkpoint(tmp_path / "first", {}, description="x" * 50 * MIB) < MIB / 16
    for location in tables.values():
        shutil.copytree(tmp_path / "first", location)
    with (
        running_gateway(
            tmp_path,
            [share("s", tables)],
            {"limits": {"memoryBytes": limit_bytes}, "drainDelaySeconds": 0},
        ) as gateway,
        ThreadPoolExecutor(len(tables)) as clients,
    ):
        assert gateway.request("GET", "/shares").status == 200
        before = peak_bytes(gateway)

        def status(table: str) -> int:
            return gateway.request("GET", f"/shares/s/schemas/default/tables/{table}/metadata").status

        assert {*clients.map(status, tables)} <= {500, 503}
        # On a busy machine each may have waited for another for too long.
        wait_until(lambda: status("t0") == 500)
        assert peak_bytes(gateway) < before + limit_bytes + 64 * MIB
        assert "the texts of an action are too long" in gateway.log.read_text()


@pytest.mark.alone
def test_whole_answers_at_once_stay_within_the_limit_while_they_are_sent(tmp_path: Path) -> None:
    limit_bytes, protocol_and_metadata = 128 * MIB, head_of_log()
    protocol_and_metadata[1]["metaData"]["description"] = "x" * 7 * MIB
    tables = {f"t{number}": str(tmp_path / f"t{number}") for number in range(20)}
    for location in tables.values():
        log = Path(location, "_delta_log")
        log.mkdir(parents=True)
        text = "".join(json.dumps(action) + "\n" for action in protocol_and_metadata)
        (log / f"{0:020}.json").write_text(text)
    section = {"limits": {"memoryBytes": limit_bytes}, "drainDelaySeconds": 0}
    with (
        running_gateway(tmp_path, [share("s", tables)], section) as gateway,
        ThreadPoolExecutor(len(tables)) as clients,
    ):
        assert gateway.request("GET", "/shares").status == 200
        before = peak_bytes(gateway)

        def path(table: str) -> str:
            return f"/shares/s/schemas/default/tables/{table}/metadata"

        def status(table: str) -> int:
            return gateway.request("GET", path(table)).status

        assert {*clients.map(status, tables)} <= {200, 503}
        with ExitStack() as unread:
            connections = [
                unread.enter_context(socket.create_connection(("127.0.0.1", gateway.port))) for _ in range(40)
            ]
            for connection, table in zip(connections, cycle(tables)):
                head = (
                    f"GET {PREFIX}{path(table)} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
                )
                connection.sendall(head.encode())
            # Each gets a part of an answer, or a refusal.
            assert all(connection.recv(1) for connection in connections)
        assert peak_bytes(gateway) < before + limit_bytes + 64 * MIB
        wait_until(lambda: {status(table) for table in tables} == {200})
        wait_until(lambda: gateway.request("GET", "/readyz").status == 200)


@pytest.mark.parametrize("order", [1, *at_night(-1)], ids=["ascending", "descending"])
def test_all_versions_of_a_long_log_are_held_within_the_budget(
    long_log: Path, tmp_path: Path, order: int
) -> None:
    section = {"cache": {"memoryBytes": BUDGET_BYTES}, "drainDelaySeconds": 0}
    with running_gateway(tmp_path, [share("s", {"t": str(long_log)})], section) as gateway:
        for version in range(VERSIONS)[::order]:
            body = {"version": version, "maxFiles": 1}
            answer = gateway.query("s.default.t", body, "responseformat=parquet;includeendstreamaction=true")
            assert answer.status == 200
            assert answer.lines[1]["metaData"]["numFiles"] == (version + 1) * ADDS_PER_VERSION
        # Beside what is held, the log of one version is read; that of another one, too, while the work for
        # the answer before it ends. The rest is the process itself.
        assert peak_bytes(gateway) < BUDGET_BYTES + 320 * MIB


@pytest.mark.nightly
def test_a_table_that_does_not_fit_leaves_the_others_in_memory(tmp_path: Path) -> None:
    maker = make_log()
    tables: dict[str, str] = {}
    for name, files in (("small", SMALL_FILES), ("large", LARGE_FILES)):
        maker.make_log(tmp_path / name, maker.LogOptions(adds=files, commits=1))
        tables[name] = str(tmp_path / name)
    section = {"cache": {"memoryBytes": COLUMNS_BYTES, "threads": 2}, "drainDelaySeconds": 0}
    with running_gateway(tmp_path, [share("s", tables)], section) as gateway:

        def read(table: str) -> None:
            assert gateway.query(table).status == 200

        def is_in_memory(table: str) -> bool:
            """Whether the files that a hint chooses are counted before they are read."""
            answer = gateway.query(table, {"predicateHints": ["id >= 0"]})
            assert answer.status == 200
            return "while streaming" not in answer.headers["delta-sharing-pruning"]

        read("s.default.small")
        # The last columns are kept when the answer has ended.
        wait_until(lambda: is_in_memory("s.default.small"))
        for _ in range(2):
            read("s.default.large")
            assert not is_in_memory("s.default.large")
            assert is_in_memory("s.default.small")
        assert peak_bytes(gateway) < COLUMNS_BYTES + 200 * MIB
