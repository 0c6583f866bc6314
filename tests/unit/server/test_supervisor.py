"""Workers as real processes: one port, restarts, drains, and no process left at the end."""

import asyncio
import errno
import os
import select
import signal
import socket
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from gateway.errors import StartFailed
from gateway.server.listeners import CannotListen, allow_restart, bind
from gateway.server.supervisor import Supervisor, WorkerEvents

HANDED = "a secret that all workers have: " + "x" * 1_000_000
# Without a web framework, whose import is most of what a start costs.
SERVER = """
import asyncio, json, os, signal, sys, time
from contextlib import suppress
from gateway.server.slot import Slot

slot = Slot.of_environment(os.environ)
answering = set()

async def who(_):
    shown = {"index": slot.index, "count": slot.count, "pid": os.getpid(), "handed": slot.secrets.decode()}
    yield json.dumps(shown).encode()

async def hang(_):
    time.sleep(600)
    yield b""

async def slow(lines):
    for number in range(lines):
        yield b"%d %d\\n" % (os.getpid(), number)
        await asyncio.sleep(0.02)

async def connected(reader, writer):
    task = asyncio.current_task()
    answering.add(task)
    task.add_done_callback(answering.discard)
    with suppress(ConnectionError):
        target = (await reader.readline()).split()[1].decode()
        while (await reader.readline()).strip():
            pass
        page, _, number = target.strip("/").partition("?lines=")
        head = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nConnection: close\\r\\n"
        head += b"Transfer-Encoding: chunked\\r\\n\\r\\n"
        async for piece in {"who": who, "hang": hang, "slow": slow}[page](int(number or 0)):
            writer.write(head + b"%x\\r\\n%b\\r\\n" % (len(piece), piece))
            head = b""
            await writer.drain()
        writer.write(b"0\\r\\n\\r\\n")
        await writer.drain()
    writer.close()

async def reload():
    return {"0": None, "1": "not I"}[str(slot.index)]

async def answer(question):
    if "seconds" in question:
        await asyncio.sleep(question["seconds"])
    if "fail" in question:
        raise ValueError("no answer")
    return {"index": slot.index, "text": "x" * question.get("length", 0)}

async def main():
    server = await asyncio.start_server(connected, sock=slot.listener, backlog=128)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    slot.ready()
    gone = asyncio.ensure_future(slot.follow(reload, answer))
    await asyncio.wait({gone, asyncio.ensure_future(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
    server.close()
    if answering:
        await asyncio.wait({*answering}, timeout=20)

asyncio.run(main())
"""


class Ended(WorkerEvents):
    """Remembers the ids of processes that have ended."""

    def __init__(self, process_ids):
        self.ended = process_ids.append


