"""Log lines are written by a thread from a queue: no request waits, and lost lines are counted."""

import json
import logging
import os
import resource
import subprocess
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.gateway_directory import Gateway
from support.nightly import at_night
from support.processes import PACKAGE, gateway_command, package_environment
from support.waiting import wait_until

from gateway.telemetry.log_output import (
    PIPE_BYTES,
    QUEUE_BYTES,
    LogWriter,
    log_counts,
    queued_logs,
)
from gateway.web.access_log import MAX_PATH_BYTES

LOST = "delta_gateway_log_lines_total"


@contextmanager
def full_pipe():
    """The ends of a pipe that takes nothing more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"-" * PIPE_BYTES)
    os.set_blocking(writer, True)
    try:
        yield reader, writer
    finally:
        os.close(reader)
        with suppress(OSError):
            os.close(writer)


def read_all(reader):
    found = b""
    os.set_blocking(reader, False)
    with suppress(BlockingIOError):
        while piece := os.read(reader, 1 << 16):
            found += piece
    return found


def test_dropped_lines_are_counted_and_reported_by_the_next_line():
    line = b"x" * 999 + b"\n"
    with full_pipe() as (reader, descriptor):
        writer = LogWriter(descriptor, queue_bytes=10_000)
        assert [writer.put(line) for _ in range(15)] == [True] * 10 + [False] * 5
        assert writer.counts.lost == 5
        assert writer._held_bytes == 10_000
        received = b""
        while writer.counts.written < 10:
            received += read_all(reader)
        assert writer.put(b"last\n")
        writer.close()
        received += read_all(reader)
    lines = received.lstrip(b"-").splitlines()
    assert lines.count(line[:-1]) == 10
    assert lines[-1] == b"last"
    messages = [json.loads(line)["message"] for line in lines if line.startswith(b"{")]
    assert messages == ["5 log lines were lost: their reader was too slow"]


def test_closing_does_not_wait_for_a_reader_that_stalls():
    with full_pipe() as (reader, descriptor):
        writer = LogWriter(descriptor)
        writer.put(b"never read\n")
        started = time.monotonic()
        writer.close(timeout_seconds=0.2)
        assert time.monotonic() - started < 5
        assert not writer.put(b"too late\n")
        # Before the descriptor is another test's.
        while writer._thread.is_alive():
            read_all(reader)


def test_lines_of_a_reader_that_is_gone_are_counted_as_lost():
    reader, descriptor = os.pipe()
    os.close(reader)
    writer = LogWriter(descriptor)
    writer.put(b"one\ntwo\n")
    writer.close()
    os.close(descriptor)
    assert (writer.counts.written, writer.counts.lost) == (0, 2)


def test_lines_for_a_descriptor_that_is_closed_are_counted_as_lost():
    reader, descriptor = os.pipe()
    os.close(reader)
    os.close(descriptor)
    writer = LogWriter(descriptor)
    writer.put(b"one\ntwo\n")
    writer.close()
    assert (writer.counts.written, writer.counts.lost) == (0, 2)


def test_a_disk_that_was_full_for_a_while_glues_no_lines_and_counts_what_it_took(tmp_path):
    path, line = tmp_path / "log", b"z" * 99 + b"\n"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with path.open("ab", buffering=0) as file:
        writer, other = LogWriter(file.fileno()), LogWriter(file.fileno())
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(line) * 2 + 40, hard))
        try:
            for full in (writer, other):
                full.put(line * 3)
                wait_until(lambda counts=full.counts: counts.written + counts.lost == 3)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        for again in (other, writer):
            again.put(line)
            again.close()
    assert path.read_bytes().split(b"\n") == [line[:-1]] * 2 + [line[:40]] + [line[:-1], b"", line[:-1], b""]
    assert [(counts.written, counts.lost) for counts in (writer.counts, other.counts)] == [(3, 1), (1, 3)]


def test_a_pipe_that_does_not_block_gets_every_line():
    reader, descriptor = os.pipe()
    os.set_blocking(descriptor, False)
    writer = LogWriter(descriptor)
    line = b"y" * 100 + b"\n"
    for _ in range(5000):
        assert writer.put(line)
    received = b""
    while len(received) < 5000 * len(line):
        received += os.read(reader, 1 << 16)
    writer.close()
    os.close(reader)
    os.close(descriptor)
    assert received == line * 5000


def test_processes_that_share_a_pipe_tear_no_lines():
    reader, descriptor = os.pipe()
    writers = [LogWriter(os.dup(descriptor), queue_bytes=1 << 24) for _ in range(3)]
    lines = [bytes([letter]) * 700 + b"\n" for letter in b"abc"]
    received = bytearray()

    def read():
        while piece := os.read(reader, 1 << 16):
            received.extend(piece)

    reading = threading.Thread(target=read)
    reading.start()
    for _ in range(500):
        for writer, line in zip(writers, lines, strict=True):
            writer.put(line * 8)
    for writer in writers:
        writer.close(timeout_seconds=20)
        os.close(writer._descriptor)
    os.close(descriptor)
    reading.join()
    os.close(reader)
    assert received.count(b"\n") == 3 * 500 * 8
    assert {bytes(line) + b"\n" for line in received.splitlines()} == set(lines)


@pytest.mark.filterwarnings("default")
def test_every_line_is_json_with_its_time_and_level(tmp_path):
    path = tmp_path / "log"
    with path.open("wb") as file, queued_logs(file.fileno()):
        logging.getLogger("gateway.storages").warning("a %s\nof two lines, %s", "text", "\udcff")
        try:
            int("why")
        except ValueError:
            logging.getLogger("gateway.errors").exception("it failed")
        logging.getLogger("gateway.access").info('{"request":"1"}\n{"request":"2"}')
        thread = threading.Thread(target=lambda: 1 / 0, name="broken")
        thread.start()
        thread.join()
        assert log_counts() is not None
    assert log_counts() is None
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [line.get("level") for line in lines] == ["WARNING", "ERROR", None, None, "ERROR"]
    assert lines[0]["message"] == "a text\nof two lines, ?"
    assert lines[0]["logger"] == "gateway.storages"
    assert abs(lines[0]["time_ms"] / 1000 - time.time()) < 60
    assert "ValueError: invalid literal" in lines[1]["traceback"]
    assert [line["request"] for line in lines[2:4]] == ["1", "2"]
    assert lines[4]["message"] == "thread broken ended by an exception"
    assert "ZeroDivisionError" in lines[4]["traceback"]


@pytest.mark.processes
@pytest.mark.parametrize("workers", [2, *at_night(1)])
def test_a_reader_of_the_log_that_stalls_stops_neither_requests_nor_the_end(tmp_path, workers):
    gateway = Gateway(tmp_path, drainSeconds=1)
    command = gateway_command("serve", "-c", gateway.path, "--workers", str(workers))
    with full_pipe() as (_, descriptor):
        process = gateway.process = subprocess.Popen(
            command,
            env=package_environment(),
            cwd=PACKAGE,
            stdout=descriptor,
            stderr=descriptor,
        )
        try:
            gateway.log = lambda: "its log is not read"
            gateway.until(lambda: gateway.get("/readyz")[0] == 200)
            # More than the queue holds, and than the queues of two workers.
            path = "/" + "p" * MAX_PATH_BYTES
            for _ in range(workers * (QUEUE_BYTES // len(path) + 20)):
                gateway.get(path)
            assert gateway.get("/healthz")[:2] == (200, b"ok\n")
            gateway.until(lambda: lost_lines(gateway) > 0)
        finally:
            process.terminate()
            try:
                assert process.wait(30) == 0
            finally:
                process.kill()


def lost_lines(gateway):
    page = gateway.admin("GET", "/metrics")[1].decode()
    families = text_string_to_metric_families(page)
    samples = [sample for family in families for sample in family.samples if sample.name == LOST]
    return sum(sample.value for sample in samples if sample.labels["outcome"] == "lost")
