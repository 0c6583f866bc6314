"""A mount hangs: its tables fail within the deadline, and tables of other mounts are not delayed."""

import asyncio
import hashlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
import pytest
from support.file_answers import HEADERS, Broken, Files, query
from support.gateway_process import PREFIX, TOKEN, RunningGateway, running_gateway, share, table_path
from support.nightly import at_night
from support.waiting import wait_until
from tables.large_logs import make_log
from tools import ROOT

pytestmark = pytest.mark.alone

ADDS = 60_000
REQUESTS = 40
"""More than a storage has threads, and the pool."""
DOWNLOADS = 150
"""More than any pool has threads."""
REQUEST_SECONDS = 6
TOKEN_SHA256 = hashlib.sha256(TOKEN.encode()).hexdigest()
OTHER_MOUNT = Path("/dev/shm")


@dataclass
class Mounts:
    """A gateway with a table on each of two mounts, of which one can be made to hang."""

    gateway: RunningGateway
    hanging: Path
    expected: Files
    whole: Path
    """While it is there, the mount hangs."""
    reads: Path
    """While it is there, reads hang, and listings are answered."""
    other: Path
    """The table on the other mount."""
    seen: Path
    """It grows with each thread that the mount holds up."""

    async def is_hanging(self) -> None:
        """Wait until threads hang, and no further one joins them for a moment."""
        held = 0
        while not held or self.held() > held:
            held = self.held()
            await asyncio.sleep(0.2)

    def held(self) -> int:
        return self.seen.stat().st_size if self.seen.exists() else 0

    async def ask(self, table: str) -> Files:
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(60):
            base = f"http://127.0.0.1:{self.gateway.port}"
            return (await query(session, base, table, with_end=True)).files

    async def heals(self) -> None:
        for flag in (self.whole, self.reads):
            flag.unlink(missing_ok=True)
        end = time.monotonic() + 30
        while True:
            try:
                assert await self.ask("hanging.default.t") == self.expected
            except Broken:
                assert time.monotonic() < end
                await asyncio.sleep(0.2)
            else:
                return


@dataclass(frozen=True)
class Written:
    """A table on each of two mounts, and the library by which one of them hangs."""

    shim: Path
    hanging: Path
    other: Path
    expected: Files


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    directory = tmp_path_factory.mktemp("mounts")
    if directory.stat().st_dev == OTHER_MOUNT.stat().st_dev:
        pytest.skip(f"{OTHER_MOUNT} is no mount of its own")
    shim, hanging = directory / "hanging.so", directory / "hanging"
    source = ROOT / "tests/support/hanging.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
    maker = make_log()
    found = maker.make_log(hanging, maker.LogOptions(adds=ADDS, commits=3))
    with tempfile.TemporaryDirectory(dir=OTHER_MOUNT) as other:
        table = Path(shutil.copytree(hanging, Path(other) / "table"))
        yield Written(shim, hanging, table, Files(found["files"], int(found["digest"], 16)))


@pytest.fixture
def mounts(written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mounts]:
    with two_mounts(written, tmp_path, monkeypatch, {"cache": {"memoryBytes": 0}}) as found:
        yield found


@pytest.fixture
def kept_mounts(written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mounts]:
    """With snapshots that are served while their mount hangs."""
    faults = {"openSeconds": 60, "staleSeconds": 600}
    with two_mounts(written, tmp_path, monkeypatch, {"storageFaults": faults}) as found:
        yield found


