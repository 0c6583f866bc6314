"""Listings of a store that lack the newest commits of a log, or have files that cannot be read."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from support.gateway_app import PREFIX, bearer, recipients, serve
from support.native import native

WRITTEN_AT = 1_700_000_000
HEADS: tuple[Any, ...] = (
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "t",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": '{"type":"struct","fields":[]}',
            "partitionColumns": [],
            "configuration": {},
        }
    },
)


class Bucket:
    """The objects of a bucket by their keys.

    Those that are `unlisted` can be read, and are in no listing; `lost` ones are listed, and absent.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.unlisted: set[str] = set()
        self.lost: set[str] = set()
        self.url = ""

    def commit(self, version: int) -> str:
        actions = [*HEADS] if version == 0 else []
        path = f"{version}.parquet"
        entry = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
        key = f"t/_delta_log/{version:020}.json"
        self.objects[key] = "\n".join(json.dumps(action) for action in [*actions, {"add": entry}]).encode()
        return key

    def listing(self, query: dict[str, list[str]]) -> bytes:
        after = query.get("start-after", [""])[0]
        listed = ""
        for key in sorted(self.objects.keys() - self.unlisted):
            if key.startswith(query["prefix"][0]) and key > after:
                listed += (
                    f"<Contents><Key>{key}</Key><LastModified>2023-11-14T22:13:20.000Z</LastModified>"
                    f"<ETag>{tag(self.objects[key])}</ETag><Size>{len(self.objects[key])}</Size></Contents>"
                )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>".encode()

    def table(self) -> Any:
        storage = native().Storage.s3(
            "bucket",
            region="us-east-1",
            endpoint=self.url,
            path_style=True,
            access_key_id="id",
            secret_access_key="secret",
        )
        return native().Table(storage, "t")


