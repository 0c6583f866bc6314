"""The files route: data files of local tables by signed URLs, and no path out of the table."""

import asyncio
import gzip
import hashlib
import hmac
import os
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from aiohttp import ClientPayloadError
from aiohttp.test_utils import TestClient
from support.gateway_app import PREFIX, Clock, error_of, serve
from support.waiting import until
from yarl import URL

from gateway import _native
from gateway.authentication.sealed_tokens import Sealer
from gateway.config import Config, Location, Secret, TokenKey
from gateway.storage.local.store import directory_key
from gateway.tables.local_files import LocalFile, inside, spelling

Client = TestClient[Any, Any]
NOW_MS = 1_700_000_000_000
CONTENT = bytes(range(256)) * 8
LARGE_BYTES = 32 * 1024 * 1024
NAMES = ["plain.parquet", "a b+c=d%e/é ü.parquet", "date=2024-01-01 10%3A00/x.parquet", "q//x.parquet"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    table = tmp_path / "tables" / "one"
    for name in NAMES:
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        (table / name).write_bytes(CONTENT)
    (table / "plain.parquet.gz").write_bytes(gzip.compress(b"another file"))
    (tmp_path / "tables" / "two").mkdir()
    (tmp_path / "tables" / "two" / "other.parquet").write_bytes(b"other")
    (tmp_path / "outside").write_bytes(b"outside")
    (table / "way-out").symlink_to(tmp_path / "outside")
    (table / "way-up").symlink_to(tmp_path)
    (table / "inner").symlink_to(table / "plain.parquet")
    return table


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW_MS)


@pytest.fixture
async def served(root: Path, clock: Clock) -> AsyncIterator[tuple[Client, Config]]:
    started, config = await serve(
        f"""
shares:
- name: s
  schemas:
  - name: d
    tables:
    - {{name: one, location: {root}, id: id-1}}
    - {{name: two, location: {root.parent / "two"}, id: id-2}}
gateway: {{anonymous: true, tokenKeys: [{{id: k1, secret: a secret for the tests}}]}}
""",
        clock=clock,
    )
    yield started, config
    await started.close()


def key_of(config: Config, table: str) -> bytes:
    url_key = Sealer([TokenKey("k1", Secret("a secret for the tests"))]).derived_keys(b"files")[0]
    directories = {entry.id: entry.location for _, _, entry in config.tables}
    return directory_key(url_key, directories.get(table, Location("file", "", "/elsewhere")))


def signed(config: Config, key: str, table: str = "id-1", lifetime_seconds: int = 60) -> URL:
    """A URL as answers hold it, for any key at all."""
    base = f"{config.public_url}{PREFIX}/files/{table}"
    url, _ = _native.Signer.local(base, key=key_of(config, table)).sign(
        key, now_ms=NOW_MS, lifetime_seconds=lifetime_seconds
    )
    return URL(url, encoded=True)


@pytest.mark.parametrize("name", NAMES)
async def test_a_signed_url_answers_the_whole_file(served: tuple[Client, Config], name: str) -> None:
    client, config = served
    async with client.session.get(signed(config, name)) as answered:
        assert (answered.status, await answered.read()) == (200, CONTENT)
        assert answered.headers["Accept-Ranges"] == "bytes"
        assert "Content-Encoding" not in answered.headers


@pytest.mark.parametrize(
    ("requested", "start", "stop"),
    [
        ("0-0", 0, 1),
        ("5-9", 5, 10),
        ("2000-", 2000, 2048),
        ("-4", 2044, 2048),
        ("-9999", 0, 2048),
        ("0-9999", 0, 2048),
    ],
)
async def test_a_range_is_answered_by_206(
    served: tuple[Client, Config], requested: str, start: int, stop: int
) -> None:
    client, config = served
    url = signed(config, "plain.parquet")
    async with client.session.get(url, headers={"Range": f"bytes={requested}"}) as answered:
        assert (answered.status, await answered.read()) == (206, CONTENT[start:stop])
        assert answered.headers["Content-Range"] == f"bytes {start}-{stop - 1}/2048"


