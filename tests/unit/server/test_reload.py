"""Reloads of the configuration: complete or without effect."""

import asyncio
import json
import logging
import os
import signal
import threading
from itertools import count

import pytest
from support.waiting import until

from gateway.config import load
from gateway.config.file_stamps import stamp
from gateway.server.reload import Reloader


@pytest.fixture
def watched(tmp_path):
    """A file, what was taken from it so far, and its reloader."""
    file = tmp_path / "config.json"
    file.write_text('{"n": 1}')
    taken, outcomes = [], []

    async def apply(value):
        taken.append(value)

    reloader = Reloader(
        lambda: [file],
        lambda: json.loads(file.read_text()),
        apply,
        outcome=lambda refused: outcomes.append(refused is None),
        poll_seconds=0.02,
    )
    return file, taken, outcomes, reloader


def put(file, text):
    """Replace a file in one step: a look between two would find an empty one."""
    half = file.with_suffix(".half")
    half.write_text(text)
    half.replace(file)


async def test_a_changed_file_is_taken_once(watched):
    file, taken, outcomes, reloader = watched
    async with reloader.watching():
        put(file, '{"n": 22}')
        await until(lambda: taken)
        await asyncio.sleep(0.1)
    assert (taken, outcomes) == ([{"n": 22}], [True])


@pytest.mark.parametrize("text", ['{"n": 22}', '{"n": '])
async def test_a_change_that_is_read_by_request_is_not_read_again_by_itself(watched, text):
    file, _, outcomes, reloader = watched
    noticed = []
    reloader.noticed = lambda cause, _refused: noticed.append(cause)
    async with reloader.watching():
        put(file, text)
        refused = await reloader.reload()
        await asyncio.sleep(0.1)
        assert (outcomes, noticed) == ([refused is None], [])
        put(file, '{"n": 333}')
        await until(lambda: noticed)
    assert (outcomes, noticed) == ([refused is None, True], ["file"])


async def test_a_file_that_is_still_being_written_is_not_read(watched, monkeypatch):
    _, taken, outcomes, reloader = watched
    looks = count()
    monkeypatch.setattr("gateway.server.reload.stamp", lambda _paths: (min(next(looks), 9),))
    async with reloader.watching():
        await until(lambda: taken)
    assert next(looks) > 10
    assert outcomes == [True]


async def test_a_look_that_fails_ends_no_watch_and_loses_no_request(watched, monkeypatch, caplog):
    file, taken, _, reloader = watched
    failures = 2

    def fails(paths):
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError("can't start new thread")
        return stamp(paths)

    async with reloader.watching():
        monkeypatch.setattr("gateway.server.reload.stamp", fails)
        reloader.ask()
        await until(lambda: taken == [{"n": 1}])
        failures = 1
        put(file, '{"n": 22}')
        await until(lambda: taken == [{"n": 1}, {"n": 22}])
    assert "can't start new thread" in caplog.text


async def test_a_change_before_the_watch_is_seen(watched):
    file, taken, outcomes, reloader = watched
    before = stamp([file])
    async with reloader.watching(before):
        await asyncio.sleep(0.1)
        assert (taken, outcomes) == ([], [])
    file.write_text('{"n": 22}')
    async with reloader.watching(before):
        await until(lambda: taken)
        await asyncio.sleep(0.1)
    assert (taken, outcomes) == ([{"n": 22}], [True])


async def test_an_untouched_file_is_left_alone(watched):
    _, taken, outcomes, reloader = watched
    async with reloader.watching():
        await asyncio.sleep(0.1)
    assert (taken, outcomes) == ([], [])


async def test_an_invalid_file_keeps_the_old_configuration_with_one_log_line_until_a_valid_one(
    watched, caplog
):
    file, taken, outcomes, reloader = watched
    async with reloader.watching():
        with caplog.at_level(logging.ERROR, "gateway.reload"):
            put(file, '{"n": ')
            await until(lambda: outcomes)
            await asyncio.sleep(0.1)
        assert (taken, outcomes) == ([], [False])
        assert [record.message.partition(":")[0] for record in caplog.records] == [
            "the changed configuration is refused, the current one stays in force"
        ]
        put(file, '{"n": 333}')
        await until(lambda: taken)
    assert taken == [{"n": 333}]


