"""The audit log: whole lines, off the loop, counted when they cannot be written."""

import asyncio
import fcntl
import json
import os
import resource
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support import skips
from support.waiting import wait_until

from gateway.telemetry.audit import AuditLog
from gateway.telemetry.audit_record import AuditRecord


@pytest.fixture(autouse=True)
def tries_again_soon(monkeypatch):
    monkeypatch.setattr("gateway.telemetry.audit.RETRY_SECONDS", 0.02)


def record(**changes):
    values = {
        "at_ms": 1_700_000_000_000,
        "action": "deltaSharingQueryTable",
        "request_id": "r-1",
        "recipient": "alice",
        "source_address": "192.0.2.1",
        "user_agent": "Delta-Sharing-Spark/3.1",
        "status": 200,
        "error_code": None,
        "details": {"share": "sales", "limitHint": 10},
        "result": {"files": 7},
    }
    return AuditRecord(**(values | changes))


def test_a_record_is_one_versioned_line():
    line = record(user_agent="two\nlines\u2028").line()
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "version": "1.0",
        "timestamp": 1_700_000_000_000,
        "serviceName": "deltaSharingGateway",
        "actionName": "deltaSharingQueryTable",
        "requestId": "r-1",
        "recipientName": "alice",
        "sourceIPAddress": "192.0.2.1",
        "userAgent": "two\nlines\u2028",
        "requestParams": {"share": "sales", "limitHint": 10},
        "response": {"statusCode": 200, "errorCode": None, "result": {"files": 7}},
    }