@pytest.mark.parametrize("requested", ["bytes=2048-", "bytes=-0"])
async def test_a_range_that_cannot_be_satisfied(served: tuple[Client, Config], requested: str) -> None:
    client, config = served
    async with client.session.get(signed(config, "plain.parquet"), headers={"Range": requested}) as answered:
        assert (answered.status, answered.headers["Content-Range"]) == (416, "bytes */2048")


@pytest.mark.parametrize("sent", ["Range: bytes=2048-", 'If-Match: "another"'])
async def test_a_refused_range_ends_where_old_clients_keep_their_connection(
    served: tuple[Client, Config], sent: str
) -> None:
    client, config = served
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    kept = "Connection: keep-alive\r\n"
    target = signed(config, "plain.parquet").raw_path_qs
    refused = f"GET {target} HTTP/1.0\r\n{kept}{sent}\r\n\r\n"
    writer.write(f"{refused}GET /healthz HTTP/1.0\r\n\r\n".encode())
    answered = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    await writer.wait_closed()
    first = answered.split(b"\r\n\r\n")[0]
    assert b"\r\nContent-Length: 0\r\n" in first, first
    assert b"\r\nConnection: keep-alive" in first, first
    assert answered.endswith(b"\r\n\r\nok\n")


@pytest.mark.parametrize("requested", ["bytes=0-3", "bytes=2048-"])
async def test_only_get_has_ranges(served: tuple[Client, Config], requested: str) -> None:
    client, config = served
    headers = {"Range": requested}
    async with client.session.head(signed(config, "plain.parquet"), headers=headers) as answered:
        assert (answered.status, answered.headers["Content-Length"]) == (200, "2048")
        assert "Content-Range" not in answered.headers


@pytest.mark.parametrize(
    "requested",
    ["bytes=9-5", "bytes=x-y", "bytes=0-1,4-5", "rows=0-1", "bytes 0-1", "bytes=-", f"bytes={'9' * 99}-"],
)
async def test_what_is_no_single_range_of_bytes_is_ignored(
    served: tuple[Client, Config], requested: str
) -> None:
    client, config = served
    async with client.session.get(signed(config, "plain.parquet"), headers={"Range": requested}) as answered:
        assert (answered.status, await answered.read()) == (200, CONTENT)


async def test_a_range_is_of_the_file_that_its_condition_names(
    served: tuple[Client, Config], root: Path
) -> None:
    client, config = served
    url = signed(config, "plain.parquet")
    async with client.session.get(url) as answered:
        etag, changed = answered.headers["ETag"], answered.headers["Last-Modified"]
    statuses = {}
    for condition in (
        etag,
        changed,
        '"another"',
        f"W/{etag}",
        "Mon, 01 Jan 2001 00:00:00 GMT",
        "Fri, 01 Jan 2100 00:00:00 GMT",
    ):
        headers = {"Range": "bytes=0-3", "If-Range": condition}
        async with client.session.get(url, headers=headers) as answered:
            body = await answered.read()
            statuses[condition] = answered.status
            assert body == (CONTENT[:4] if answered.status == 206 else CONTENT)
    assert [*statuses.values()] == [206, 206, 200, 200, 200, 200]


async def test_head_has_the_size_and_no_body(served: tuple[Client, Config]) -> None:
    client, config = served
    async with client.session.head(signed(config, "plain.parquet")) as answered:
        assert (answered.status, answered.headers["Content-Length"]) == (200, "2048")
        assert await answered.read() == b""


async def test_an_etag_saves_the_second_transfer(served: tuple[Client, Config], root: Path) -> None:
    client, config = served
    url = signed(config, "plain.parquet")
    async with client.session.get(url) as answered:
        etag = answered.headers["ETag"]
    async with client.session.get(url, headers={"If-None-Match": etag}) as answered:
        assert answered.status == 304
    (root / "plain.parquet").write_bytes(b"changed")
    async with client.session.get(url, headers={"If-None-Match": etag}) as answered:
        assert (answered.status, await answered.read()) == (200, b"changed")


