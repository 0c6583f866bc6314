"""URLs stay fresh: renewed before they expire, and once when the store refuses them."""

import json
import pickle
import shutil
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType
from support.gateway_process import RunningGateway, running_gateway, share
from support.scripted_server import HEAD, Answers, listening
from support.waiting import wait_until
from tables.demo import CITIES, ROWS

from gateway.client.actions import DataFile, DeletionVector, FileKind, parse_head
from gateway.client.files import FileFetcher, Origin, StaleListing, page_again
from gateway.client.pages import Query
from gateway.client.profile import Profile
from gateway.client.table_name import TableName
from gateway.client.transport import HttpError, Retries, Transport
from gateway.spark.read import planning
from gateway.spark.read.options import ReadOptions
from gateway.spark.read.planning import plan_snapshot
from gateway.spark.read.reading import PagePartition, read_partition
from gateway.spark.read.schema import shared_schema

NOW_MS = 1_000_000_000_000
HOUR_MS = 3_600_000
FIELD = {"name": "a_column", "type": "long", "nullable": True, "metadata": {}}
SCHEMA = json.dumps({"type": "struct", "fields": [FIELD]})
TABLE = [HEAD[0], {"metaData": {"schemaString": SCHEMA}}]


@pytest.fixture
def answers() -> Iterator[Answers]:
    with listening() as mine:
        yield mine


def listed(answers: Answers, name: str, *, expires_ms: int | None = None) -> DataFile:
    url = f"{answers.url}/old/{name}?signature=s"
    return DataFile(FileKind.SNAPSHOT, name, url, 4, {}, expires_ms=expires_ms)


def line(answers: Answers, name: str, expires_ms: int = 2**50) -> Any:
    url = f"{answers.url}/new/{name}?signature=s"
    file = {"id": name, "url": url, "size": 4, "partitionValues": {}, "expirationTimestamp": expires_ms}
    return {"file": file}


def fetcher(answers: Answers, *files: DataFile, refresh_token: str | None = "r") -> FileFetcher:
    query = Query({"includeRefreshToken": True, "jsonPredicateHints": "{}"}, max_files=10)
    origin = Origin(Profile(answers.url, "t"), TableName("s", "d", "t"), query, 1, refresh_token)
    transport = Transport(retries=Retries(attempts=2, sleep=lambda _: None))
    return FileFetcher(origin, files, transport=transport, now_ms=lambda: NOW_MS)


def content(answers: Answers, data: bytes = b"data", status: int = 200) -> None:
    answers.answers.append((status, {}, data))


def test_a_fresh_url_is_read_without_asking_the_server(answers: Answers) -> None:
    file = listed(answers, "a", expires_ms=NOW_MS + HOUR_MS)
    content(answers)
    assert fetcher(answers, file).whole(file) == b"data"
    assert [path for path, _ in answers.requests] == ["/old/a?signature=s"]


def test_a_url_about_to_expire_is_renewed_first_by_the_refresh_token(answers: Answers) -> None:
    file = listed(answers, "a", expires_ms=NOW_MS + 1000)
    answers.say(*HEAD, line(answers, "b"), line(answers, "a"), {"endStreamAction": {}})
    content(answers)
    assert fetcher(answers, file).whole(file) == b"data"
    assert json.loads(answers.requests[0][1]) == {
        "refreshToken": "r",
        "jsonPredicateHints": "{}",
        "maxFiles": 10,
    }
    assert answers.requests[1][0] == "/new/a?signature=s"


def test_urls_that_live_for_seconds_are_not_renewed_for_each_file(answers: Answers) -> None:
    names = ("a", "b", "c")
    files = [listed(answers, name, expires_ms=NOW_MS + 1000) for name in names]
    answers.say(*HEAD, *(line(answers, name, NOW_MS + 20_000) for name in names), {"endStreamAction": {}})
    for _ in names:
        content(answers)
    fetching = fetcher(answers, *files)
    assert [fetching.whole(file) for file in files] == [b"data"] * 3
    assert [path for path, _ in answers.requests[1:]] == [f"/new/{name}?signature=s" for name in names]


