"""Tables of several stores in one server: a store that is away fails its own, and identities change."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.gateway_process import RunningGateway, running_gateway, share
from support.google_identity import GoogleIdentity
from support.google_storage import GoogleStorage
from support.nightly import at_night
from support.raw_http import get
from support.waiting import wait_until

HMAC = {"accessKeyId": "GOOG1E", "secretAccessKey": "first-secret"}
QUERIES = 8
"""Of each table, so that both workers answer some."""


@pytest.fixture
def google(google_storage_server: GoogleStorage, demo_tables: Path) -> Iterator[GoogleStorage]:
    table = demo_tables / "cities"
    for file in filter(Path.is_file, table.rglob("*")):
        key = f"t/{file.relative_to(table).as_posix()}"
        google_storage_server.put("several", key, file.read_bytes())
    google_storage_server.secrets["GOOG1E"] = "first-secret"
    yield google_storage_server
    del google_storage_server.secrets["GOOG1E"]


def gs_storage(google: GoogleStorage, **keys: Any) -> dict[str, Any]:
    assert google.service is not None
    return {"prefix": "gs://several/", "endpoint": google.service.url, **keys}


AWAY = {
    "prefix": "abfss://data@acct.dfs.core.windows.net/",
    "endpoint": "http://127.0.0.1:1/acct",
    "accountKey": "a2V5",
    "retrySeconds": 0,
}


def statuses(gateway: RunningGateway, table: str) -> set[int]:
    return {gateway.query(f"s.default.{table}").status for _ in range(QUERIES)}


def opened(gateway: RunningGateway) -> tuple[int, str]:
    """The status of one file of the table on Google, by its URL, and the URL."""
    lines = gateway.query("s.default.google", {"limitHint": 1}).lines
    url = next(line["file"]["url"] for line in lines if "file" in line)
    return get(url, headers={"Range": "bytes=0-3"})[0], url


@pytest.mark.parametrize("workers", [1, *at_night(2)])
def test_a_store_that_is_away_fails_its_own_tables_and_a_reload_changes_an_identity(
    google: GoogleStorage,
    google_account: GoogleIdentity,
    demo_tables: Path,
    tmp_path: Path,
    workers: int,
) -> None:
    tables = {
        "local": str(demo_tables / "cities"),
        "google": "gs://several/t",
        "azure": "abfss://data@acct.dfs.core.windows.net/t",
    }
    section = {"storages": [gs_storage(google, **HMAC), AWAY]}
    with running_gateway(tmp_path, [share("s", tables)], section, workers=workers) as gateway:
        assert statuses(gateway, "azure") <= {502, 503}
        assert statuses(gateway, "local") == {200}
        assert statuses(gateway, "google") == {200}
        status, url = opened(gateway)
        assert (status, "GOOG4-HMAC-SHA256" in url) == (206, True)

        # A service account in place of the HMAC key, which ends.
        file = google_account.service_account_file(tmp_path)
        del google.secrets["GOOG1E"]
        configured = tmp_path / "gateway.yaml"
        document = yaml.safe_load(configured.read_text())
        document["gateway"]["storages"] = [gs_storage(google, credentialsFile=str(file)), AWAY]
        configured.write_text(yaml.safe_dump(document))
        os.kill(gateway.process.pid, signal.SIGHUP)
        wait_until(lambda: statuses(gateway, "google") == {200})
        status, url = opened(gateway)
        assert (status, "GOOG4-RSA-SHA256" in url) == (206, True)
        assert statuses(gateway, "local") == {200}
        logged = gateway.log.read_text()
    google.secrets["GOOG1E"] = "first-secret"
    for secret in ("first-secret", google_account.private_key[40:80], "ya29.", AWAY["accountKey"]):
        assert secret not in logged


def test_a_restart_reads_a_replaced_key(
    google: GoogleStorage, google_account: GoogleIdentity, tmp_path: Path
) -> None:
    file = google_account.service_account_file(tmp_path)
    section = {
        "storages": [gs_storage(google, credentialsFile=str(file)), AWAY],
        "storageFaults": {"failures": 2},
    }
    tables = {"google": "gs://several/t", "azure": "abfss://data@acct.dfs.core.windows.net/t"}
    with running_gateway(tmp_path, [share("s", tables)], section) as gateway:
        assert statuses(gateway, "google") == {200}
        assert statuses(gateway, "azure") <= {502, 503}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"private_key_id": "replaced"}))
    with running_gateway(tmp_path, [share("s", tables)], section) as gateway:
        assert opened(gateway)[0] == 206