def test_closing_writes_queued_records_in_order(tmp_path):
    log = AuditLog(tmp_path / "audit.jsonl")
    for number in range(2000):
        assert log.put(record(request_id=str(number)).line())
    log.close()
    lines = (tmp_path / "audit.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["requestId"] for line in lines] == [str(number) for number in range(2000)]
    assert (log.counts.written, log.counts.dropped, log.counts.failures) == (2000, 0, 0)


def test_a_renamed_file_is_left_and_a_new_one_begun(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.put(record(request_id="before").line())
    wait_until(lambda: log.counts.written == 1)
    path.rename(tmp_path / "audit.1")
    log.put(record(request_id="after").line())
    log.close()
    assert b"before" in (tmp_path / "audit.1").read_bytes()
    assert b"after" in path.read_bytes()


def test_a_file_that_is_rotated_and_deleted_is_closed_without_a_further_record(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.telemetry.audit.IDLE_SECONDS", 0.02)
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.put(record(request_id="before").line())
    wait_until(lambda: log.counts.written == 1)
    path.rename(tmp_path / "audit.1")
    (tmp_path / "audit.1").unlink()
    wait_until(lambda: not any(str(tmp_path) in target for target in open_files()))
    log.put(record(request_id="after").line())
    wait_until(lambda: path.exists() and b"after" in path.read_bytes())
    log.close()


def open_files():
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            yield str(descriptor.readlink())


def test_a_full_disk_is_logged_once_and_dropped_records_are_counted():
    said = []
    log = AuditLog(Path("/dev/full"), queue_records=5, on_trouble=said.append)
    taken = [log.put(record().line()) for _ in range(20)]
    wait_until(lambda: log.counts.failures)
    assert taken.count(True) == 5
    assert not log.healthy
    log.close()
    assert log.counts.written == 0
    assert log.counts.dropped == 20
    assert said == ["the audit log cannot be written: No space left on device"]


def test_the_queue_is_bounded_in_bytes():
    log = AuditLog(Path("/dev/full"), queue_records=100)
    wait_until(lambda: log.put(b"") and log.counts.failures)
    names = {"share": "\x01" * 2700}
    taken = [log.put(record(details=names).line()) for _ in range(100)]
    assert 10 < taken.count(True) < 15
    log.close()
    alone = AuditLog(Path("/dev/full"), queue_records=1)
    assert alone.put(record(details=names).line())
    alone.close()


def test_a_record_that_is_written_makes_room(tmp_path):
    log = AuditLog(tmp_path / "audit.jsonl", queue_records=2)
    for number in range(1, 20):
        assert log.put(b"x" * 4000 + b"\n")
        wait_until(lambda number=number: log.counts.written == number)
    log.close()
    assert log.counts.dropped == 0


async def test_waiting_for_a_record_ends_in_time_on_a_full_disk_and_succeeds_on_a_good_one(tmp_path):
    full = AuditLog(Path("/dev/full"))
    assert not await full.written(record().line(), timeout_seconds=0.05)
    full.close()
    good = AuditLog(tmp_path / "audit.jsonl")
    answers = await asyncio.gather(*(good.written(record().line(), timeout_seconds=5) for _ in range(50)))
    assert answers == [True] * 50
    assert (tmp_path / "audit.jsonl").read_bytes().count(b"\n") == 50
    good.close()


def test_a_log_that_cannot_be_opened_is_noticed_at_once(tmp_path):
    with pytest.raises(OSError, match=r"audit\.jsonl cannot be opened: No such file or directory"):
        AuditLog(tmp_path / "missing" / "audit.jsonl")
    assert "does not exist" in AuditLog.trouble(tmp_path / "missing" / "audit.jsonl")
    assert "cannot be written" in AuditLog.trouble(tmp_path)
    assert AuditLog.trouble(tmp_path / "audit.jsonl") is None
    assert list(tmp_path.iterdir()) == []


def test_a_thread_can_wait_for_a_record(tmp_path):
    full, good = AuditLog(Path("/dev/full")), AuditLog(tmp_path / "audit.jsonl")
    assert not full.write(record().line(), timeout_seconds=0.05)
    assert good.write(record().line(), timeout_seconds=20)
    assert (tmp_path / "audit.jsonl").read_bytes() == record().line()
    for log in (full, good):
        log.close()


@pytest.mark.timeout(30)
def test_a_disk_that_was_full_for_a_while_loses_no_queued_record_and_glues_no_lines(tmp_path):
    path, said, recovered = tmp_path / "audit.jsonl", [], []
    line = record().line()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The limit falls into the third line: the system takes a part of the write and refuses the rest.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(line) * 2 + 40, hard))
    try:
        log = AuditLog(path, on_trouble=said.append, on_recovery=recovered.append)
        for _ in range(10):
            log.put(line)
        wait_until(lambda: log.counts.failures)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    wait_until(lambda: log.counts.written == 10)
    log.close()
    whole = [text for text in path.read_bytes().split(b"\n") if text == line.rstrip()]
    # What was whole in the part that the disk took is not written twice.
    assert len(whole) == 10
    assert (len(said), recovered) == (1, ["the audit log is written again"])


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 64 KiB that is its own, where this user may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"{skips.OTHER_MACHINE} one where a file system can be mounted")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.processes
async def test_a_disk_that_others_fill_costs_no_queued_record_and_no_line(small_disk):
    said, recovered = [], []
    log = AuditLog(small_disk / "audit.jsonl", on_trouble=said.append, on_recovery=recovered.append)
    line = record().line()
    assert log.write(line, timeout_seconds=20)
    filler = (small_disk / "filler").open("wb", buffering=0)
    with suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
    # Some lines fit into the page that the file has already.
    written = 1
    while log.write(line, timeout_seconds=0.2):
        written += 1
    assert not log.healthy
    assert not await log.written(line, timeout_seconds=20), "at once"
    for _ in range(10):
        assert log.put(line)
    filler.truncate(0)
    filler.close()
    # The line that was refused for want of time waits, too.
    wait_until(lambda: log.counts.written == written + 11)
    assert log.healthy
    log.close()
    lines = (small_disk / "audit.jsonl").read_bytes().splitlines()
    whole = [text for text in lines if text == line.rstrip()]
    assert len(whole) == written + 11
    assert (len(said), recovered) == (1, ["the audit log is written again"])


@pytest.mark.parametrize("mode", [0o640, 0o220])
def test_a_batch_begins_a_line_whatever_another_process_left(tmp_path, mode):
    path, line = tmp_path / "audit.jsonl", record().line()
    path.write_bytes(line + b'{"version": "1.')
    path.chmod(mode)
    log = AuditLog(path)
    log.put(line)
    wait_until(lambda: log.counts.written == 1)
    with path.open("ab") as torn_by_another:
        torn_by_another.write(b'{"versi')
    log.put(line)
    log.close()
    assert path.read_bytes().split(b"\n").count(line.rstrip()) == 3
    assert not log.counts.failures


