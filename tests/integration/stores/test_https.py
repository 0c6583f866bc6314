"""The native client reads a table from a store with TLS, and only from one whose certificate it trusts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.native import native
from support.versitygw import VersityGw, running
from tables.large_logs import make_log

from gateway.server.self_signed import self_signed_pair

BUCKET = "encrypted"
ADDS = 100
COMMITS = 2


@pytest.fixture(scope="module")
def store(versitygw_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGw]:
    """An S3 server with a table behind a certificate that no system knows."""
    directory = tmp_path_factory.mktemp("https")
    pair = directory / "pair.pem"
    pair.write_bytes(self_signed_pair("127.0.0.1"))
    table = directory / "table"
    maker = make_log(rows_per_group=ADDS)
    maker.make_log(table, maker.LogOptions(adds=ADDS, commits=COMMITS))
    files = directory / "files"
    files.mkdir()
    with running(versitygw_binary, files, pair) as server:
        server.upload(table, BUCKET, "table")
        yield server


def version(store: VersityGw) -> Any:
    """The table's latest version, as a new client of the store reads it."""
    storage = native().Storage.s3(
        BUCKET,
        region=store.region,
        endpoint=store.endpoint,
        path_style=True,
        access_key_id=store.access_key_id,
        secret_access_key=store.secret_access_key,
        retry_seconds=0.1,
    )
    return native().Table(storage, "table").snapshot().version


def test_a_table_is_read_over_tls(store: VersityGw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(store.certificate))
    assert version(store) == COMMITS


def test_a_store_with_an_unknown_certificate_is_unavailable(store: VersityGw) -> None:
    with pytest.raises(native().StorageUnavailable):
        version(store)