@pytest.mark.parametrize("name", ["If-Modified-Since", "If-Unmodified-Since"])
@pytest.mark.parametrize(
    "date",
    [
        "tomorrow",
        f"Mon, 01 Jan {2**31} 00:00:00 GMT",
        f"Mon, {2**63} Jan 2100 00:00:00 GMT",
        "Mon, 01 Jan \u0669\u0669\u0669\u0669\u0669\u0669\u0669\u0669\u0669\u0669 00:00:00 GMT",
    ],
)
async def test_a_condition_that_is_no_date_is_ignored(
    served: tuple[Client, Config], name: str, date: str
) -> None:
    client, config = served
    others = {"If-Modified-Since": "Mon, 01 Jan 2001 00:00:00 GMT", "Range": "bytes=0-3"}
    for headers, answer in (({}, (200, CONTENT)), (others, (206, CONTENT[:4]))):
        url = signed(config, "plain.parquet")
        async with client.session.get(url, headers={**headers, name: date}) as answered:
            assert (answered.status, await answered.read()) == answer


async def test_a_compressed_sibling_is_another_file(served: tuple[Client, Config]) -> None:
    client, config = served
    headers = {"Accept-Encoding": "gzip, br, deflate"}
    async with client.session.get(signed(config, "plain.parquet"), headers=headers) as answered:
        assert await answered.read() == CONTENT


async def test_an_expired_url_is_refused(served: tuple[Client, Config], clock: Clock) -> None:
    client, config = served
    url = signed(config, "plain.parquet", lifetime_seconds=60)
    clock.now_ms = NOW_MS + 59_999
    async with client.session.get(url) as answered:
        assert answered.status == 200
    clock.now_ms = NOW_MS + 60_000
    async with client.session.get(url) as answered:
        assert (answered.status, error_of(await answered.read())) == (403, "PERMISSION_DENIED")


async def test_clients_may_rewrite_percent_encodings(served: tuple[Client, Config]) -> None:
    client, config = served
    url = str(signed(config, NAMES[1]))
    for other in (
        url.replace("%3D", "="),
        url.replace("%2B", "%2b"),
        url.replace("%2B", "+").replace("a%20", "%61%20"),
    ):
        assert other != url
        async with client.session.get(URL(other, encoded=True)) as answered:
            assert (answered.status, await answered.read()) == (200, CONTENT)


async def test_a_url_with_any_change_is_refused(served: tuple[Client, Config]) -> None:
    client, config = served
    url = str(signed(config, "plain.parquet"))
    expires = url.partition("expires=")[2].partition("&")[0]
    changed = [
        url[:-1] + ("0" if url[-1] != "0" else "1"),
        url.replace("signature=", "signature=00"),
        url.replace(expires, str(int(expires) + 1)),
        url.replace("plain.parquet", "inner"),
        url.replace("id-1", "id-2"),
        url.partition("?")[0],
        url.partition("&")[0],
        url + "&signature=x",
    ]
    for one in changed[:-1]:
        async with client.session.get(URL(one, encoded=True)) as answered:
            assert answered.status == 403, one


@pytest.mark.parametrize(
    "key",
    [
        "way-out",
        "way-up/outside",
        "way-up/tables/two/other.parquet",
        "absent.parquet",
        "_delta_log",
        "date=2024-01-01 10%3A00",
        "plain.parquet/x",
        "nul\0byte",
        "x" * 5000,
    ],
)
async def test_a_signed_url_of_no_file_of_the_table_is_not_found(
    served: tuple[Client, Config], key: str
) -> None:
    client, config = served
    async with client.session.get(signed(config, key)) as answered:
        assert (answered.status, error_of(await answered.read())) == (404, "RESOURCE_DOES_NOT_EXIST")


async def test_a_link_inside_of_the_table_is_followed(served: tuple[Client, Config]) -> None:
    client, config = served
    async with client.session.get(signed(config, "inner")) as answered:
        assert await answered.read() == CONTENT