@contextmanager
def two_mounts(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> Iterator[Mounts]:
    whole, reads, seen = (tmp_path / name for name in ("whole", "reads", "seen"))
    monkeypatch.setenv("HANGING_BELOW", str(written.hanging))
    monkeypatch.setenv("HANGING_WHILE", str(whole))
    monkeypatch.setenv("HANGING_READS_WHILE", str(reads))
    monkeypatch.setenv("HANGING_SEEN", str(seen))
    monkeypatch.setenv("LD_PRELOAD", str(written.shim))
    shares = [share("hanging", {"t": str(written.hanging)}), share("healthy", {"t": str(written.other)})]
    section = {"drainDelaySeconds": 0, "drainSeconds": 1, "storageFaults": {"openSeconds": 0.5}, **changes}
    with running_gateway(tmp_path, shares, section, requestTimeoutSeconds=REQUEST_SECONDS) as gateway:
        try:
            yield Mounts(gateway, written.hanging, written.expected, whole, reads, written.other, seen)
        finally:
            for flag in (whole, reads):
                flag.unlink(missing_ok=True)


async def hangs(mounts: Mounts, begin: Callable[[], None]) -> None:
    """Ask more of the hanging table than there are threads; meanwhile the other is answered as ever."""
    started = time.monotonic()
    assert await mounts.ask("healthy.default.t") == mounts.expected
    usual_seconds = time.monotonic() - started
    begin()
    pending = [asyncio.ensure_future(mounts.ask("hanging.default.t")) for _ in range(REQUESTS)]
    await mounts.is_hanging()
    slowest = 0.0
    for _ in range(5):
        started = time.monotonic()
        assert await mounts.ask("healthy.default.t") == mounts.expected
        slowest = max(slowest, time.monotonic() - started)
    assert not any(one.done() and one.exception() is None for one in pending)
    # A table that hangs holds its askers for as long as they may wait.
    assert slowest < usual_seconds + REQUEST_SECONDS / 2
    ended = await asyncio.gather(*pending, return_exceptions=True)
    assert all(isinstance(one, Broken) for one in ended), ended
    await mounts.heals()


@pytest.mark.nightly
async def test_a_mount_that_hangs_when_it_is_listed_holds_up_its_own_tables_alone(mounts: Mounts):
    assert await mounts.ask("hanging.default.t") == mounts.expected
    await hangs(mounts, mounts.whole.touch)


async def test_a_mount_that_hangs_during_streams_holds_up_its_own_tables_alone(mounts: Mounts):
    assert await mounts.ask("hanging.default.t") == mounts.expected
    await hangs(mounts, mounts.reads.touch)


async def test_serving_a_kept_snapshot_does_not_access_the_hanging_mount(kept_mounts: Mounts):
    mounts = kept_mounts
    for _ in range(2):
        # Its columns are in memory after the first.
        assert await mounts.ask("hanging.default.t") == mounts.expected
    assert await mounts.ask("healthy.default.t") == mounts.expected
    mounts.whole.touch()
    # Its mount is given up after so many failures; then what needs no reading is answered at once.
    started = time.monotonic()
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{mounts.gateway.port}{PREFIX}{table_path('hanging.default.t')}/query"
        # Little is left to send when the wait ends, shortly before the deadline.
        sent = {"json": {"limitHint": 1}, "headers": HEADERS}
        first = await asyncio.gather(*(statuses(session, url, sent) for _ in range(10)))
        assert time.monotonic() - started < 2 * REQUEST_SECONDS
        assert set(first) == {(200, "true")}
        # Versions that are not kept would have to be read: more of them than any pool has threads.
        held = mounts.held()
        past = [statuses(session, url, sent | {"json": {"version": 1}}) for _ in range(2 * REQUESTS)]
        pending = asyncio.ensure_future(asyncio.gather(*past))
        large = sent | {"json": {"predicateHints": ["path = 'x'"] * 2000}}
        healthy = url.replace("hanging", "healthy")
        for _ in range(5):
            assert await statuses(session, healthy, large) == (200, None)
            assert await statuses(session, url, sent) == (200, "true")
        assert set(await pending) == {(503, None)}
        assert mounts.held() == held
    mounts.whole.unlink()


async def statuses(session: aiohttp.ClientSession, url: str, sent: dict[str, Any]) -> tuple[int, str | None]:
    async with session.post(url, **sent) as response:
        await response.read()
        return response.status, response.headers.get("delta-sharing-stale")


@pytest.mark.parametrize("flag", ["whole", *at_night("reads")])
async def test_a_server_ends_though_a_mount_hangs(mounts: Mounts, flag: str):
    assert await mounts.ask("hanging.default.t") == mounts.expected
    getattr(mounts, flag).touch()
    pending = [asyncio.ensure_future(mounts.ask("hanging.default.t")) for _ in range(5)]
    await mounts.is_hanging()
    mounts.gateway.process.terminate()
    assert await asyncio.to_thread(mounts.gateway.process.wait, 20) == 0
    assert all(isinstance(one, Broken) for one in await asyncio.gather(*pending, return_exceptions=True))


async def test_downloads_from_a_hanging_mount_delay_neither_others_nor_a_reload(
    mounts: Mounts, tmp_path: Path
):
    urls = {}
    for name in ("hanging", "healthy"):
        answer = mounts.gateway.query(f"{name}.default.t", {"limitHint": 1})
        urls[name] = answer.lines[2]["file"]["url"].partition(PREFIX)[2]
    files = {"hanging": mounts.hanging, "healthy": mounts.other}
    for name, url in urls.items():
        file = files[name] / unquote(urlsplit(url).path.split("/", 3)[3])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"content")
        assert mounts.gateway.request("GET", PREFIX + url).body == b"content"
    mounts.whole.touch()
    sent = f"GET {PREFIX}{urls['hanging']} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with ExitStack() as stack:
        for _ in range(DOWNLOADS):
            stack.enter_context(socket.create_connection(("127.0.0.1", mounts.gateway.port))).sendall(sent)
        await mounts.is_hanging()
        assert mounts.gateway.request("GET", PREFIX + urls["healthy"]).body == b"content"
        # Without its recipient.
        file = tmp_path / "gateway.yaml"
        file.write_text(
            file.read_text().replace("name: tests", "name: others").replace(TOKEN_SHA256, "0" * 64)
        )
        await asyncio.to_thread(
            wait_until, lambda: mounts.gateway.request("GET", "/shares").status == 401, seconds=20
        )
    mounts.whole.unlink()
