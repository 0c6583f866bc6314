"""Shares of the database in running servers, beside those of the configuration."""

import asyncio
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.gateway_process import running_gateway
from support.live_process import Live, base, running_process
from support.waiting import everywhere, wait_until
from tables.small_tables import lay_out

from gateway.__main__ import main
from gateway.catalog.stored_shares import LeftOut, StoredShare, StoredTable
from gateway.config import load
from gateway.governance import share_edits
from gateway.governance.audited_database import open_share_database
from gateway.governance.share_store import ShareDatabase
from gateway.times import epoch_ms


@pytest.fixture
def small(tmp_path: Path) -> Path:
    lay_out(tmp_path / "small")
    return tmp_path / "small"


def opened(file: Path) -> ShareDatabase:
    return open_share_database(load(file, needs_readers=False), "test", now_ms=epoch_ms)


def add(file: Path, share: str, table: str, location: Path) -> None:
    with closing(opened(file)) as database:
        if share not in database.all():
            database.add(StoredShare(share))
        new = StoredTable(table, str(location), {"historyShared": True})
        database.edit(share, lambda found: share_edits.with_table(found, "d", new))


async def names(live: Live) -> list[str]:
    return [item["name"] for item in await live.items("/shares")]


async def test_many_entries_that_stay_left_out_are_compared_at_once(
    tmp_path: Path, small: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def left_out(names: range) -> tuple[LeftOut, ...]:
        return tuple(LeftOut(f"stored.d.table{name}", "it is not below an allowed root") for name in names)

    async with running_process(tmp_path / "gateway.yaml", base(small)) as live:
        live.process._report_left_out(left_out(range(20_000)))
        caplog.clear()
        started = time.thread_time()
        live.process._report_left_out(left_out(range(20_001)))
        assert time.thread_time() - started < 1
    assert [record.args for record in caplog.records] == [
        ("'stored.d.table20000'", "it is not below an allowed root")
    ]


async def test_a_stored_share_is_served_within_a_second_of_its_change(tmp_path: Path, small: Path) -> None:
    file = tmp_path / "gateway.yaml"
    settings = base(small)
    file.write_text(yaml.safe_dump(settings))
    await asyncio.to_thread(add, file, "stored", "t", small / "whole")
    async with running_process(file, settings) as live:
        assert await names(live) == ["s", "other", "stored"]
        path = "/delta-sharing/shares/stored/schemas/d/tables/t/query"
        assert (await live.answer("POST", path, json={})).status == 200
        await asyncio.to_thread(add, file, "late", "t", small / "whole")
        async with asyncio.timeout(5):
            while "late" not in await names(live):
                await asyncio.sleep(0.02)
        # A reload loses nothing, and a share of the file wins over a stored one.
        assert await live.change("preSignedUrlTimeoutSeconds", 1000) is None
        assert await names(live) == ["s", "other", "late", "stored"]
        live.settings["shares"].append({"name": "STORED", "comment": "of the file"})
        live.write()
        assert await live.process.reloader.reload() is None
        assert await names(live) == ["s", "other", "STORED", "late"]
        left_out = live.process.metrics.registry.get_sample_value
        assert left_out("delta_gateway_stored_entries_left_out") == 1

        def remove() -> None:
            with closing(opened(file)) as database:
                database.remove("late")

        await asyncio.to_thread(remove)
        async with asyncio.timeout(5):
            while await names(live) != ["s", "other", "STORED"]:
                await asyncio.sleep(0.02)


async def test_stored_shares_end_with_an_outage_also_for_who_reads_every_share(
    tmp_path: Path, small: Path
) -> None:
    file = tmp_path / "gateway.yaml"
    settings = base(small)
    settings["gateway"]["database"] = {"url": "sqlite:///recipients.db", "maxOutageSeconds": 3600}
    file.write_text(yaml.safe_dump(settings))
    await asyncio.to_thread(add, file, "stored", "t", small / "whole")
    stored = "/delta-sharing/shares/stored/schemas/d/tables/t/version"
    of_file = "/delta-sharing/shares/s/schemas/d/tables/t/version"
    async with running_process(file, settings) as live:
        assert [await live.status(path) for path in (stored, of_file)] == [200, 200]
        hidden = (tmp_path / "recipients.db").rename(tmp_path / "hidden.db")
        store = live.process.credential_store
        async with asyncio.timeout(5):
            while not store._failures.reason:
                await asyncio.sleep(0.02)
        assert await names(live) == ["s", "other", "stored"]
        store._read_at_seconds -= 3600
        async with asyncio.timeout(5):
            while await live.status(stored) == 200:
                await asyncio.sleep(0.02)
        assert [await live.status(path) for path in (stored, of_file)] == [503, 200]
        assert await live.status() == 503
        # A reload brings nothing back.
        assert await live.change("preSignedUrlTimeoutSeconds", 1000) is None
        assert [await live.status(path) for path in (stored, of_file)] == [503, 200]
        hidden.rename(tmp_path / "recipients.db")
        async with asyncio.timeout(5):
            while await live.status() == 503:
                await asyncio.sleep(0.02)
        assert await names(live) == ["s", "other", "stored"]
        assert await live.status(stored) == 200


async def test_nothing_that_is_stored_keeps_a_server_from_starting(
    tmp_path: Path, small: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "gateway.yaml"
    settings = base(small)
    file.write_text(yaml.safe_dump(settings))
    for table in ("fine", "broken", "worse"):
        await asyncio.to_thread(add, file, "stored", table, small / "whole")
    with closing(sqlite3.connect(tmp_path / "recipients.db")) as database:
        database.execute("UPDATE tables SET location = 'rubbish' WHERE key = 'broken'")
        database.execute("UPDATE tables SET options = '{\"startVersion\": -1}' WHERE key = 'worse'")
        database.commit()
    async with running_process(file, settings) as live:
        items = await live.items("/shares/stored/all-tables")
        assert [item["name"] for item in items] == ["fine"]
        value = live.process.metrics.registry.get_sample_value("delta_gateway_stored_entries_left_out")
        assert value == 2
    assert "'stored.d.broken' is stored and not shared" in caplog.text
    assert "'stored.d.worse' is stored and not shared" in caplog.text


async def test_changes_during_reloads_are_all_served(tmp_path: Path, small: Path) -> None:
    file = tmp_path / "gateway.yaml"
    settings = base(small)
    file.write_text(yaml.safe_dump(settings))
    await asyncio.to_thread(add, file, "stored", "t", small / "whole")
    # The changes do not read the file, which is rewritten beside them.
    copy = tmp_path / "copy.yaml"
    copy.write_text(file.read_text())
    async with running_process(file, settings) as live:
        for number in range(5):
            await asyncio.gather(
                asyncio.to_thread(add, copy, f"k{number}", "t", small / "whole"),
                live.change("preSignedUrlTimeoutSeconds", 1000 + number),
            )
            async with asyncio.timeout(20):
                while f"k{number}" not in await names(live):
                    await asyncio.sleep(0.02)
            assert live.state.config.pre_signed_url_timeout_seconds == 1000 + number


@pytest.mark.processes
def test_all_workers_serve_a_stored_share(tmp_path: Path, small: Path) -> None:
    file = tmp_path / "gateway.yaml"
    shutil.copytree(small / "whole", tmp_path / "copy")
    with running_gateway(tmp_path, [{"name": "s"}], workers=2) as gateway:

        def listed() -> list[str]:
            items: list[Any] = gateway.request("GET", "/shares").json["items"]
            return [item["name"] for item in items]

        wait_until(everywhere(listed, ["s"]))
        add(file, "stored", "t", tmp_path / "copy")
        wait_until(everywhere(listed, ["s", "stored"]))
        assert gateway.query("stored.d.t").status == 200


def test_check_opens_the_tables_of_stored_shares_and_names_what_is_left_out(
    tmp_path: Path, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gateway.yaml"
    settings = base(small)
    file.write_text(yaml.safe_dump(settings))
    for table in ("fine", "broken"):
        add(file, "stored", table, small / "whole")
    with closing(sqlite3.connect(tmp_path / "recipients.db")) as database:
        database.execute("UPDATE tables SET location = 'rubbish' WHERE key = 'broken'")
        database.commit()
    assert main(["check", "-c", str(file)]) == 1
    printed = capsys.readouterr().out
    assert "stored.d.fine" in printed
    assert "2 of 2 tables can be read" in printed
    assert "'stored.d.broken' is stored and not shared: " in printed