@pytest.mark.parametrize(
    "raw_key",
    [
        "../two/other.parquet",
        "%2e%2e/two/other.parquet",
        "%2E%2E%2Ftwo%2Fother.parquet",
        "./plain.parquet",
        "a//plain.parquet",
        "q//../../two/other.parquet",
        "q//x.parquet/",
        "%2Fetc%2Fpasswd",
        "/etc/passwd",
        "plain.parquet%00",
        "..%5ctwo",
    ],
)
async def test_there_is_no_way_out_even_with_a_signature(
    served: tuple[Client, Config], raw_key: str, tmp_path: Path
) -> None:
    """A signer that signs anything: the fence stands without it."""
    _client, config = served
    path = f"{PREFIX}/files/id-1/{raw_key}"
    spelt = spelling(PREFIX, "id-1", unquote_to_bytes(raw_key))
    query = hand_signed(spelt, key_of(config, "id-1"))
    status, body = await raw_get(config.port, f"{path}?{query}")
    assert status == 404, (raw_key, body)
    assert b"other" not in body.partition(b"\r\n\r\n")[2]


def test_a_link_that_comes_after_the_path_was_resolved_is_not_followed(root: Path, tmp_path: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "other.parquet").write_bytes(CONTENT)
    found = inside(str(root), b"d/other.parquet")
    file = inside(str(root), b"plain.parquet")
    assert found is not None
    assert file is not None
    with found.open() as opened:
        assert opened.read() == CONTENT
    (root / "d").rename(root / "e")
    (root / "d").symlink_to(tmp_path / "tables" / "two")
    (root / "plain.parquet").unlink()
    (root / "plain.parquet").symlink_to(tmp_path / "outside")
    for swapped in (found, file):
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            swapped.open()
    (root / "plain.parquet").unlink()
    os.mkfifo(root / "plain.parquet")
    with pytest.raises(FileNotFoundError):
        file.open()


async def test_a_url_of_a_table_that_is_not_shared(served: tuple[Client, Config]) -> None:
    client, config = served
    async with client.session.get(signed(config, "plain.parquet", table="id-3")) as answered:
        assert answered.status == 403