@pytest.mark.parametrize("status", [400, 401, 403, 410])
def test_a_refused_url_is_renewed_once(answers: Answers, status: int) -> None:
    file = listed(answers, "a")
    content(answers, b"<Error>expired</Error>", status)
    answers.say(*HEAD, line(answers, "a"), {"endStreamAction": {}})
    content(answers)
    assert fetcher(answers, file, refresh_token=None).whole(file) == b"data"


def test_a_second_refusal_is_an_error(answers: Answers) -> None:
    file = listed(answers, "a")
    content(answers, b"", 403)
    answers.say(*HEAD, line(answers, "a"), {"endStreamAction": {}})
    content(answers, b"", 403)
    with pytest.raises(HttpError) as caught:
        fetcher(answers, file).whole(file)
    assert caught.value.status == 403


def test_one_new_listing_renews_all_files_of_the_task(answers: Answers) -> None:
    files = [listed(answers, name) for name in "ab"]
    content(answers, b"", 403)
    answers.say(*HEAD, line(answers, "a"), line(answers, "b"), {"endStreamAction": {}})
    content(answers)
    content(answers)
    reading = fetcher(answers, *files)
    for file in files:
        reading.whole(file)
    assert [path.partition("?")[0] for path, _ in answers.requests[2:]] == ["/new/a", "/new/b"]


def test_the_error_of_a_file_that_is_no_longer_listed_has_an_action(answers: Answers) -> None:
    file = listed(answers, "a")
    content(answers, b"", 403)
    answers.say(*HEAD, line(answers, "b"), {"endStreamAction": {}})
    with pytest.raises(StaleListing, match="versionAsOf"):
        fetcher(answers, file).whole(file)


def test_a_refused_refresh_token_gives_way_to_the_version_and_then_to_the_query(answers: Answers) -> None:
    file = listed(answers, "a", expires_ms=NOW_MS + 1000)
    content(answers, b"{}", 400)
    content(answers, b"{}", 400)
    answers.say(*HEAD, line(answers, "a"), {"endStreamAction": {}})
    content(answers)
    assert fetcher(answers, file).whole(file) == b"data"
    kept = {"jsonPredicateHints": "{}", "maxFiles": 10}
    assert [json.loads(body) for _, body in answers.requests[:3]] == [
        {**kept, "refreshToken": "r"},
        {**kept, "version": 1},
        kept,
    ]


def test_refused_queries_are_not_sent_again_for_the_next_file(answers: Answers) -> None:
    files = [listed(answers, name, expires_ms=NOW_MS) for name in "ab"]
    content(answers, b"{}", 400)
    for name in "ab":
        answers.say(*HEAD, line(answers, name), {"endStreamAction": {}})
        content(answers)
    reading = fetcher(answers, *files)
    for file in files:
        reading.whole(file)
    queries = [json.loads(body) for path, body in answers.requests if path.endswith("/query")]
    assert ["refreshToken" in body for body in queries] == [True, False, False]


def test_a_refusal_of_every_query_is_the_error(answers: Answers) -> None:
    file = listed(answers, "a", expires_ms=NOW_MS)
    for _ in range(3):
        content(answers, b"{}", 403)
    with pytest.raises(HttpError) as caught:
        fetcher(answers, file).whole(file)
    assert caught.value.status == 403


def test_a_range_of_versions_is_listed_again_as_it_was(answers: Answers) -> None:
    for query in (Query({"startingVersion": 1}), Query({"startingVersion": 1}, changes=True)):
        origin = Origin(Profile(answers.url, "t"), TableName("s", "d", "t"), query, 1)
        assert origin.refresh_queries() == (query,)


def page_lines(answers: Answers, *names: str, following: str | None = None) -> list[Any]:
    end = {} if following is None else {"nextPageToken": following}
    return [*TABLE, *(line(answers, name) for name in names), {"endStreamAction": end}]