def test_a_stopped_process_that_holds_the_file_delays_records_only_a_little(tmp_path):
    path, line = tmp_path / "audit.jsonl", record().line()
    with path.open("ab") as stopped:
        stopped.write(b"{")
        stopped.flush()
        fcntl.flock(stopped, fcntl.LOCK_EX)
        log = AuditLog(path)
        log.put(line)
        wait_until(lambda: log.counts.written == 1)
        log.close()
    assert line in path.read_bytes().splitlines(keepends=True)


@pytest.mark.timeout(60)
async def test_a_failure_is_an_answer_at_once_also_to_those_who_wait():
    log, alone = AuditLog(Path("/dev/full")), AuditLog(Path("/dev/full"))
    waits = [log.written(record().line(), timeout_seconds=300) for _ in range(20)]
    assert await asyncio.gather(*waits) == [False] * 20
    assert not await log.written(record().line(), timeout_seconds=300)
    assert not log.write(record().line(), timeout_seconds=300)
    assert not await asyncio.to_thread(alone.write, record().line(), timeout_seconds=300)
    for one in (log, alone):
        one.close()


async def test_a_write_that_hangs_is_a_failure_until_it_ends(tmp_path):
    pipe, said, recovered = tmp_path / "pipe", [], []
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    log = AuditLog(pipe, on_trouble=said.append, on_recovery=recovered.append)
    long = b"x" * 2**20 + b"\n"
    assert not await log.written(long, timeout_seconds=0.05)
    assert not log.healthy
    assert said == ["the audit log cannot be written: a record takes longer than 0.05 s"]
    assert not await log.written(b"never queued\n", timeout_seconds=300)
    read = 0
    while read < len(long):
        with suppress(BlockingIOError):
            read += len(os.read(reader, 2**20))
    wait_until(lambda: log.healthy)
    assert recovered == ["the audit log is written again"]
    assert await log.written(b"short\n", timeout_seconds=300)
    log.close()
    os.close(reader)


async def test_a_stop_of_the_process_is_no_failure_of_a_record_that_is_written(tmp_path):
    said: list[str] = []
    log = AuditLog(tmp_path / "audit.jsonl", on_trouble=said.append)
    waits = asyncio.ensure_future(log.written(record().line(), timeout_seconds=0.05))
    await asyncio.sleep(0)
    # The event loop stands still until the time is over; the thread goes on.
    wait_until(lambda: log.counts.written == 1)
    time.sleep(0.1)  # noqa: ASYNC251
    await waits
    assert (log.healthy, said) == (True, [])
    assert await log.written(record().line(), timeout_seconds=300)
    log.close()


def test_several_writers_share_a_file_without_tearing_lines(tmp_path):
    path = tmp_path / "audit.jsonl"
    logs = [AuditLog(path) for _ in range(4)]
    for number in range(500):
        for log in logs:
            log.put(record(request_id=str(number), user_agent="x" * 300).line())
    for log in logs:
        log.close()
    lines = path.read_bytes().splitlines()
    assert len(lines) == 2000
    assert all(json.loads(line)["version"] == "1.0" for line in lines)


def test_several_writers_share_a_pipe_without_tearing_lines(tmp_path):
    """A pipe takes a longer write in parts, between those of others."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    logs = [AuditLog(pipe) for _ in range(4)]
    for log in logs:
        log.put_all([record(user_agent="x" * 300).line()] * 500, timeout_seconds=0)
    received = b""
    while received.count(b"\n") < 2000:
        with suppress(BlockingIOError):
            received += os.read(reader, 2**20)
    for log in logs:
        log.close()
    os.close(reader)
    assert all(json.loads(line)["version"] == "1.0" for line in received.splitlines())


def test_a_pipe_that_nobody_reads_is_no_log_until_somebody_does(tmp_path):
    pipe, said, recovered = tmp_path / "pipe", [], []
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="cannot be opened: No such device or address"):
        AuditLog(pipe)
    log = AuditLog(pipe, must_open=False, on_trouble=said.append, on_recovery=recovered.append)
    log.put(record().line())
    wait_until(lambda: said == ["the audit log cannot be written: No such device or address"])
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    wait_until(lambda: recovered == ["the audit log is written again"])
    assert json.loads(os.read(reader, 4096))["version"] == "1.0"
    log.close()
    os.close(reader)


def test_no_descriptor_is_left_open(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        log = AuditLog(tmp_path / "audit.jsonl")
        log.put(record().line())
        log.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