async def test_a_secret_that_comes_after_the_file_that_names_it_is_read(watched, tmp_path, caplog):
    file, taken, outcomes, _ = watched
    secret = tmp_path / "secret"

    async def apply(config):
        taken.append(config.authorization.bearer_token.reveal())

    reloader = Reloader(
        lambda: [file],
        lambda: load(file),
        apply,
        outcome=lambda refused: outcomes.append(refused is None),
        poll_seconds=0.02,
    )
    async with reloader.watching():
        put(file, "version: 1\nauthorization: {bearerTokenFile: secret}\n")
        await until(lambda: outcomes)
        await asyncio.sleep(0.2)
        secret.touch()
        await until(lambda: len(outcomes) == 2)
        put(secret, "of the recipient")
        await until(lambda: taken)
    assert (taken, outcomes) == (["of the recipient"], [False, False, True])
    assert [record.levelname for record in caplog.records].count("ERROR") == 2


async def test_a_missing_file_leaves_the_old_one(watched):
    file, taken, outcomes, reloader = watched
    async with reloader.watching():
        file.unlink()
        await until(lambda: outcomes)
    assert (taken, outcomes) == ([], [False])


async def test_a_file_swapped_by_a_link_is_seen(watched, tmp_path):
    file, taken, _, reloader = watched
    other = tmp_path / "other.json"
    other.write_text('{"n": 1}')
    stat = file.stat()
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    async with reloader.watching():
        other.replace(file)
        await until(lambda: taken)
    assert taken == [{"n": 1}]


async def test_a_copy_of_the_same_length_and_time_is_seen(watched):
    file, taken, _, reloader = watched
    async with reloader.watching():
        stat = file.stat()
        # As `cp --preserve` does onto a file that is there.
        file.write_text('{"n": 2}')
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        await until(lambda: taken)
    assert taken == [{"n": 2}]


async def test_a_file_whose_mount_hangs_is_reported_and_does_not_hold_the_event_loop(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "gateway.reload")
    monkeypatch.setattr("gateway.server.reload.PATIENCE_SECONDS", 0.05)
    hangs, requested = threading.Event(), threading.Event()

    class OnAHangingMount:
        def stat(self):
            requested.set()
            hangs.wait(20)
            raise FileNotFoundError

    paths = []
    reloader = Reloader(lambda: paths, lambda: 1, None, poll_seconds=0.01)
    async with reloader.watching():
        paths.append(OnAHangingMount())
        await until(requested.is_set)
        await until(lambda: caplog.messages)
        assert not hangs.is_set()
        hangs.set()
        paths.clear()
        await until(lambda: len(caplog.messages) > 1)
    assert caplog.messages == [
        "the configuration was not looked at, and will be: no answer within 0.05 s",
        "the configuration can be looked at again",
    ]


async def test_a_file_that_hangs_while_it_is_read_is_reported(monkeypatch, caplog, tmp_path):
    caplog.set_level(logging.INFO, "gateway.reload")
    monkeypatch.setattr("gateway.server.reload.PATIENCE_SECONDS", 0.05)
    hangs = threading.Event()

    async def apply(_value):
        """Nothing is applied."""

    reloader = Reloader(lambda: [tmp_path / "file"], lambda: hangs.wait(10), apply, poll_seconds=0.01)
    async with reloader.watching():
        reloader.ask()
        await until(lambda: caplog.messages)
        hangs.set()
        await until(lambda: len(caplog.messages) > 2)
    assert caplog.messages == [
        "the configuration was not looked at, and will be: no answer within 0.05 s",
        "the configuration was reloaded",
        "the configuration can be looked at again",
    ]


async def test_sighup_reads_again_without_any_change(watched):
    _, taken, _, reloader = watched
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reloader.ask)
    try:
        async with reloader.watching():
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: taken)
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
    assert taken == [{"n": 1}]


async def test_a_configuration_that_cannot_be_applied_keeps_the_old_one(tmp_path):
    file = tmp_path / "config"
    file.write_text("1")

    async def apply(_value):
        raise RuntimeError("no")

    outcomes = []
    reloader = Reloader(
        lambda: [file],
        file.read_text,
        apply,
        outcome=lambda refused: outcomes.append(refused is None),
        poll_seconds=0.02,
    )
    assert await reloader.reload() == "no"
    assert outcomes == [False]
