"""Stores that cannot be reached: their own tables fail alone, and come back with their store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support import azurite_server
from support.gateway_process import RunningGateway, running_gateway, share
from support.processes import free_port
from support.waiting import wait_until

ACCOUNT = azurite_server.ACCOUNT


def statuses(gateway: RunningGateway, tables: Mapping[str, str]) -> dict[str, int]:
    return {table: gateway.query(f"demo.default.{table}").status for table in tables}


def section(storages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"storages": storages, "drainDelaySeconds": 0}


def test_tables_of_unreachable_stores_fail_alone(demo_tables: Path, tmp_path: Path) -> None:
    nowhere = {"endpoint": f"http://127.0.0.1:{free_port()}", "retrySeconds": 0.1}
    storages = [
        {"prefix": "s3://b/", "pathStyle": True, "accessKeyId": "a", "secretAccessKey": "s", **nowhere},
        {"prefix": "gs://bucket/", "accessKeyId": "GOOG1", "secretAccessKey": "s", **nowhere},
        {"prefix": f"abfss://lake@{ACCOUNT}.dfs.core.windows.net/", "accountKey": "a2V5", **nowhere},
    ]
    tables = {name: f"{storage['prefix']}t" for name, storage in zip("sga", storages, strict=True)}
    tables["cities"] = str(demo_tables / "cities")
    with running_gateway(tmp_path, [share("demo", tables)], section(storages)) as gateway:
        assert statuses(gateway, tables) == {"s": 503, "g": 503, "a": 503, "cities": 200}
        for table in "sga":
            message = gateway.query(f"demo.default.{table}").json["message"]
            assert "127.0.0.1" not in message
            assert ACCOUNT not in message


def test_a_table_comes_back_with_its_store(azurite_program: Path, demo_tables: Path, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    prefix = f"abfss://lake@{ACCOUNT}.dfs.core.windows.net/"
    tables = {"cities": f"{prefix}cities"}
    port = free_port()
    entry = {
        "prefix": prefix,
        "endpoint": f"http://127.0.0.1:{port}/{ACCOUNT}",
        "accountKey": azurite_server.ACCOUNT_KEY,
        "retrySeconds": 0.1,
    }
    with running_gateway(tmp_path, [share("demo", tables)], section([entry])) as gateway:
        for _ in range(2):
            assert statuses(gateway, tables) == {"cities": 503}
            with azurite_server.running(azurite_program, files, port=port) as azurite:
                azurite.upload(demo_tables / "cities", "lake", "cities")
                wait_until(lambda: statuses(gateway, tables) == {"cities": 200})
