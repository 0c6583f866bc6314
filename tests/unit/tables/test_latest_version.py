"""The latest version of a local table, found on the event loop without a thread of Python."""

import asyncio
import gc
import weakref
from functools import partial
from pathlib import Path

import yaml
from tables.small_tables import lay_out, write_commit

from gateway.catalog.catalog import Catalog
from gateway.config import loader
from gateway.routes.table import read_version
from gateway.tables.registry import Tables

READ = partial(read_version, timestamp_ms=None)


def opened(root: Path, previous: Tables | None = None) -> tuple[Tables, Catalog]:
    """The tables of a configuration with one local table."""
    table = {"name": "t", "location": str(root / "whole"), "historyShared": True}
    shares = [{"name": "s", "schemas": [{"name": "d", "tables": [table]}]}]
    keys = [{"id": "k1", "secret": "0123456789abcdef0123456789abcdef"}]
    document = {"version": 1, "shares": shares, "gateway": {"anonymous": True, "tokenKeys": keys}}
    file = root / "gateway.yaml"
    file.write_text(yaml.safe_dump(document))
    config = loader.load(file)
    catalog = Catalog.of(config.shares)
    return Tables(config, catalog, url_keys=[b"k" * 32], previous=previous), catalog


async def test_each_commit_is_found_by_the_next_request(tmp_path: Path) -> None:
    lay_out(tmp_path)
    tables, catalog = opened(tmp_path)
    [table] = catalog.tables()
    for version in range(4, 8):
        write_commit(tmp_path / "whole/_delta_log", "whole", version)
        for _ in range(2):
            assert await tables.read_latest("a", tables.open(table), READ, READ) == (version, False)
    tables.close()


async def test_replaced_tables_are_freed_with_their_last_request(tmp_path: Path) -> None:
    lay_out(tmp_path)
    tables, catalog = opened(tmp_path)
    [table] = catalog.tables()
    assert await tables.read_latest("a", tables.open(table), READ, READ) == (3, False)
    replaced = weakref.ref(tables)
    gc.disable()
    try:
        tables, _ = opened(tmp_path, tables)
        await asyncio.sleep(0)
        assert replaced() is None
    finally:
        gc.enable()
    tables.close()


async def test_reloads_share_one_queue_of_completions(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    lay_out(tmp_path)
    tables, catalog = opened(tmp_path)
    counted = []
    for _ in range(4):
        [table] = catalog.tables()
        for _ in range(3):
            assert await tables.read_latest("a", tables.open(table), READ, READ) == (3, False)
        counted.append(descriptors())
        tables, catalog = opened(tmp_path, tables)
    assert counted[1:] == counted[:1] * 3
    tables.close()
