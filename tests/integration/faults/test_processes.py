"""Workers are killed and servers stopped during streams; clients disconnect and read slowly."""

import asyncio
import socket
import time
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest
from support.fault_proxy import Fault, running
from support.file_answers import Broken, Files, query
from support.gateway_process import PREFIX, TOKEN, running_gateway, share, table_path
from support.nightly import at_night
from support.process_resources import open_files, open_sockets, resident
from support.waiting import everywhere, until, wait_until
from tables.large_logs import make_log

from gateway.config.database import DatabasePlace
from gateway.governance.recipient_store import RecipientDatabase
from gateway.times import epoch_ms

ADDS = 15_000


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    root = tmp_path_factory.mktemp("processes") / "table"
    maker = make_log()
    found = maker.make_log(root, maker.LogOptions(adds=ADDS, commits=5))
    return root, Files(found["files"], int(found["digest"], 16))


def shares(table):
    return [share("s", {"t": str(table[0])})]


def listeners(port: int) -> int:
    """How many sockets listen on a port: one for each worker that has started."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


async def storm(base: str, count: int, *, with_end: bool = False):
    """As many answers at a time, each on a connection of its own."""
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(90):
        return await asyncio.gather(
            *(query(session, base, "s.default.t", with_end=with_end) for _ in range(count)),
            return_exceptions=True,
        )


def whole_or_broken(answers, expected: Files) -> int:
    """How many are whole; every other one is known to be broken."""
    for answer in answers:
        assert isinstance(answer, Broken) or answer.files == expected, answer
    return sum(not isinstance(answer, Broken) for answer in answers)


async def test_revoking_ends_the_streams_of_all_workers(table, tmp_path):
    section = {"drainDelaySeconds": 0, "recipientsDatabase": "recipients.db"}
    with closing(RecipientDatabase(DatabasePlace(tmp_path / "recipients.db"), now_ms=epoch_ms)) as database:
        token = database.add("alice", shares=["s"]).token
        headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}

        url = f"{PREFIX}{table_path('s.default.t')}/query"

        async def read(session: aiohttp.ClientSession, base: str) -> bytes:
            async with session.post(f"{base}{url}", headers=headers) as got:
                assert got.status == 200
                return await got.read()

        with (
            running_gateway(tmp_path, shares(table), section, workers=2) as gateway,
            running(gateway.port) as proxy,
        ):
            # Throttled so that a whole answer takes a minute.
            proxy.fault = Fault(bytes_per_second=200_000)
            await until(lambda: listeners(gateway.port) == 2)
            connector = aiohttp.TCPConnector(force_close=True, limit=0)
            async with aiohttp.ClientSession(connector=connector) as session:
                streams = [asyncio.ensure_future(read(session, proxy.endpoint)) for _ in range(8)]
                others = asyncio.ensure_future(storm(proxy.endpoint, 4))
                await until(lambda: proxy.answered == 12)
                database.revoke("alice")
                refused = everywhere(lambda: gateway.request("GET", "/shares", token=token).status, 401)
                await asyncio.to_thread(wait_until, refused)
                # What has left before arrives later, and quickly from here on.
                proxy.fault = Fault()
                ended = await asyncio.gather(*streams, return_exceptions=True)
                assert all(isinstance(one, aiohttp.ClientPayloadError) for one in ended), ended
                assert whole_or_broken(await others, table[1]) == 4


QUERY = (
    f"POST {PREFIX}{table_path('s.default.t')}/query HTTP/1.1\r\nHost: localhost\r\n"
    f'Authorization: Bearer {TOKEN}\r\nContent-Length: 18\r\n\r\n{{"maxFiles": 4000}}'
).encode()


def requesting_client(port: int) -> socket.socket:
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.settimeout(30)
    reader.connect(("127.0.0.1", port))
    reader.sendall(QUERY)
    return reader


def test_the_last_bytes_reach_a_slow_reader_before_a_server_ends(table, tmp_path):
    section = {"drainDelaySeconds": 0, "drainSeconds": 60}
    end = b"\r\n0\r\n\r\n"
    with running_gateway(tmp_path, shares(table), section) as gateway:
        with requesting_client(gateway.port) as reader:
            answer = b""
            while not answer.endswith(end):
                answer += reader.recv(1 << 16)
        with requesting_client(gateway.port) as reader:
            received = reader.recv(1024)
            gateway.process.terminate()
            while piece := reader.recv(4096):
                received += piece
                # When the handler ends about a megabyte is with the kernel; what comes before it waits here.
                if 700_000 < len(answer) - len(received) < 1_500_000:
                    time.sleep(0.02)
        assert len(received) == len(answer)
        assert received.endswith(end)


CLIENT_FAULTS = {
    "cuts": Fault(cut_after_bytes=2_000_000),
    "delays": Fault(delay_seconds=0.01),
    "resets_at_once": Fault(cut_after_bytes=0),
}


@pytest.mark.parametrize(
    "fault", [CLIENT_FAULTS["cuts"], *at_night(*CLIENT_FAULTS.values())], ids=["one", *CLIENT_FAULTS]
)
@pytest.mark.parametrize("with_end", [False, True], ids=["plain", "with_end"])
async def test_faults_between_client_and_gateway_are_whole_or_known(table, tmp_path, fault, with_end):
    with running_gateway(tmp_path, shares(table), {"drainDelaySeconds": 0}) as gateway:
        with running(gateway.port) as proxy:
            proxy.fault = fault
            whole_or_broken(await storm(proxy.endpoint, 4, with_end=with_end), table[1])
        assert whole_or_broken(await storm(f"http://127.0.0.1:{gateway.port}", 2), table[1]) == 2


async def test_a_client_that_leaves_is_no_error_of_the_server(table, tmp_path):
    with running_gateway(tmp_path, shares(table), {"drainDelaySeconds": 0}) as gateway:
        with running(gateway.port) as proxy:
            proxy.fault = Fault(cut_after_bytes=300_000)
            assert whole_or_broken(await storm(proxy.endpoint, 6), table[1]) == 0
        await until(lambda: gateway.log.read_text().count('"status":499') == 6)
        assert "Traceback" not in gateway.log.read_text()


async def test_a_reader_that_does_not_drain_is_cut_off(table, tmp_path):
    limits = {"minimumBytesPerSecond": 1_000_000, "slowReaderSeconds": 1}
    with running_gateway(tmp_path, shares(table), {"drainDelaySeconds": 0, "limits": limits}) as gateway:
        # The last probe of its readiness may still be among them.
        sockets = open_sockets(gateway)
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=4096)
        path = "/delta-sharing/shares/s/schemas/default/tables/t/query"
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.token}\r\n"
        writer.write(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
        assert b"200" in await reader.readline()
        try:
            await until(lambda: "slow reader" in gateway.log.read_text())
            await until(lambda: open_sockets(gateway) <= sockets)
        finally:
            writer.transport.abort()


@pytest.mark.alone
async def test_memory_and_descriptors_return_to_idle_after_storms(table, tmp_path):
    with running_gateway(tmp_path, shares(table), {"drainDelaySeconds": 0}) as gateway:
        base, sockets = f"http://127.0.0.1:{gateway.port}", open_sockets(gateway)
        for _ in range(3):
            assert whole_or_broken(await storm(base, 10), table[1]) == 10
        await until(lambda: open_sockets(gateway) <= sockets)
        memory, files = resident(gateway), open_files(gateway)
        for _ in range(3):
            assert whole_or_broken(await storm(base, 10), table[1]) == 10
        with running(gateway.port) as proxy:
            proxy.fault = Fault(cut_after_bytes=300_000)
            assert whole_or_broken(await storm(proxy.endpoint, 20), table[1]) == 0
        await until(lambda: open_files(gateway) <= files)
        await until(lambda: resident(gateway) < 1.1 * memory)
