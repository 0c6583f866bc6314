"""Tables in stores that a Unity Catalog manages: discovered, with their latest commits staged."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.azurite_server import Azurite
from support.gateway_process import Answer, RunningGateway, running_gateway, storage
from support.http_service import Response
from support.ratified_log import RatifiedLog
from support.unity_catalog import Catalog, running_catalog
from support.versitygw import VersityGw

CONTAINER, TABLE, NAME = "managed", "lake.sales.orders", "main/sales/orders"
CAPABLE = "responseformat=delta;includeendstreamaction=true"


@dataclass
class Store:
    """A bucket or container with copies of the directories of tables."""

    root: str
    section: dict[str, Any]
    put: Callable[[str, bytes], object]
    delete: Callable[[str], object]
    copied: dict[str, bytes] = field(default_factory=dict)

    def copy(self, log: RatifiedLog, prefix: str) -> None:
        """Put what is new or other in the directory, and delete what is gone."""
        files = (file for file in log.root.rglob("*") if file.is_file())
        found = {f"{prefix}/{file.relative_to(log.root).as_posix()}": file.read_bytes() for file in files}
        for key, content in found.items():
            if self.copied.get(key) != content:
                self.put(key, content)
        for key in self.copied.keys() - found.keys():
            self.delete(key)
        self.copied = found


@dataclass
class Managed:
    """A managed table in a store, its catalog, and the gateway that finds it."""

    gateway: RunningGateway
    catalog: Catalog
    log: RatifiedLog
    copy: Callable[[], None]

    def query(self, **body: Any) -> Answer:
        return self.gateway.query(TABLE, body, CAPABLE)

    def files(self, **body: Any) -> set[str]:
        answer = self.query(**body)
        assert answer.status == 200, (answer.body, self.gateway.log.read_text()[-2000:])
        return files_of(answer)

    def asked(self) -> int:
        return sum(path.startswith("delta/v1/") for path, _ in self.catalog.asked)

    def is_served(self) -> None:
        """The latest version is what the catalog has ratified, read by a listing and from memory."""
        self.copy()
        for _ in range(2):
            assert self.files() == self.log.files(self.log.latest)


def files_of(answer: Answer) -> set[str]:
    adds = (line["file"]["deltaSingleAction"]["add"]["path"] for line in answer.lines if "file" in line)
    return {url.partition("?")[0].rpartition("/")[2] for url in adds}


@pytest.fixture
def s3(versitygw: VersityGw) -> Iterator[Store]:
    with closing(versitygw.client()) as client:
        versitygw.make_bucket(CONTAINER)
        yield Store(
            f"s3://{CONTAINER}",
            storage(versitygw, f"s3://{CONTAINER}/"),
            lambda key, content: client.put_object(Bucket=CONTAINER, Key=key, Body=content),
            lambda key: client.delete_object(Bucket=CONTAINER, Key=key),
        )


@pytest.fixture
def azure(azurite: Azurite) -> Iterator[Store]:
    root = f"abfss://{CONTAINER}@{azurite.account}.dfs.core.windows.net"
    azurite.create_container(CONTAINER)
    with azurite.client() as client, client.get_container_client(CONTAINER) as blobs:
        yield Store(
            root,
            {"prefix": f"{root}/", "endpoint": azurite.endpoint, "accountKey": azurite.account_key},
            lambda key, content: blobs.upload_blob(key, content, overwrite=True),
            blobs.delete_blob,
        )


@contextmanager
def managed(store: Store, directory: Path, **section: Any) -> Iterator[Managed]:
    prefix = f"__unitystorage/tables/{uuid.uuid4()}"
    log = RatifiedLog(directory / "table", url=f"{store.root}/{prefix}")
    log.commit()
    log.commit(removes=1)
    store.copy(log, prefix)
    with running_catalog(token="catalog-token") as catalog:
        properties = {"delta.feature.catalogManaged": "supported"}
        catalog.managed[NAME] = log
        catalog.add("sales", "orders", log.url, table_type="MANAGED", properties=properties)
        source = {
            "url": catalog.url,
            "catalog": catalog.name,
            "token": "catalog-token",
            "within": [f"{store.root}/__unitystorage/"],
            "allowPrivateAddresses": True,
        }
        shares = [{"name": "lake", "tables": {"unityCatalog": source, "historyShared": True}}]
        with running_gateway(directory, shares, {"storages": [store.section], **section}) as gateway:
            yield Managed(gateway, catalog, log, lambda: store.copy(log, prefix))


def check(table: Managed) -> None:
    """Check snapshots, time travel, changes and pages while commits are staged, published and deleted."""
    log = table.log
    table.is_served()
    before = table.asked()
    assert table.files() == log.files(2)
    assert table.asked() == before + 1, "a refresh asks once"
    assert [table.files(version=version) for version in range(3)] == [log.files(each) for each in range(3)]
    assert table.files(timestamp="2023-11-14T22:13:21Z") == log.files(1)
    assert table.query(version=3).status == 400
    path = "/shares/lake/schemas/sales/tables/orders/changes?startingVersion=0"
    changes = table.gateway.request("GET", path, headers={"delta-sharing-capabilities": CAPABLE})
    assert [line["file"]["version"] for line in changes.lines if "file" in line] == [1, 2, 2]
    # A page is continued where its staged commit is published and deleted.
    log.commit()
    table.copy()
    page = table.query(maxFiles=1)
    found = files_of(page)
    while token := page.lines[-1]["endStreamAction"].get("nextPageToken"):
        log.publish(deletes=True)
        table.copy()
        page = table.query(maxFiles=1, pageToken=token)
        assert page.status == 200, page.body
        found |= files_of(page)
    assert found == log.files(3)
    for step in (
        lambda: log.commit(removes=1),
        lambda: log.publish(deletes=True, dies_before_the_catalog_knows=True),
        log.commit,
        log.publish_all,
        log.commit,
        log.write_beside,
        log.checkpoint,
        log.clean_up,
        log.move,
        log.move,
    ):
        step()
        table.is_served()
    assert table.files(version=log.latest - 1) == log.files(log.latest - 1)
    table.catalog.loading[NAME] = Response(503)
    answer = table.query()
    assert (answer.status, answer.json["errorCode"]) == (503, "TEMPORARILY_UNAVAILABLE")
    table.catalog.loading.clear()
    logged = table.gateway.log.read_text()
    assert "catalog-token" not in logged


@pytest.mark.parametrize("memory_bytes", [0, 1 << 28], ids=["cold", "hot"])
def test_a_managed_table_on_s3(s3: Store, tmp_path: Path, memory_bytes: int) -> None:
    with managed(s3, tmp_path, cache={"memoryBytes": memory_bytes}) as table:
        check(table)


def test_a_managed_table_on_azure(azure: Store, tmp_path: Path) -> None:
    with managed(azure, tmp_path) as table:
        check(table)