@pytest.fixture
def planned(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A plan of pages with the files a, b, c and d, e, of which the driver keeps the first."""
    monkeypatch.setattr(planning, "_MOST_KEPT_FILES", 1)
    profile = json.dumps({"shareCredentialsVersion": 1, "endpoint": answers.url, "bearerToken": "t"})
    words = {"profile": profile, "path": "s.d.t", "maxFilesPerPage": "3", "partitionBytes": str(8 << 20)}
    options = ReadOptions.parse(words)
    for names, following in (("a", "2"), ("bcd", "3"), ("e", None)):
        answers.say(*page_lines(answers, *names, following=following))
    loaded = parse_head(TABLE[0]["protocol"], TABLE[1]["metaData"], 1)
    found = plan_snapshot(options, loaded)
    answers.requests.clear()
    return found


def test_a_plan_keeps_the_first_files_and_outlines_of_further_pages(planned: list[Any]) -> None:
    kept, *pages = planned
    assert [task.file.id for task in kept.tasks] == ["a"]
    assert [(one.origin.page_token, one.number, one.first, one.last) for one in pages] == [
        ("2", 1, 0, 1),
        ("2", 1, 1, 3),
        ("3", 2, 0, 1),
    ]
    # The schema, which can be larger than all else, is not part of each.
    assert b"a_column" not in pickle.dumps(planned)


def test_a_task_asks_for_its_page_again(answers: Answers, planned: list[Any]) -> None:
    _, _, some, _ = planned
    answers.say(*page_lines(answers, *"bcd", following="another"))
    page = page_again(some.origin, some.number, some.mark)
    assert [file.id for file in page.parsed(some.first, some.last)] == ["c", "d"]
    assert [json.loads(body)["pageToken"] for _, body in answers.requests] == ["2"]


def test_a_page_whose_token_is_refused_is_found_by_its_number(answers: Answers, planned: list[Any]) -> None:
    last = planned[-1]
    content(answers, b"{}", 400)
    for names, following in (("a", "4"), ("bcd", "5"), ("e", None)):
        answers.say(*page_lines(answers, *names, following=following))
    page = page_again(last.origin, last.number, last.mark)
    assert [file.id for file in page.parsed(last.first, last.last)] == ["e"]


@pytest.mark.parametrize("names", ["bc", "bce", "cbd"])
def test_a_page_with_other_files_is_an_error(answers: Answers, planned: list[Any], names: str) -> None:
    answers.say(*page_lines(answers, *names, following="3"))
    with pytest.raises(StaleListing, match="versionAsOf"):
        page_again(planned[1].origin, planned[1].number, planned[1].mark)


def test_a_further_page_that_is_cut_is_no_page(answers: Answers) -> None:
    query, client, lines = Query(), answers.client(), page_lines(answers, "a")
    answers.say(*lines[:-1], **{"delta-sharing-capabilities": "includeendstreamaction=true"})
    answers.say(*lines)
    assert [file.id for file in client.raw_page(query).parsed()] == ["a"]
    answers.say(*lines[:2], {"file": {"id": "a"}}, lines[-1])
    with pytest.raises(HttpError, match="not follow Delta Sharing"):
        client.raw_page(query).sizes()


@pytest.mark.processes
@pytest.mark.parametrize("table", ROWS)
def test_pages_of_a_gateway_are_read_by_their_tasks(
    local_gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(planning, "_MOST_KEPT_FILES", 1)
    words = {"profile": str(local_gateway.profile), "path": f"demo.default.{table}", "maxFilesPerPage": "1"}
    options = ReadOptions.parse(words)
    head = options.client().head()
    partitions = plan_snapshot(options, head)
    assert len([one for one in partitions if isinstance(one, PagePartition)]) == (head.num_files or 0) - 1
    schema = StructType(list(shared_schema(head).fields))
    batches = (batch for one in partitions for batch in read_partition(one, schema, head))
    assert sum(batch.num_rows for batch in batches) == len(ROWS[table])
    assert planning.count_snapshot(options, head) == len(ROWS[table])


@pytest.mark.processes
@pytest.mark.parametrize("history", [True, False])
def test_a_plan_is_read_after_its_urls_and_refresh_token_expired(
    demo_tables: Path, tmp_path: Path, history: bool
) -> None:
    """The table moves on meanwhile, first without and then with a change of the files that are read."""
    root = tmp_path / "cities"
    shutil.copytree(demo_tables / "cities", root)
    lives = {"preSignedUrlTimeoutSeconds": 2, "refreshTokenTtlMs": 1000}
    shares = [share("demo", {"cities": str(root)}, historyShared=history)]
    with running_gateway(tmp_path, shares, **lives) as gateway:
        options = ReadOptions.parse({"profile": str(gateway.profile), "path": "demo.default.cities"})
        head = options.client().head()
        schema = StructType(list(shared_schema(head).fields))
        planned = plan_snapshot(options, head)

        def rows() -> int:
            return sum(batch.num_rows for one in planned for batch in read_partition(one, schema, head))

        assert rows() == len(CITIES)
        urls = [task.file.url for partition in planned for task in partition.tasks]
        paths = [url.partition(f":{gateway.port}")[2] for url in urls]
        wait_until(lambda: all(gateway.request("GET", path).status == 403 for path in paths))
        assert rows() == len(CITIES)
        commit(root, {"commitInfo": {"operation": "nothing"}})
        assert rows() == len(CITIES)
        commit(root, *removes(root))
        if history:
            assert rows() == len(CITIES)
        else:
            with pytest.raises(StaleListing, match="load it again"):
                rows()


def commit(root: Path, *actions: Any) -> None:
    latest = max(int(one.stem) for one in root.glob("_delta_log/*.json") if one.stem.isdigit())
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (root / f"_delta_log/{latest + 1:020}.json").write_text(text)


def removes(root: Path) -> list[Any]:
    lines = [one for log in sorted(root.glob("_delta_log/*.json")) for one in log.read_text().splitlines()]
    added = [action["add"]["path"] for action in map(json.loads, lines) if "add" in action]
    return [{"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1}} for path in added]


@pytest.mark.parametrize(
    ("body", "said"), [(b"longer", "limit of 4 bytes"), (b"cut", "3 bytes received of a file of 4")]
)
def test_a_file_of_another_size_is_refused(answers: Answers, body: bytes, said: str) -> None:
    file = listed(answers, "a")
    content(answers, body)
    with pytest.raises(HttpError, match=said):
        fetcher(answers, file).whole(file)


def test_deletion_vectors_are_fetched_by_range_and_counted(answers: Answers) -> None:
    native = pytest.importorskip("gateway._native", reason="not built", exc_type=ImportError)
    rows = [1, 5, 70_000, 2**33]
    stored = native.encode_deletion_vector(rows)
    size = int.from_bytes(stored[1:5], "big")
    framed = stored[1 : 1 + size + 8]

    def owner(cardinality: int) -> DataFile:
        vector = DeletionVector(None, f"{answers.url}/v?signature=s", 1, size, cardinality, "v")
        return DataFile(FileKind.SNAPSHOT, "a", f"{answers.url}/a", 4, {}, vector)

    content(answers, framed, 206)
    assert fetcher(answers, owner(4)).vector_rows(owner(4)) == rows
    content(answers, framed, 206)
    with pytest.raises(HttpError, match="has 4 rows where 5 are said"):
        fetcher(answers, owner(5)).vector_rows(owner(5))


def test_a_failed_request_is_not_shown_with_its_signature(answers: Answers) -> None:
    nowhere = answers.url.rpartition(":")[0] + ":1"
    for url in (
        f"{nowhere}/a?signature=secret",
        "http://[bad/a?signature=secret",
        "ftp://h/a?signature=secret",
    ):
        with pytest.raises(HttpError) as failed:
            Transport(timeout_seconds=5).open("GET", url)
        shown = "".join(traceback.format_exception(failed.value, chain=True))
        assert "secret" not in shown.partition("gateway.spark.transport.HttpError")[2]
