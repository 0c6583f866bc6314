"""Tables that appear and vanish on each kind of store while the official client lists them."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from support.azurite_server import Azurite
from support.gateway_process import running_gateway, storage
from support.google_storage import GoogleStorage
from support.official_client import OfficialClient
from support.versitygw import VersityGw
from support.waiting import wait_until
from tables.demo import ROWS

STORE = "discovered"
BELOW = "ware house/50%+=ü/sales.db"
TEMPLATE = "ware house/50%+=ü/{schema}.db/{table}/"
NEW = "a b+ü"
"""The table that appears. The official client does not encode `%` in a name."""
HMAC_KEY = {"accessKeyId": "GOOG1EDISCOVERY", "secretAccessKey": "the-secret-of-the-discovery"}


def check(
    directory: Path,
    client: OfficialClient,
    bucket_url: str,
    entry: dict[str, Any],
    *,
    upload: Callable[[str], None],
    remove: Callable[[str], None],
) -> None:
    """Hold that tables are shared as they appear and vanish.

    `upload` puts the first table of the demo below a key, and `remove` deletes all objects below one.
    """
    first = min(ROWS)
    upload(f"{BELOW}/{first}")
    shares = [{"name": "lake", "tables": {"discover": f"{bucket_url}/{TEMPLATE}", "everySeconds": 1}}]
    with running_gateway(directory, shares, {"storages": [entry]}) as gateway:

        def listed() -> list[str]:
            found: list[Any] = client.call("shares", gateway.profile)
            return sorted(found)

        assert listed() == [f"lake.sales.{first}"]
        rows = client.rows(gateway.profile, f"lake.sales.{first}")
        assert len(rows) == len(ROWS[first])
        upload(f"{BELOW}/{NEW}")
        wait_until(lambda: listed() == sorted([f"lake.sales.{first}", f"lake.sales.{NEW}"]))
        assert client.rows(gateway.profile, f"lake.sales.{NEW}") == rows
        remove(f"{BELOW}/{NEW}/")
        wait_until(lambda: listed() == [f"lake.sales.{first}"])
        assert gateway.query(f"lake.sales.{quote(NEW)}").status == 404


def test_on_s3(
    demo_tables: Path, versitygw: VersityGw, official_client: OfficialClient, tmp_path: Path
) -> None:
    def remove(prefix: str) -> None:
        with closing(versitygw.client()) as client:
            for found in client.list_objects_v2(Bucket=STORE, Prefix=prefix)["Contents"]:
                client.delete_object(Bucket=STORE, Key=found["Key"])

    check(
        tmp_path,
        official_client,
        f"s3://{STORE}",
        storage(versitygw, f"s3://{STORE}/"),
        upload=lambda key: versitygw.upload(demo_tables / min(ROWS), STORE, key),
        remove=remove,
    )


def test_on_azure(
    demo_tables: Path, azurite: Azurite, official_client: OfficialClient, tmp_path: Path
) -> None:
    def remove(prefix: str) -> None:
        with azurite.client() as client, client.get_container_client(STORE) as blobs:
            for name in list(blobs.list_blob_names(name_starts_with=prefix)):
                blobs.delete_blob(name)

    url = f"abfss://{STORE}@{azurite.account}.dfs.core.windows.net"
    check(
        tmp_path,
        official_client,
        url,
        {"prefix": f"{url}/", "endpoint": azurite.endpoint, "accountKey": azurite.account_key},
        upload=lambda key: azurite.upload(demo_tables / min(ROWS), STORE, key),
        remove=remove,
    )


def test_on_google(
    demo_tables: Path,
    google_storage_server: GoogleStorage,
    official_client: OfficialClient,
    tmp_path: Path,
) -> None:
    def remove(prefix: str) -> None:
        for key in [key for key in google_storage_server.objects[STORE] if key.startswith(prefix)]:
            del google_storage_server.objects[STORE][key]

    google_storage_server.secrets[HMAC_KEY["accessKeyId"]] = HMAC_KEY["secretAccessKey"]
    check(
        tmp_path,
        official_client,
        f"gs://{STORE}",
        {"prefix": f"gs://{STORE}/", "endpoint": google_storage_server.endpoint, **HMAC_KEY},
        upload=lambda key: google_storage_server.upload(demo_tables / min(ROWS), STORE, key),
        remove=remove,
    )