def tag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def served() -> Iterator[Bucket]:
    """Serves a bucket until the block ends."""
    bucket = Bucket()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = parse_qs(url.query)
            key = url.path.removeprefix("/bucket/")
            content = (
                bucket.listing(query)
                if "list-type" in query
                else bucket.objects.get(key)
                if key not in bucket.lost
                else None
            )
            self.send_response(404 if content is None else 200)
            body = content or b""
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{tag(body)}"')
            self.send_header("Last-Modified", formatdate(WRITTEN_AT, usegmt=True))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

        def log_message(self, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    bucket.url = f"http://127.0.0.1:{http.server_port}"
    Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield bucket
    finally:
        http.shutdown()
        http.server_close()


def test_a_listing_without_a_commit_that_is_there_shows_no_older_table() -> None:
    with served() as bucket:
        *_, last = map(bucket.commit, range(3))
        table = bucket.table()
        assert table.snapshot().version == 2
        # The next commit requires a listing.
        bucket.unlisted = {last, bucket.commit(3)}
        with pytest.raises(native().StorageUnavailable) as raised:
            table.snapshot()
        assert raised.value.detail == f"the listing of t lacks {2:020}.json, which is there"
        assert table.latest_known(max_age_ms=60_000).version == 2
        bucket.unlisted = set(bucket.objects)
        with pytest.raises(native().StorageUnavailable):
            table.snapshot()
        bucket.unlisted = set()
        assert table.snapshot().version == 3
        bucket.objects.clear()
        with pytest.raises(native().TableNotFound):
            table.snapshot()


def test_a_listing_without_a_commit_that_was_found_by_its_name_shows_no_older_version() -> None:
    with served() as bucket:
        bucket.commit(0)
        table = bucket.table()
        assert table.snapshot().version == 0
        bucket.unlisted = {bucket.commit(1)}
        for _ in range(4):
            with pytest.raises(native().StorageUnavailable) as raised:
                table.snapshot()
            assert raised.value.detail == f"the listing of t lacks {1:020}.json, which is there"
        assert table.latest_known(max_age_ms=60_000).version == 0
        del bucket.objects[f"t/_delta_log/{1:020}.json"]
        assert table.snapshot().version == 0, "the commit was taken back"
        bucket.commit(1)
        bucket.unlisted = set()
        assert table.snapshot().version == 1


def test_changes_and_times_of_a_known_version_are_not_those_of_a_shorter_log() -> None:
    with served() as bucket:
        commits = [bucket.commit(version) for version in range(4)]
        table = bucket.table()
        assert table.snapshot().version == 3
        bucket.unlisted = set(commits[2:])
        for end in (3, 9, None):
            with pytest.raises(native().StorageUnavailable):
                table.changes(starting_version=0, ending_version=end, change_data_feed=False)
        with pytest.raises(native().StorageUnavailable):
            table.version_at_or_before(1000 * WRITTEN_AT + 60_000)
        within = table.changes(starting_version=0, ending_version=1, change_data_feed=False)
        assert (within.starting_version, within.ending_version) == (0, 1)


def test_a_version_that_a_listing_lacks_is_not_missing() -> None:
    with served() as bucket:
        commits = [bucket.commit(version) for version in range(6)]
        table = bucket.table()
        identity = table.snapshot().identity
        bucket.unlisted = set(commits[3:])
        for start, end in ((4, 5), (4, None), (5, 5)):
            with pytest.raises(native().StorageUnavailable):
                table.changes(starting_version=start, ending_version=end, change_data_feed=False)
        for version in (3, 4, 6):
            with pytest.raises(native().StorageUnavailable):
                table.snapshot(version=version)
        assert table.snapshot(version=2).version == 2
        for version in (3, 4, 5):
            del bucket.objects[commits[version]]
        with pytest.raises(native().VersionNotFound):
            table.snapshot(version=4)
        with pytest.raises(native().VersionNotFound):
            bucket.table().snapshot(identity=identity)


def test_a_log_that_has_lost_its_last_commits_was_restored() -> None:
    with served() as bucket:
        for version in range(4):
            bucket.commit(version)
        table = bucket.table()
        assert table.snapshot().version == 3
        for version in (2, 3):
            del bucket.objects[f"t/_delta_log/{version:020}.json"]
        assert table.snapshot().version == 1


@pytest.mark.parametrize("is_there", [True, False])
def test_a_log_ends_before_the_last_checkpoint_only_without_the_commit_of_it(is_there: bool) -> None:
    with served() as bucket:
        commits = [bucket.commit(version) for version in range(4)]
        bucket.objects["t/_delta_log/_last_checkpoint"] = b'{"version":2,"size":4}'
        if is_there:
            for unlisted in (commits[2:], bucket.objects):
                bucket.unlisted = set(unlisted)
                for version in (None, 2, 3):
                    with pytest.raises(native().StorageUnavailable):
                        bucket.table().snapshot(version=version)
        else:
            for key in commits[2:]:
                del bucket.objects[key]
            assert bucket.table().snapshot().version == 1


@pytest.mark.parametrize("parts", [1, 2])
def test_a_checkpoint_that_is_listed_and_absent_ends_the_search_for_another_one(parts: int) -> None:
    with served() as bucket:
        bucket.commit(3)
        checkpoint = f"t/_delta_log/{3:020}.checkpoint"
        names = [f".{part:010}.{parts:010}" for part in range(1, parts + 1)] if parts > 1 else [""]
        for name in names:
            bucket.objects[f"{checkpoint}{name}.parquet"] = b"PAR1" * 100
        bucket.lost = set(bucket.objects) - {f"t/_delta_log/{3:020}.json"}
        with pytest.raises(native().CorruptLog) as raised:
            bucket.table().snapshot()
        assert raised.value.file == f"{3:020}.checkpoint{names[0]}.parquet"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "version", None),
        ("GET", "version?startingTimestamp=2023-11-14T22:13:20Z", None),
        ("GET", "metadata", None),
        ("POST", "query", {}),
        ("POST", "query", {"startingVersion": 1}),
    ],
)
async def test_the_first_listing_of_a_table_shows_no_older_one(method: str, path: str, body: Any) -> None:
    with served() as bucket:
        commits = [bucket.commit(version) for version in range(4)]
        bucket.unlisted = set(commits[3:])
        table = "{name: t, location: 's3://bucket/t', historyShared: true}"
        storage = (
            f"{{prefix: 's3://bucket/', endpoint: '{bucket.url}', region: us-east-1, pathStyle: true, "
            "accessKeyId: id, secretAccessKey: secret}"
        )
        text = f"shares: [{{name: s, schemas: [{{name: d, tables: [{table}]}}]}}]\n" + recipients(alice="s")
        client, _ = await serve(f"{text}  storages: [{storage}]\n")
        url = f"{PREFIX}/shares/s/schemas/d/tables/t/{path}"
        try:
            short = await client.request(method, url, json=body, headers=bearer())
            assert short.status == 503, await short.text()
            bucket.unlisted = set()
            whole = await client.request(method, url, json=body, headers=bearer())
            assert whole.status == 200, await whole.text()
        finally:
            await client.close()
