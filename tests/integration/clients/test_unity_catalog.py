"""The official client reads the tables of an S3 server that a Unity Catalog names.

The catalog is one of the tests, or the real server that DELTA_GATEWAY_UNITY_CATALOG names by its URL.
"""

from pathlib import Path
from typing import Any

from support.gateway_process import running_gateway, storage
from support.official_client import OfficialClient
from support.unity_catalog import any_catalog
from support.versitygw import VersityGw
from support.waiting import wait_until
from tables.demo import ROWS

PREFIX = "s3://catalogued/warehouse"


def test_the_official_client_reads_what_the_catalog_names(
    demo_tables: Path, versitygw: VersityGw, official_client: OfficialClient, tmp_path: Path
) -> None:
    first, second, *_ = sorted(ROWS)
    for name, key in ((first, "warehouse/a1"), (second, "warehouse/b2"), (second, "private/b2")):
        versitygw.upload(demo_tables / name, "catalogued", key)
    with any_catalog("catalog-token") as catalog:
        catalog.add("sales", first, f"{PREFIX}/a1")
        catalog.add("sales", "private", "s3://catalogued/private/b2")
        catalog.add("sales", "other", f"{PREFIX}/c3", data_source_format="CSV")
        section = {
            "url": catalog.url,
            "catalog": catalog.name,
            "token": "catalog-token",
            "within": [f"{PREFIX}/"],
            "allowPrivateAddresses": True,
        }
        shares = [{"name": "lake", "tables": {"unityCatalog": section, "everySeconds": 1}}]
        storages = {"storages": [storage(versitygw, "s3://catalogued/")]}
        with running_gateway(tmp_path, shares, storages) as gateway:

            def listed() -> list[str]:
                found: list[Any] = official_client.call("shares", gateway.profile)
                return sorted(found)

            assert listed() == [f"lake.sales.{first}"]
            rows = official_client.rows(gateway.profile, f"lake.sales.{first}")
            assert len(rows) == len(ROWS[first])
            catalog.add("sales", second, f"{PREFIX}/b2")
            wait_until(lambda: listed() == sorted(f"lake.sales.{name}" for name in (first, second)))
            rows = official_client.rows(gateway.profile, f"lake.sales.{second}")
            assert len(rows) == len(ROWS[second])
            catalog.drop("sales", first)
            wait_until(lambda: listed() == [f"lake.sales.{second}"])
            assert gateway.query(f"lake.sales.{first}").status == 404
            log = gateway.log.read_text()
            assert "sales.private" in log
            assert "sales.other" in log
            assert "catalog-token" not in log
