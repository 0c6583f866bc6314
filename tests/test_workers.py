"""Workers as real processes: one port, restarts, drains, and nobody left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from gateway.workers import StartFailed, Supervisor, bind

SERVER = """
import asyncio, os, signal, sys
from aiohttp import web
from gateway.workers import Slot

slot = Slot.of_environment(os.environ)

async def who(request):
    return web.json_response({"index": slot.index, "count": slot.count, "pid": os.getpid()})

async def slow(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for number in range(int(request.query["lines"])):
        await response.write(b"%d %d\\n" % (os.getpid(), number))
        await asyncio.sleep(0.02)
    return response

async def main():
    app = web.Application()
    app.add_routes([web.get("/who", who), web.get("/slow", slow)])
    runner = web.AppRunner(app, shutdown_timeout=20)
    await runner.setup()
    await web.SockSite(runner, slot.listener).start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    slot.ready()
    gone = asyncio.ensure_future(slot.supervisor_gone())
    await asyncio.wait({gone, asyncio.ensure_future(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
    await runner.cleanup()

asyncio.run(main())
"""


@asynccontextmanager
async def running(count=2, code=SERVER):
    listeners = bind("127.0.0.1", 0, count)
    url = f"http://127.0.0.1:{listeners[0].getsockname()[1]}"
    restarted = []
    supervisor = Supervisor(
        [sys.executable, "-c", code], listeners, environment=dict(os.environ), on_restart=restarted.append
    )
    await supervisor.start()
    try:
        yield supervisor, url, restarted
    finally:
        await supervisor.stop(seconds=20)


async def ask(url):
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session, session.get(f"{url}/who") as response:
        return await response.json()


async def test_all_workers_answer_on_one_port():
    async with running(2) as (supervisor, url, _):
        answers = [await ask(url) for _ in range(60)]
        assert {answer["pid"] for answer in answers} == set(supervisor.process_ids)
        assert {answer["count"] for answer in answers} == {2}


async def test_a_killed_worker_is_begun_anew_and_the_others_streams_go_on():
    async with running(2) as (supervisor, url, restarted):
        async with aiohttp.ClientSession() as session:
            streams = [asyncio.ensure_future(lines(session, url, 60)) for _ in range(12)]
            await asyncio.sleep(0.3)
            victim = supervisor.process_ids[0]
            os.kill(victim, signal.SIGKILL)
            # Connections that meet the dead worker's socket wait for its successor: none is refused.
            answers = await asyncio.gather(*(ask(url) for _ in range(40)))
            ended = await asyncio.gather(*streams, return_exceptions=True)
        assert victim not in {answer["pid"] for answer in answers}
        assert restarted == [victim]
        whole = [stream for stream in ended if not isinstance(stream, Exception)]
        cut = [stream for stream in ended if isinstance(stream, Exception)]
        assert whole
        assert all(len(stream) == 60 and str(victim).encode() not in stream[0] for stream in whole)
        assert all(isinstance(error, aiohttp.ClientPayloadError) for error in cut)


async def lines(session, url, count):
    async with session.get(f"{url}/slow", params={"lines": count}) as response:
        return (await response.read()).splitlines()


async def test_stopping_lets_streams_finish_and_takes_no_new_connection():
    async with running(2) as (supervisor, url, _):
        async with aiohttp.ClientSession() as session:
            streams = [asyncio.ensure_future(lines(session, url, 40)) for _ in range(6)]
            await asyncio.sleep(0.2)
            stopping = asyncio.ensure_future(supervisor.stop(seconds=20))
            await asyncio.sleep(0.2)
            with pytest.raises(aiohttp.ClientConnectionError):
                await ask(url)
            assert [len(stream) for stream in await asyncio.gather(*streams)] == [40] * 6
            await stopping
        assert supervisor.process_ids == []


async def test_a_worker_that_does_not_drain_is_killed():
    stubborn = (
        "import os, signal, time; from gateway.workers import Slot\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); Slot.of_environment(os.environ).ready()\n"
        "time.sleep(60)"
    )
    async with running(1, stubborn) as (supervisor, _, _):
        async with asyncio.timeout(5):
            await supervisor.stop(seconds=0.2)
        assert supervisor.process_ids == []


async def test_a_worker_that_cannot_start_ends_the_start_with_its_code():
    listeners = bind("127.0.0.1", 0, 2)
    supervisor = Supervisor(
        [sys.executable, "-c", "raise SystemExit(7)"], listeners, environment=dict(os.environ)
    )
    with pytest.raises(StartFailed) as failed:
        await supervisor.start()
    assert failed.value.exit_code == 7
    assert supervisor.process_ids == []


async def test_workers_end_when_their_supervisor_is_killed():
    code = (
        "import asyncio, os, sys\n"
        "from gateway.workers import Supervisor, bind\n"
        "async def main():\n"
        "    command = [sys.executable, '-c', sys.argv[1]]\n"
        "    supervisor = Supervisor(command, bind('127.0.0.1', 0, 2), environment=os.environ)\n"
        "    await supervisor.start()\n"
        "    print(*supervisor.process_ids, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, SERVER, stdout=asyncio.subprocess.PIPE
    )
    process_ids = [int(text) for text in (await parent.stdout.readline()).split()]
    parent.kill()
    await parent.wait()
    async with asyncio.timeout(10):
        while any(alive(process_id) for process_id in process_ids):
            await asyncio.sleep(0.05)


def alive(process_id):
    with suppress(OSError):
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_port_that_another_program_has_is_refused_and_nothing_stays_open():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(OSError, match="in use"):
            bind("127.0.0.1", other.getsockname()[1], 2)


async def test_a_command_that_is_not_there_ends_the_start():
    supervisor = Supervisor(["/nonexistent"], bind("127.0.0.1", 0, 2), environment=dict(os.environ))
    with pytest.raises(FileNotFoundError):
        await supervisor.start()
