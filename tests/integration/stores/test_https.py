"""The native client reads a table from a store with TLS, and only from one whose certificate it trusts."""

import itertools
import select
import time
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


def table(store: VersityGw) -> Any:
    """The table, as a new client of the store reads it."""
    storage = native().Storage.s3(
        BUCKET,
        region=store.region,
        endpoint=store.endpoint,
        path_style=True,
        access_key_id=store.access_key_id,
        secret_access_key=store.secret_access_key,
        retry_seconds=0.1,
    )
    return native().Table(storage, "table")


def probed(table: Any, probes: Any, number: int) -> Any:
    """The version that a probe of an event loop finds."""
    assert table.start_probe(number, probes)
    found: list[Any] = []
    while not found:
        assert select.select([probes.fileno()], [], [], 20)[0]
        found = probes.take()
    [(ended, snapshot)] = found
    assert ended == number
    return snapshot.version


def test_a_table_is_read_over_tls(store: VersityGw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(store.certificate))
    assert table(store).snapshot().version == COMMITS


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "AWS_CA_BUNDLE"])
def test_the_event_loop_itself_asks_a_store_over_tls(
    store: VersityGw, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(store.certificate))
    known, probes = table(store), native().Completions()
    known.snapshot()
    numbers = itertools.count()
    deadline = time.monotonic() + 20
    while probes.sent_by_loop() == 0 and time.monotonic() < deadline:
        assert probed(known, probes, next(numbers)) == COMMITS
    assert probes.sent_by_loop() == 1, "connections are opened in the background"
    for _ in range(5):
        assert probed(known, probes, next(numbers)) == COMMITS
    assert probes.sent_by_loop() == 6


def test_a_table_is_read_over_tls_by_the_authorities_of_awss_own_tools(
    store: VersityGw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(store.certificate))
    assert table(store).snapshot().version == COMMITS


def test_a_store_with_an_unknown_certificate_is_unavailable(store: VersityGw) -> None:
    with pytest.raises(native().StorageUnavailable) as raised:
        table(store).snapshot()
    assert "SSL_CERT_FILE" in raised.value.detail