@asynccontextmanager
async def running(count=2, code=SERVER):
    listeners = bind("127.0.0.1", 0, count)
    url = f"http://127.0.0.1:{listeners[0].getsockname()[1]}"
    restarted = []
    supervisor = Supervisor(
        [sys.executable, "-P", "-c", code],
        listeners,
        environment=dict(os.environ),
        secrets=HANDED.encode,
        events=Ended(restarted),
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


@pytest.mark.processes
async def test_every_worker_answers_questions_of_any_length_while_others_wait():
    async with running(2) as (supervisor, _, _):
        slow = asyncio.ensure_future(supervisor.ask({"seconds": 4}))
        # Longer than the buffer of a socket: a line arrives in many parts, beside those of other answers.
        questions = [{"length": 1_000_000}, {"length": 3}, {"length": 500_000}]
        answers = await asyncio.gather(*(supervisor.ask(question) for question in questions))
        assert not slow.done()
        for question, found in zip(questions, answers, strict=True):
            assert [(one["index"], len(one["text"])) for one in found] == [
                (0, question["length"]),
                (1, question["length"]),
            ]
        assert [one["index"] for one in await supervisor.ask({}, one=True)] == [0]
        assert [one["index"] for one in await slow] == [0, 1]


@pytest.mark.processes
async def test_a_worker_without_an_answer_in_time_is_left_out():
    async with running(2) as (supervisor, _, restarted):
        assert await supervisor.ask({"seconds": 30}, seconds=0.2) == []
        assert await supervisor.ask({"fail": True}) == []
        asked = asyncio.ensure_future(supervisor.ask({"seconds": 30}))
        await asyncio.sleep(0.2)
        os.kill(supervisor.process_ids[0], signal.SIGKILL)
        os.kill(supervisor.process_ids[1], signal.SIGKILL)
        assert await asyncio.wait_for(asked, 10) == [], "the questions end with their workers"
        while len(restarted) < 2:
            await asyncio.sleep(0.02)


@pytest.mark.processes
async def test_a_worker_that_hangs_delays_questions_for_one_worker_once():
    async with running(2) as (supervisor, _, restarted):
        os.kill(supervisor.process_ids[0], signal.SIGSTOP)
        assert [one["index"] for one in await supervisor.ask({}, one=True, seconds=0.5)] == [1]
        asked = asyncio.ensure_future(supervisor.ask({}, one=True, seconds=30))
        assert [one["index"] for one in await asyncio.wait_for(asked, 10)] == [1]
        os.kill(supervisor.process_ids[0], signal.SIGCONT)
        # Its late answer shows that it lives.
        async with asyncio.timeout(10):
            while (await supervisor.ask({}, one=True))[0]["index"] != 0:
                await asyncio.sleep(0.02)
        assert restarted == []


@pytest.mark.processes
async def test_a_worker_that_hangs_reads_whole_lines_afterwards():
    long = {"text": "x" * 1_000_000}
    async with running(2) as (supervisor, _, restarted):
        workers = supervisor.process_ids
        os.kill(workers[0], signal.SIGSTOP)
        for _ in range(3):
            assert [one["index"] for one in await supervisor.ask(long, seconds=0.5)] == [1]
        os.kill(workers[0], signal.SIGCONT)
        assert [one["index"] for one in await supervisor.ask({}, seconds=10)] == [0, 1]
        os.kill(workers[0], signal.SIGSTOP)
        assert len(await supervisor.ask(long, seconds=0.5)) == 1
        os.kill(workers[0], signal.SIGKILL)
        async with asyncio.timeout(20):
            while len(await supervisor.ask({}, seconds=1)) < 2:
                await asyncio.sleep(0.02)
        assert restarted == workers[:1], "an unsent line does not outlive its worker"


@pytest.mark.processes
async def test_a_question_that_is_half_sent_ends_with_its_worker():
    async with running(2) as (supervisor, _, restarted):
        (worker, _) = supervisor.process_ids
        os.kill(worker, signal.SIGSTOP)
        asked = asyncio.ensure_future(supervisor.ask({"text": "x" * 1_000_000}, seconds=30))
        await asyncio.sleep(0.2)
        assert not asked.done()
        # As at the end of the worker, unless the error of its socket comes first.
        supervisor._workers[0].line.cancel()
        os.kill(worker, signal.SIGKILL)
        assert [one["index"] for one in await asyncio.wait_for(asked, 10)] == [1]
        async with asyncio.timeout(10):
            while restarted != [worker]:
                await asyncio.sleep(0.02)


@pytest.mark.processes
async def test_all_workers_answer_on_one_port():
    async with running(2) as (supervisor, url, _):
        answers = [await ask(url) for _ in range(60)]
        assert {answer["pid"] for answer in answers} == set(supervisor.process_ids)
        assert {answer["count"] for answer in answers} == {2}


@pytest.mark.processes
async def test_a_killed_worker_is_restarted_and_the_streams_of_others_continue():
    async with running(2) as (supervisor, url, restarted):
        async with aiohttp.ClientSession() as session:
            streams = await begun(session, url, count=12, length=60)
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


async def begun(session, url, *, count, length):
    """Streams of so many lines, of which each has begun."""
    waiting = asyncio.Semaphore(0)

    async def lines():
        async with session.get(f"{url}/slow", params={"lines": length}) as response:
            waiting.release()
            return (await response.read()).splitlines()

    streams = [asyncio.ensure_future(lines()) for _ in range(count)]
    for _ in streams:
        await asyncio.wait_for(waiting.acquire(), 20)
    return streams


async def refusal(url):
    """Return when a connection is refused."""
    with suppress(aiohttp.ClientConnectionError):
        while True:
            await ask(url)


@pytest.mark.processes
async def test_stopping_lets_streams_finish_and_takes_no_new_connection():
    async with running(2) as (supervisor, url, _):
        async with aiohttp.ClientSession() as session:
            streams = await begun(session, url, count=6, length=100)
            stopping = asyncio.ensure_future(supervisor.stop(seconds=20))
            await asyncio.wait_for(refusal(url), 20)
            assert not any(stream.done() for stream in streams)
            assert [len(stream) for stream in await asyncio.gather(*streams)] == [100] * 6
            await stopping
        assert supervisor.process_ids == []


@pytest.mark.processes
async def test_a_worker_that_does_not_drain_is_killed():
    stubborn = (
        "import os, signal, time; from gateway.server.slot import Slot\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); Slot.of_environment(os.environ).ready()\n"
        "time.sleep(60)"
    )
    async with running(1, stubborn) as (supervisor, _, _):
        async with asyncio.timeout(5):
            await supervisor.stop(seconds=0.2)
        assert supervisor.process_ids == []


@pytest.mark.processes
async def test_a_worker_that_cannot_start_ends_the_start_with_its_code():
    listeners = bind("127.0.0.1", 0, 2)
    supervisor = Supervisor(
        [sys.executable, "-c", "raise SystemExit(7)"], listeners, environment=dict(os.environ)
    )
    with pytest.raises(StartFailed) as failed:
        await supervisor.start()
    assert failed.value.exit_code == 7
    assert supervisor.process_ids == []


@pytest.mark.processes
async def test_workers_end_when_their_supervisor_is_killed():
    code = (
        "import asyncio, os, sys\n"
        "from gateway.server.listeners import bind\n"
        "from gateway.server.supervisor import Supervisor\n"
        "async def main():\n"
        "    command = [sys.executable, '-P', '-c', sys.argv[1]]\n"
        "    supervisor = Supervisor(command, bind('127.0.0.1', 0, 2), environment=os.environ)\n"
        "    await supervisor.start()\n"
        "    print(*supervisor.process_ids, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", code, SERVER, stdout=asyncio.subprocess.PIPE
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
    for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
        with socket.socket() as other:
            for option in options:
                other.setsockopt(socket.SOL_SOCKET, option, 1)
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            for sockets in (1, 2):
                with pytest.raises(
                    CannotListen, match=f"127.0.0.1 port {port}: another program listens there"
                ):
                    bind("127.0.0.1", port, sockets)


def test_a_name_of_both_kinds_is_listened_on_by_the_address_of_ipv4(monkeypatch):
    def found(_host: str, port: int, **_: object) -> list[object]:
        addresses = {socket.AF_INET6: ("::1", port, 0, 0), socket.AF_INET: ("127.0.0.1", port)}
        return [(family, socket.SOCK_STREAM, 6, "", address) for family, address in addresses.items()]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    for listener in bind("localhost", 0, 2):
        with listener:
            assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("second", [1, 2])
def test_a_second_server_is_refused_before_the_first_one_accepts(first, second):
    sockets = bind("127.0.0.1", 0, first)
    try:
        with pytest.raises(CannotListen, match="another program listens there"):
            bind("127.0.0.1", sockets[0].getsockname()[1], second)
    finally:
        for one in sockets:
            one.close()


@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_port_is_free_again_when_its_server_has_ended(before, after):
    first = bind("127.0.0.1", 0, before)
    port = first[0].getsockname()[1]
    for one in first:
        allow_restart(one)
        one.listen()
    with socket.create_connection(("127.0.0.1", port)):
        # The server closes first, so its end of the connection lingers (TIME_WAIT).
        accepted = next(one.accept()[0] for one in select.select(first, [], [])[0])
        accepted.close()
        for one in first:
            one.close()
    for one in bind("127.0.0.1", port, after):
        one.close()


@pytest.mark.parametrize(
    ("host", "reason"), [("192.0.2.1", "assign"), ("no such host.invalid", "known|resol")]
)
def test_an_unavailable_address_is_named(host, reason):
    with pytest.raises(CannotListen, match=f"cannot listen on {host} port 7: .*({reason})"):
        bind(host, 7, 1)


def test_a_port_for_privileged_users_is_named_with_the_remedy(monkeypatch):
    """Port 80 is the default. Not every system refuses it, and none does for root."""

    def refuse(_socket, _address):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(CannotListen, match="set a port of 1024 or more"):
        bind("127.0.0.1", 80, 1)


@pytest.mark.processes
async def test_secrets_reach_every_worker_and_its_replacement():
    async with running(2) as (supervisor, url, _):
        answers = [await ask(url) for _ in range(40)]
        assert {answer["handed"] for answer in answers} == {HANDED}
        assert {answer["index"] for answer in answers} == {0, 1}
        victims = supervisor.process_ids
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        answers = [await ask(url) for _ in range(20)]
        assert {answer["handed"] for answer in answers} == {HANDED}
        assert not {answer["pid"] for answer in answers} & {*victims}
        assert not any(HANDED.encode() in shown(process_id) for process_id in supervisor.process_ids)


def shown(process_id):
    """What other programs may see of a process."""
    return b"".join(Path(f"/proc/{process_id}/{file}").read_bytes() for file in ("cmdline", "environ"))


@pytest.mark.processes
async def test_each_worker_answers_for_its_reload():
    async with running(2) as (supervisor, _, _):
        first, second = await supervisor.reload()
        assert [first.process_id, second.process_id] == supervisor.process_ids
        assert (first.refused, second.refused) == (None, "not I")


@pytest.mark.processes
async def test_a_worker_that_ends_or_does_not_answer_has_not_reloaded():
    async with running(2) as (supervisor, _, _):
        stopped, killed = supervisor.process_ids
        os.kill(stopped, signal.SIGSTOP)
        reloading = asyncio.ensure_future(supervisor.reload(seconds=1.5))
        os.kill(killed, signal.SIGKILL)
        first, second = await reloading
        os.kill(stopped, signal.SIGCONT)
        assert first.refused == "no answer within 1.5 s"
        assert second.refused in ("the worker ended", "the worker is starting", "not I")


@pytest.mark.processes
async def test_a_worker_that_cannot_be_started_just_now_is_started_later(tmp_path, caplog):
    command = tmp_path / "worker"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -c "$WORKER_CODE"\n')
    command.chmod(0o700)
    supervisor = Supervisor(
        [str(command)], bind("127.0.0.1", 0, 2), environment={**os.environ, "WORKER_CODE": SERVER}
    )
    await supervisor.start()
    try:
        command.rename(tmp_path / "away")
        victim, other = supervisor.process_ids
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(30):
            while "worker 0 cannot be started: No such file or directory" not in caplog.text:
                await asyncio.sleep(0.01)
        assert supervisor.process_ids == [other]
        (tmp_path / "away").rename(command)
        async with asyncio.timeout(60):
            while len(supervisor.process_ids) < 2:
                await asyncio.sleep(0.01)
    finally:
        await supervisor.stop(seconds=20)


FALTERING = (
    """
import os, pathlib, sys, time
block = pathlib.Path(os.environ["BLOCK"])
if block.exists():
    time.sleep(float(block.read_text() or 0))
    sys.exit(3)
"""
    + SERVER
)


@pytest.mark.processes
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_slot_without_a_worker_receives_no_connections(tmp_path, caplog, hangs):
    block = tmp_path / "block"
    listeners = bind("127.0.0.1", 0, 2)
    url = f"http://127.0.0.1:{listeners[0].getsockname()[1]}"
    supervisor = Supervisor(
        [sys.executable, "-P", "-c", FALTERING],
        listeners,
        environment={**os.environ, "BLOCK": str(block)},
        start_seconds=6.0 if hangs else 60.0,
    )
    await supervisor.start()
    try:
        victim, other = supervisor.process_ids
        block.write_text("600" if hangs else "")
        os.kill(victim, signal.SIGKILL)
        said = "is not ready after 6 s and is killed" if hangs else "ended with code 3"
        async with asyncio.timeout(30):
            while said not in caplog.text:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            for _ in range(40):
                assert (await ask(url))["pid"] == other
        block.unlink()
        async with asyncio.timeout(60):
            while {(await ask(url))["index"] for _ in range(20)} != {0, 1}:
                await asyncio.sleep(0.05)
    finally:
        await supervisor.stop(seconds=20)


@pytest.mark.processes
async def test_a_hang_up_is_sent_to_workers_that_serve_alone(tmp_path):
    block = tmp_path / "block"
    listeners = bind("127.0.0.1", 0, 2)
    supervisor = Supervisor(
        [
            sys.executable,
            "-P",
            "-c",
            "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)" + FALTERING,
        ],
        listeners,
        environment={**os.environ, "BLOCK": str(block)},
    )
    await supervisor.start()
    try:
        block.write_text("600")
        victim, served = supervisor.process_ids
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(30):
            while len(supervisor.process_ids) < 2 or victim in supervisor.process_ids:
                await asyncio.sleep(0.01)
        starting = supervisor.process_ids[0]
        supervisor.hang_up()
        async with asyncio.timeout(30):
            while served in supervisor.process_ids:
                await asyncio.sleep(0.01)
        assert starting in supervisor.process_ids
    finally:
        os.kill(starting, signal.SIGKILL)
        await supervisor.stop(seconds=20)


@pytest.mark.processes
@pytest.mark.parametrize("fault", ["blocks", "is stopped"])
async def test_a_worker_that_hangs_is_ended_with_its_stacks_and_replaced(fault, caplog):
    restarted, hangs = [], []
    events = Ended(restarted)
    events.hung = lambda: hangs.append(1)
    listeners = bind("127.0.0.1", 0, 2)
    url = f"http://127.0.0.1:{listeners[0].getsockname()[1]}"
    supervisor = Supervisor(
        [sys.executable, "-P", "-c", SERVER],
        listeners,
        environment=dict(os.environ),
        ping_seconds=0.5,
        hung_seconds=5,
        events=events,
    )
    await supervisor.start()
    try:
        workers = supervisor.process_ids
        if fault == "is stopped":
            os.kill(workers[0], signal.SIGSTOP)
            victim = workers[0]
        else:
            async with aiohttp.ClientSession() as session:
                with suppress(TimeoutError, aiohttp.ClientError):
                    await session.get(f"{url}/hang", timeout=aiohttp.ClientTimeout(1))
        async with asyncio.timeout(60):
            while not restarted or len(supervisor.process_ids) < 2:
                await asyncio.sleep(0.05)
            while {(await ask(url))["index"] for _ in range(20)} != {0, 1}:
                await asyncio.sleep(0.05)
        assert len(restarted) == len(hangs) == 1
        assert restarted[0] in workers
        if fault == "is stopped":
            assert restarted == [victim]
        assert "has answered nothing for 5 s and is ended" in caplog.text
        assert ("in hang" in caplog.text) == (fault == "blocks")
    finally:
        await supervisor.stop(seconds=20)


@pytest.mark.processes
async def test_connections_of_a_dead_worker_reach_its_successor():
    supervisor = Supervisor(
        [sys.executable, "-P", "-c", SERVER],
        bind("127.0.0.1", 0, 1),
        environment=dict(os.environ),
    )
    await supervisor.start()
    try:
        victims = supervisor.process_ids
        os.kill(victims[0], signal.SIGKILL)
        async with asyncio.timeout(60):
            while supervisor.process_ids in ([], victims):
                await asyncio.sleep(0.01)
    finally:
        await supervisor.stop(seconds=20)


@pytest.mark.processes
async def test_workers_that_wait_share_one_look_for_what_hinders_them(monkeypatch, caplog):
    monkeypatch.setattr("gateway.server.supervisor.OBSTACLE_SECONDS", 0.05)
    monkeypatch.setattr("gateway.server.supervisor.OBSTACLE_POLL_SECONDS", 0.02)
    ended, looks = asyncio.Event(), []

    async def obstacle():
        looks.append(1)
        await ended.wait()

    supervisor = Supervisor(
        [sys.executable, "-P", "-c", SERVER],
        bind("127.0.0.1", 0, 3),
        environment=dict(os.environ),
        obstacle=obstacle,
    )
    await supervisor.start()
    try:
        for victim in supervisor.process_ids:
            os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(60):
            while caplog.text.count("waits before it starts again: no answer within 0.05 s") < 3:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            assert (len(looks), supervisor.process_ids) == (1, [])
            ended.set()
            while len(supervisor.process_ids) < 3:
                await asyncio.sleep(0.01)
    finally:
        ended.set()
        await supervisor.stop(seconds=20)


@pytest.mark.processes
async def test_a_command_that_is_not_there_ends_the_start(tmp_path):
    absent = str(tmp_path / "absent")
    supervisor = Supervisor([absent], bind("127.0.0.1", 0, 2), environment=dict(os.environ))
    with pytest.raises(FileNotFoundError):
        await supervisor.start()
