"""Discovery in a running server: tables come and go, over reloads and in several workers."""

import asyncio
import errno
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from support.gateway_app import PREFIX
from support.gateway_process import running_gateway
from support.http_service import Response
from support.live_process import Live, base, running_process
from support.processes import children
from support.unity_catalog import running_catalog
from support.waiting import everywhere, wait_until
from tables.small_tables import lay_out

from gateway.__main__ import main
from gateway.catalog.discovered import Discovered, FoundTable
from gateway.catalog.stored_shares import StoredShare, StoredTable
from gateway.config import Location, load
from gateway.discovery import searches
from gateway.discovery.directories import THREAD
from gateway.governance import share_edits
from gateway.governance.audited_database import open_share_database
from gateway.server import discovery
from gateway.server.discovery import POLL_SECONDS, DiscoveredFile, Discoverer
from gateway.telemetry.memory_file import memory_file
from gateway.telemetry.metrics import DiscoveryMetrics
from gateway.times import epoch_ms


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "POLL_SECONDS", 0.02)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Paths of which nothing can be said: an error other than the absence of a file, or a refusal."""
    paths: set[str] = set()
    stat = os.stat

    def stat_or_fail(path: Any, *arguments: Any, **keys: Any) -> os.stat_result:
        if path in paths:
            raise OSError(errno.EIO, "Input/output error")
        return stat(path, *arguments, **keys)

    monkeypatch.setattr(os, "stat", stat_or_fail)
    return paths


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Three tables in two schemas, one of them with files."""
    root = tmp_path / "warehouse"
    lay_out(tmp_path / "small")
    shutil.copytree(tmp_path / "small/whole", root / "d/t")
    for name in ("d/u", "e/t"):
        (root / name / "_delta_log").mkdir(parents=True)
    return root


def settings(root: Path, **keys: Any) -> dict[str, Any]:
    found = base(root)
    discover = {"discover": f"{root}/{{schema}}/{{table}}/", "everySeconds": 1, "historyShared": True}
    found["shares"] = [{"name": "s", "tables": discover | keys}]
    return found


class Searched:
    """A process that discovers, and what it has found."""

    def __init__(self, live: Live, discoverer: Discoverer, metrics: DiscoveryMetrics) -> None:
        self.live, self.discoverer, self.metrics = live, discoverer, metrics

    async def names(self, share: str = "s") -> list[str] | None:
        """The names of all tables; None where they are not known."""
        answer = await self.live.answer("GET", f"{PREFIX}/shares/{share}/all-tables")
        if answer.status == 503:
            return None
        return [f"{item['schema']}.{item['name']}" for item in (await answer.json())["items"]]

    async def until(self, expected: list[str] | None) -> None:
        async with asyncio.timeout(20):
            while await self.names() != expected:
                await asyncio.sleep(0.02)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"delta_gateway_{name}", labels)

    @property
    def registry(self) -> CollectorRegistry:
        return self.live.process.metrics.registry


def discoverer_of(process: Any) -> Discoverer:
    return Discoverer(
        lambda: process.config,
        lambda: process.sources,
        lambda: process.pipeline.state.tables.storages,
        process.take_discovered,
        DiscoveryMetrics(process.metrics.registry),
    )


@asynccontextmanager
async def searching(file: Path, root: Path, **keys: Any) -> AsyncIterator[Searched]:
    async with running_process(file, settings(root, **keys)) as live:
        discoverer = discoverer_of(live.process)
        async with discoverer.following():
            yield Searched(live, discoverer, discoverer._metrics)


async def test_tables_come_and_go(tmp_path: Path, warehouse: Path) -> None:
    async with searching(tmp_path / "gateway.yaml", warehouse) as searched:
        assert await searched.names() == ["d.t", "d.u", "e.t"]
        assert (await searched.live.query())[0] == 200
        (warehouse / "d/new/_delta_log").mkdir(parents=True)
        await searched.until(["d.new", "d.t", "d.u", "e.t"])
        tables = searched.live.state.tables
        assert len(tables._open) == 1
        shutil.rmtree(warehouse / "d/t")
        await searched.until(["d.new", "d.u", "e.t"])
        assert (await searched.live.query())[0] == 404
        # Nothing of a withdrawn table is kept.
        assert (len(tables._open), len(tables._natives), len(tables._refreshes)) == (0, 0, 0)
        assert searched.value("discovered_tables", source="s") == 3
        assert searched.value("discovery_searches_total", outcome="complete") >= 3
        assert searched.value("discovery_incomplete", source="s") == 0