async def test_a_url_opens_no_file_of_a_directory_that_takes_the_names_of_a_table(tmp_path: Path) -> None:
    for name, content in (("one", b"public"), ("other", b"private")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-0.parquet").write_bytes(content)
    statuses, url = [], URL()
    for name in ("one", "other"):
        text = (
            "shares: [{name: s, schemas: [{name: d, tables: "
            f"[{{name: t, location: {tmp_path / name}, id: id-1}}]}}]}}]\n"
            "gateway: {anonymous: true, tokenKeys: [{id: k1, secret: a secret for the tests}]}\n"
        )
        client, config = await serve(text, clock=Clock(NOW_MS))
        url = url.with_port(config.port) if statuses else signed(config, "part-0.parquet")
        async with client.session.get(url) as answered:
            statuses.append((answered.status, await answered.read() == b"private"))
        await client.close()
    assert statuses == [(200, False), (403, False)]


@pytest.mark.parametrize("path", ["%ff/a", "id-1/%ff", "%ed%a0%80/a?expires=%ff&signature=%ed%a0%80"])
async def test_bytes_that_are_no_text_are_no_valid_url(served: tuple[Client, Config], path: str) -> None:
    answer = await served[0].get(URL(f"{PREFIX}/files/{path}", encoded=True))
    assert (answer.status, error_of(await answer.read())) == (403, "PERMISSION_DENIED")


async def test_a_file_that_cannot_be_opened_for_now_is_not_missing(served: tuple[Client, Config]) -> None:
    client, config = served
    url = signed(config, NAMES[0])
    assert await (await client.session.get(url)).read() == CONTENT
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def is_open() -> bool:
        return any(os.path.realpath(one).endswith(NAMES[0]) for one in Path("/proc/self/fd").iterdir())

    # A thread closes the file after its answer.
    await until(lambda: not is_open())
    free = os.dup(1)
    os.close(free)
    # The connection of the first request stays open.
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        answer = await client.session.get(url)
        body = await answer.read()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (answer.status, error_of(body)) == (503, "TEMPORARILY_UNAVAILABLE")
    assert "Retry-After" in answer.headers


async def test_the_first_byte_of_a_file_leaves_when_the_file_is_open(
    served: tuple[Client, Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, config = served
    seconds, opened = 0.2, LocalFile.open

    def open_slowly(self: LocalFile) -> Any:
        time.sleep(seconds)
        return opened(self)

    monkeypatch.setattr(LocalFile, "open", open_slowly)
    assert await (await client.session.get(signed(config, NAMES[0]))).read() == CONTENT
    timings = client.server.pipeline.recorder._routes["file"]  # type: ignore[attr-defined]
    await until(lambda: timings.seconds._sum > 0)
    assert seconds <= timings.first_byte._sum <= timings.seconds._sum


@pytest.fixture
async def large(root: Path, clock: Clock) -> AsyncIterator[tuple[Client, Config, Path]]:
    """A server that cuts slow readers after a second, and a file that no buffer of a connection holds."""
    (root / "large.parquet").write_bytes(bytes(LARGE_BYTES))
    started, config = await serve(
        f"""
shares:
- {{name: s, schemas: [{{name: d, tables: [{{name: one, location: {root}, id: id-1}}]}}]}}
gateway:
  anonymous: true
  tokenKeys: [{{id: k1, secret: a secret for the tests}}]
  limits: {{slowReaderSeconds: 1, minimumBytesPerSecond: 1000000}}
""",
        clock=clock,
    )
    yield started, config, root / "large.parquet"
    await started.close()


def open_here(path: Path) -> bool:
    return any(one.resolve() == path for one in Path("/proc/self/fd").iterdir() if one.is_symlink())


async def test_a_reader_that_reads_nothing_is_cut_off(large: tuple[Client, Config, Path]) -> None:
    client, config, path = large
    async with client.session.get(signed(config, path.name)) as answered:
        assert answered.status == 200
        assert open_here(path)
        await until(lambda: not open_here(path))
        with pytest.raises(ClientPayloadError):
            await answered.read()


async def test_a_file_that_becomes_shorter_cuts_its_answer(large: tuple[Client, Config, Path]) -> None:
    client, config, path = large
    async with client.session.get(signed(config, path.name)) as answered:
        await answered.content.readexactly(1)
        os.truncate(path, 1)
        with pytest.raises(ClientPayloadError):
            await answered.read()


async def test_other_methods_are_refused(served: tuple[Client, Config]) -> None:
    client, config = served
    async with client.session.post(signed(config, "plain.parquet")) as answered:
        assert answered.status == 405
        assert answered.headers["Allow"] == "GET, HEAD"


def hand_signed(path: str, key: bytes) -> str:
    expires = NOW_MS // 1000 + 60
    signature = hmac.new(key, f"{path}\n{expires}".encode(), hashlib.sha256).hexdigest()
    return f"expires={expires}&signature={signature}"


async def raw_get(port: int, target: str) -> tuple[int, bytes]:
    """A request whose path no client library has tidied up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(answer.split(b" ")[1]), answer


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({}, 200),
        ({"Range": "bytes=5-9"}, 206),
        ({"If-None-Match": "*"}, 304),
        ({"If-Match": '"another"'}, 412),
        ({"Range": "bytes=9999-"}, 416),
    ],
)
async def test_pages_of_an_allowed_origin_may_read_every_answer(
    root: Path, clock: Clock, method: str, sent: dict[str, str], status: int
) -> None:
    page = "https://app.example"
    client, config = await serve(
        f"""
shares:
- name: s
  schemas: [{{name: d, tables: [{{name: one, location: {root}, id: id-1}}]}}]
gateway:
  anonymous: true
  tokenKeys: [{{id: k1, secret: a secret for the tests}}]
  cors: {{origins: [{page}]}}
""",
        clock=clock,
    )
    url = signed(config, "plain.parquet")
    try:
        for origin in (page, "https://evil.example", None):
            headers = sent | ({"Origin": origin} if origin else {})
            async with client.session.request(method, url, headers=headers) as answered:
                # Only GET has ranges.
                assert answered.status == (200 if method == "HEAD" and "Range" in sent else status)
                allowed = [page] if origin == page else []
                assert answered.headers.getall("Access-Control-Allow-Origin", []) == allowed
                assert answered.headers.getall("Vary") == ["Origin"]
                exposed = answered.headers.getall("Access-Control-Expose-Headers", [])
                assert ["Content-Range" in names for names in exposed] == [True] * len(allowed)
    finally:
        await client.close()
