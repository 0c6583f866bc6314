"""Tables that appear and vanish on a real S3 server while the official client lists them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from support.gateway_process import running_gateway, storage
from support.official_client import OfficialClient
from support.versitygw import VersityGw
from support.waiting import wait_until
from tables.demo import ROWS

NAME = "new"


def test_the_official_client_sees_tables_come_and_go(
    demo_tables: Path, versitygw: VersityGw, official_client: OfficialClient, tmp_path: Path
) -> None:
    first, *others = sorted(ROWS)
    for name in (first, *others):
        versitygw.upload(demo_tables / name, "discovered", f"ware house/50%+=ü/sales.db/{name}")
    shares = [
        {
            "name": "lake",
            "tables": {
                "discover": "s3://discovered/ware house/50%+=ü/{schema}.db/{table}/",
                "everySeconds": 1,
            },
        }
    ]
    section = {"storages": [storage(versitygw, "s3://discovered/")]}
    with running_gateway(tmp_path, shares, section) as gateway:

        def listed() -> list[str]:
            found: list[Any] = official_client.call("shares", gateway.profile)
            return sorted(found)

        known = sorted(f"lake.sales.{name}" for name in (first, *others))
        assert listed() == known
        rows = official_client.rows(gateway.profile, f"lake.sales.{first}")
        assert len(rows) == len(ROWS[first])
        versitygw.upload(demo_tables / first, "discovered", f"ware house/50%+=ü/sales.db/{NAME}")
        wait_until(lambda: listed() == sorted([*known, f"lake.sales.{NAME}"]))
        assert official_client.rows(gateway.profile, f"lake.sales.{NAME}") == rows
        with closing(versitygw.client()) as client:
            prefix = f"ware house/50%+=ü/sales.db/{NAME}/"
            for found in client.list_objects_v2(Bucket="discovered", Prefix=prefix)["Contents"]:
                client.delete_object(Bucket="discovered", Key=found["Key"])
        wait_until(lambda: listed() == known)
        answer = gateway.query(f"lake.sales.{NAME}")
        assert answer.status == 404