async def test_a_dot_in_the_name_of_a_found_table_is_warned_of_once(
    tmp_path: Path, warehouse: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (warehouse / "d/a.b/_delta_log").mkdir(parents=True)
    async with searching(tmp_path / "gateway.yaml", warehouse) as searched:
        (warehouse / "d/new/_delta_log").mkdir(parents=True)
        await searched.until(["d.a.b", "d.new", "d.t", "d.u", "e.t"])
    warned = [text for text in caplog.messages if "dot" in text]
    (warning,) = warned
    assert warning.startswith("1 found names in s contain a dot, such as 'a.b'")


async def test_a_storage_that_fails_keeps_what_was_known_and_is_counted(
    tmp_path: Path, warehouse: Path
) -> None:
    async with searching(tmp_path / "gateway.yaml", warehouse, keepSeconds=4) as searched:
        shutil.move(warehouse, tmp_path / "away")
        async with asyncio.timeout(20):
            while not searched.value("discovery_incomplete", source="s"):
                await asyncio.sleep(0.02)
        assert await searched.names() == ["d.t", "d.u", "e.t"]
        assert searched.value("discovery_searches_total", outcome="failed") == 1
        await searched.until(None)
        shutil.move(tmp_path / "away", warehouse)
        await searched.until(["d.t", "d.u", "e.t"])


async def test_a_place_that_no_search_has_reached_is_searched_again_soon(
    tmp_path: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "RETRY_SECONDS", 0.05)
    shutil.move(warehouse, tmp_path / "away")
    async with searching(tmp_path / "gateway.yaml", warehouse, everySeconds=3600) as searched:
        assert await searched.names() is None
        shutil.move(tmp_path / "away", warehouse)
        await searched.until(["d.t", "d.u", "e.t"])
        searches = searched.value("discovery_searches_total", outcome="complete")
        (warehouse / "d/new/_delta_log").mkdir(parents=True)
        await asyncio.sleep(0.5)
        assert searched.value("discovery_searches_total", outcome="complete") == searches == 1


async def test_a_list_from_which_a_fault_has_kept_a_part_looks_at_no_time_whole(
    tmp_path: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch, failing: set[str]
) -> None:
    monkeypatch.setattr(discovery, "RETRY_SECONDS", 0.05)
    failing.add(f"{warehouse}/e/t/_delta_log")
    async with searching(tmp_path / "gateway.yaml", warehouse, everySeconds=3600) as searched:
        assert await searched.names() is None
        assert (await searched.live.query())[0] == 200
        assert await searched.live.status(f"{PREFIX}/shares/s/schemas/e/tables/t/version") == 503
        assert searched.value("discovery_incomplete", source="s") == 1
        failing.clear()
        await searched.until(["d.t", "d.u", "e.t"])
        assert searched.value("discovery_incomplete", source="s") == 0


async def test_after_a_long_outage_a_part_of_a_place_is_not_shown_as_the_whole(
    tmp_path: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch, failing: set[str]
) -> None:
    monkeypatch.setattr(discovery, "RETRY_SECONDS", 0.05)
    async with searching(tmp_path / "gateway.yaml", warehouse, keepSeconds=0) as searched:
        assert await searched.names() == ["d.t", "d.u", "e.t"]
        shutil.move(warehouse, tmp_path / "away")
        await searched.until(None)
        failing.add(f"{warehouse}/e/t/_delta_log")
        shutil.move(tmp_path / "away", warehouse)
        async with asyncio.timeout(20):
            while (await searched.live.query())[0] != 200:
                await asyncio.sleep(0.02)
        assert await searched.names() is None
        failing.clear()
        await searched.until(["d.t", "d.u", "e.t"])


async def test_the_tables_of_a_catalog_come_and_go(tmp_path: Path, warehouse: Path) -> None:
    with running_catalog() as catalog:
        catalog.add("d", "t", f"file://{warehouse}/d/t")
        catalog.add("d", "elsewhere", f"file://{tmp_path}/small/whole")
        section = {
            "url": catalog.url,
            "catalog": "main",
            "within": [str(warehouse)],
            "allowPrivateAddresses": True,
        }
        keys = {"discover": None, "unityCatalog": section, "keepSeconds": 4}
        async with searching(tmp_path / "gateway.yaml", warehouse, **keys) as searched:
            assert await searched.names() == ["d.t"]
            assert (await searched.live.query())[0] == 200
            assert searched.value("discovery_refused_directories", source="s") == 1
            catalog.add("new", "t", f"file://{warehouse}/e/t")
            await searched.until(["d.t", "new.t"])
            catalog.drop("d", "t")
            await searched.until(["new.t"])
            assert (await searched.live.query())[0] == 404
            catalog.failing["schemas", ""] = Response(500)
            async with asyncio.timeout(20):
                while not searched.value("discovery_incomplete", source="s"):
                    await asyncio.sleep(0.02)
            assert await searched.names() == ["new.t"]
            await searched.until(None)
            catalog.failing.clear()
            await searched.until(["new.t"])
            # Nothing that was found outside of the new locations stays until the next search.
            catalog.failing["schemas", ""] = Response(500)
            within = [f"{warehouse}/d"]
            assert await searched.live.change("shares[].tables.unityCatalog.within", within) is None
            await searched.until(None)
            catalog.failing.clear()
            # That the catalog has none within them is an answer.
            await searched.until([])


async def test_a_reload_loses_nothing_and_searches_what_is_new(tmp_path: Path, warehouse: Path) -> None:
    async with searching(tmp_path / "gateway.yaml", warehouse, everySeconds=3600) as searched:
        live = searched.live
        before = live.state
        assert await live.change("preSignedUrlTimeoutSeconds", 1000) is None
        assert live.state is not before
        assert await searched.names() == ["d.t", "d.u", "e.t"]
        (warehouse / "d/new/_delta_log").mkdir(parents=True)
        assert await live.change("preSignedUrlTimeoutSeconds", 1001) is None
        await searched.until(["d.new", "d.t", "d.u", "e.t"])
        other = tmp_path / "other"
        (other / "x/y/_delta_log").mkdir(parents=True)
        assert await live.change("shares[].tables.discover", f"{other}/{{schema}}/{{table}}") is None
        await searched.until(["x.y"])
        assert await live.change("shares[].tables", None) is None
        await searched.until([])
        async with asyncio.timeout(20):
            while searched.value("discovered_tables", source="s") is not None:
                await asyncio.sleep(0.02)


async def test_tables_below_a_lower_depth_are_withdrawn_by_the_reload(
    tmp_path: Path, warehouse: Path
) -> None:
    """They are not missing: nobody has to wait for a second search to be sure."""
    (warehouse / "f/x/y/_delta_log").mkdir(parents=True)
    file = tmp_path / "gateway.yaml"
    async with searching(file, warehouse, everySeconds=3600, maxDepth=1) as searched:
        await searched.until(["d.t", "d.u", "e.t", "f.x_y"])
        assert await searched.live.change("shares[].tables.maxDepth", 0) is None
        await searched.until(["d.t", "d.u", "e.t"])


async def test_a_reload_during_a_discovery_serves_both(tmp_path: Path, warehouse: Path) -> None:
    async with searching(tmp_path / "gateway.yaml", warehouse, everySeconds=3600) as searched:
        live, process = searched.live, searched.live.process
        key = next(iter(process._discovered.tables))
        table = FoundTable("d", "t", Location("file", "", str(warehouse / "d/t")))
        for number in range(20):
            found = Discovered({key: (table,) * (number % 2)})
            await asyncio.gather(
                process.take_discovered(found), live.change("preSignedUrlTimeoutSeconds", 1000 + number)
            )
            assert await searched.names() == ["d.t"] * (number % 2)
            assert live.state.config.pre_signed_url_timeout_seconds == 1000 + number


async def test_what_is_found_is_published_again_after_an_error(
    tmp_path: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "RETRY_SECONDS", 0.2)
    async with running_process(tmp_path / "gateway.yaml", settings(warehouse)) as live:
        process, errors = live.process, [OSError("no space"), OSError("no space")]

        async def take(discovered: Discovered) -> None:
            if errors:
                raise errors.pop()
            await process.take_discovered(discovered)

        discoverer = Discoverer(
            lambda: process.config,
            lambda: process.sources,
            lambda: process.pipeline.state.tables.storages,
            take,
            DiscoveryMetrics(process.metrics.registry),
        )
        async with discoverer.following():
            await Searched(live, discoverer, discoverer._metrics).until(["d.t", "d.u", "e.t"])
            assert errors == []


async def test_a_search_that_hangs_delays_neither_the_start_nor_other_searches(
    tmp_path: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = asyncio.Event()
    loop = asyncio.get_running_loop()

    def search(*arguments: Any) -> Any:
        asyncio.run_coroutine_threadsafe(ends.wait(), loop).result()
        return real(*arguments)

    real = searches.search
    monkeypatch.setattr(searches, "search", search)
    async with running_process(tmp_path / "gateway.yaml", settings(warehouse)) as live:
        discoverer = discoverer_of(live.process)
        async with discoverer.following(start_seconds=0.1):
            searched = Searched(live, discoverer, discoverer._metrics)
            assert await searched.names() is None
            paths = ("", "/s", "/s/schemas", "/s/schemas/d/tables", "/s/schemas/d/tables/t/version", "/t")
            statuses = [await live.status(f"{PREFIX}/shares{path}") for path in paths]
            assert statuses == [200, 200, 503, 503, 503, 404]
            ends.set()
            await searched.until(["d.t", "d.u", "e.t"])


async def test_searches_that_hang_end_and_stop_no_other(
    tmp_path: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, ended = threading.Event(), threading.Event()

    def search(store: Any, source: Any, known: Any) -> Any:
        if source.share != "s" and hangs.is_set():
            ended.wait(30)
        return real(store, source, known)

    def threads() -> int:
        return sum(thread.name == THREAD for thread in threading.enumerate())

    real = searches.search
    monkeypatch.setattr(searches, "search", search)
    monkeypatch.setattr(discovery, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(discovery, "SLOT_SECONDS", 0.1)
    changed = settings(warehouse)
    count = discovery.CONCURRENT_SEARCHES + 4
    changed["shares"] += [
        {"name": f"h{number}", "tables": changed["shares"][0]["tables"] | {"keepSeconds": 7}}
        for number in range(count)
    ]
    async with running_process(tmp_path / "gateway.yaml", changed) as live:
        process = live.process
        metrics = DiscoveryMetrics(process.metrics.registry)
        storages = lambda: process.pipeline.state.tables.storages  # noqa: E731 - as the server gives it
        discoverer = Discoverer(
            lambda: process.config, lambda: process.sources, storages, process.take_discovered, metrics
        )
        async with discoverer.following():
            searched = Searched(live, discoverer, metrics)
            assert len(await live.items("/shares/h0/all-tables")) == 3
            hangs.set()
            (warehouse / "d/new/_delta_log").mkdir(parents=True)
            await searched.until(["d.new", "d.t", "d.u", "e.t"])
            async with asyncio.timeout(20):
                while (
                    sum(searched.value("discovery_incomplete", source=f"h{n}") or 0 for n in range(count))
                    < count
                ):
                    await asyncio.sleep(0.02)
            assert len(await live.items("/shares/h0/all-tables")) == 3, "known tables stay for a time"
            (warehouse / "d/more/_delta_log").mkdir(parents=True)
            await searched.until(["d.more", "d.new", "d.t", "d.u", "e.t"])
            async with asyncio.timeout(20):
                while await searched.names("h0") is not None:
                    await asyncio.sleep(0.05)
            # Each place has one thread that hangs, and the one that searches may have another.
            assert count <= threads() <= count + 2
            hangs.clear()
            ended.set()
            async with asyncio.timeout(20):
                while len(await searched.names("h0") or ()) < 5:
                    await asyncio.sleep(0.05)
            assert searched.value("discovery_incomplete", source="h0") == 0


async def test_few_searches_run_at_once_also_where_all_are_slow(
    tmp_path: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, searching, most = threading.Event(), list[str](), list[int]()

    def search(store: Any, source: Any, known: Any) -> Any:
        searching.append(source.share)
        most.append(len(searching))
        try:
            assert ends.wait(30)
            return real(store, source, known)
        finally:
            searching.remove(source.share)

    real = searches.search
    monkeypatch.setattr(searches, "search", search)
    monkeypatch.setattr(discovery, "SLOT_SECONDS", 0.01)
    monkeypatch.setattr(discovery, "RUNNING_SEARCHES", 3)
    changed = settings(warehouse)
    changed["shares"] += [{"name": f"x{n}", "tables": changed["shares"][0]["tables"]} for n in range(7)]
    async with running_process(tmp_path / "gateway.yaml", changed) as live:
        discoverer = discoverer_of(live.process)
        async with discoverer.following(start_seconds=0.5):
            searched = Searched(live, discoverer, discoverer._metrics)
            assert len(searching) == 3
            ends.set()
            for share in ("s", *(f"x{n}" for n in range(7))):
                async with asyncio.timeout(20):
                    while len(await searched.names(share) or ()) != 3:
                        await asyncio.sleep(0.02)
    assert max(most) == 3


async def test_limits_and_calls_are_counted(tmp_path: Path, warehouse: Path) -> None:
    async with searching(tmp_path / "gateway.yaml", warehouse, maxTables=2) as searched:
        assert searched.value("discovery_limited", source="s", limit="tables") == 1
        assert searched.value("discovery_limited", source="s", limit="calls") == 0
        assert searched.value("discovery_calls", source="s") == 3
        assert await searched.live.change("shares[].tables.maxTables", 3) is None
        async with asyncio.timeout(20):
            while searched.value("discovery_limited", source="s", limit="tables"):
                await asyncio.sleep(0.02)
        assert await searched.live.change("shares[].tables.maxCalls", 1) is None
        async with asyncio.timeout(20):
            while not searched.value("discovery_limited", source="s", limit="calls"):
                await asyncio.sleep(0.02)
        assert await searched.live.change("shares[].tables", None) is None
        async with asyncio.timeout(20):
            while searched.value("discovery_limited", source="s", limit="calls") is not None:
                await asyncio.sleep(0.02)


def test_the_file_of_a_supervisor_has_all_tables_of_all_kinds() -> None:
    locations = ["s3a://b/ü/t", "abfss://lake@acct.dfs.core.windows.net/d/t", "gs://bucket/d/t", "/d/t"]
    tables = {
        ("s", str(number), "template", "root"): (FoundTable("d", "ü", Location.parse(location)),)
        for number, location in enumerate(locations)
    }
    file = DiscoveredFile(memory_file("discovered"))
    assert file._read()[1] == Discovered()
    for partial in (frozenset[Any](), frozenset(list(tables)[:2])):
        asyncio.run(file.write(Discovered(tables, partial)))
        assert file._read()[1] == Discovered(tables, partial)
    asyncio.run(file.write(Discovered()))
    assert file._read()[1] == Discovered()
    os.close(file.descriptor)


async def test_a_list_that_is_half_written_is_read_when_it_is_whole() -> None:
    supervisor = DiscoveredFile(memory_file("discovered"))
    worker, taken = DiscoveredFile(supervisor.descriptor), asyncio.Queue[Discovered]()
    one, many = (
        Discovered({("s", "s", "template", "root"): tuple(found(number) for number in range(count))})
        for count in (1, 9)
    )
    await supervisor.write(one)
    async with worker.following(taken.put):
        assert await taken.get() == one
        await supervisor.write(many)
        whole = os.pread(supervisor.descriptor, 1 << 20, 0)
        assert await taken.get() == many
        await supervisor.write(one)
        assert await taken.get() == one
        os.pwrite(supervisor.descriptor, whole[:100], 0)
        await asyncio.sleep(2 * POLL_SECONDS)
        assert taken.empty()
        os.pwrite(supervisor.descriptor, whole, 0)
        assert await taken.get() == many
    os.close(supervisor.descriptor)


def found(number: int) -> FoundTable:
    return FoundTable("d", f"t{number}", Location.parse(f"/d/t{number}"))


@pytest.mark.processes
def test_all_workers_have_the_tables_within_seconds(tmp_path: Path, warehouse: Path) -> None:
    shares = settings(warehouse)["shares"]

    def temporary() -> set[Path]:
        return {*Path(tempfile.gettempdir()).glob("delta-gateway-*")}

    before = temporary()
    with running_gateway(tmp_path, shares, workers=2) as gateway:

        def names() -> list[str]:
            items = gateway.request("GET", "/shares/s/all-tables").json.get("items", [])
            return [f"{item['schema']}.{item['name']}" for item in items]

        wait_until(everywhere(names, ["d.t", "d.u", "e.t"]))
        (warehouse / "d/new/_delta_log").mkdir(parents=True)
        wait_until(everywhere(names, ["d.new", "d.t", "d.u", "e.t"]))
        shutil.rmtree(warehouse / "e")
        wait_until(everywhere(names, ["d.new", "d.t", "d.u"]))
        # As a service does that deletes old files.
        for directory in temporary() - before:
            shutil.rmtree(directory)
        victims = children(gateway.process.pid)
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len({*children(gateway.process.pid)} - {*victims}) == 2)
        assert {len(names()) for _ in range(20)} == {3}


def discovering(root: Path, name: str) -> StoredShare:
    return StoredShare(name, {"tables": {"discover": f"{root}/{{schema}}/{{table}}", "everySeconds": 1}})


async def test_tables_of_stored_shares_come_and_go_with_their_shares(tmp_path: Path, warehouse: Path) -> None:
    file = tmp_path / "gateway.yaml"
    changed = base(warehouse)
    changed["shares"] = []
    changed["gateway"]["database"] = {"url": f"sqlite:///{tmp_path}/d.db"}
    async with running_process(file, changed) as live:
        process = live.process
        discoverer = discoverer_of(process)

        async def shown() -> list[str]:
            answer = await live.answer("GET", f"{PREFIX}/shares/lake/all-tables")
            items = (await answer.json()).get("items", [])
            return [f"{item['schema']}.{item['name']}" for item in items]

        async def until(expected: list[str]) -> None:
            async with asyncio.timeout(20):
                while await shown() != expected:
                    await asyncio.sleep(0.02)

        async with discoverer.following():
            with closing(open_share_database(process.config, "cli:test", now_ms=epoch_ms)) as database:
                database.add(discovering(warehouse, "lake"))
                await until(["d.t", "d.u", "e.t"])
                assert await live.change("preSignedUrlTimeoutSeconds", 1000) is None
                await until(["d.t", "d.u", "e.t"])
                table = StoredTable("listed", str(warehouse / "d/t"), {})
                database.edit("lake", lambda found: share_edits.with_table(found, "x", table))
                # The listed table wins by its location.
                await until(["x.listed", "d.u", "e.t"])
                database.edit("lake", lambda found: share_edits.without_discovery(found, None))
                await until(["x.listed"])
                database.remove("lake")
                await until([])
            async with asyncio.timeout(20):
                while (
                    process.metrics.registry.get_sample_value(
                        "delta_gateway_discovered_tables", {"source": "lake"}
                    )
                    is not None
                ):
                    await asyncio.sleep(0.02)


@pytest.mark.processes
@pytest.mark.nightly
def test_a_supervisor_searches_for_stored_shares_of_all_workers(tmp_path: Path, warehouse: Path) -> None:
    section = {"database": {"url": f"sqlite:///{tmp_path}/d.db"}}
    with running_gateway(tmp_path, [], section, workers=2) as gateway:

        def names() -> list[str]:
            items = gateway.request("GET", "/shares/lake/all-tables").json.get("items", [])
            return [f"{item['schema']}.{item['name']}" for item in items]

        config = load(tmp_path / "gateway.yaml")
        with closing(open_share_database(config, "cli:test", now_ms=epoch_ms)) as database:
            database.add(discovering(warehouse, "lake"))
            wait_until(everywhere(names, ["d.t", "d.u", "e.t"]))
            (warehouse / "d/new/_delta_log").mkdir(parents=True)
            wait_until(everywhere(names, ["d.new", "d.t", "d.u", "e.t"]))
            database.edit("lake", lambda found: share_edits.without_discovery(found, None))
            wait_until(everywhere(names, []))


def test_check_searches_once_and_says_what_it_finds(
    tmp_path: Path, warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (warehouse / "d/T/_delta_log").mkdir(parents=True)
    for name in ("d/u", "e/t"):
        shutil.rmtree(warehouse / name)
    shutil.copytree(warehouse / "d/t", warehouse / "e/fine")
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump(settings(warehouse)))
    assert main(["check", "-c", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "s: 1 tables found below" in printed
    assert printed.count("another table has its name without case") == 2
    assert "s.e.fine" in printed
    assert "1 of 1 tables can be read." in printed
    file.write_text(yaml.safe_dump(settings(tmp_path / "gone")))
    assert main(["check", "-c", str(file)]) == 1
    assert "the search is not complete: there is no such directory" in capsys.readouterr().out
