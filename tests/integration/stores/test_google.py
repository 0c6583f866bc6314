"""Tables on Google Cloud Storage through the whole server: each kind of signature and of identity."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from support.gateway_process import RunningGateway, files_of, running_gateway, share
from support.google_identity import GoogleIdentity, google_error
from support.google_storage import GoogleStorage
from support.odd_tables import ODD_KEYS, in_log, write_log
from support.official_client import OfficialClient
from support.raw_http import get
from support.waiting import WAIT_SECONDS
from tables.demo import ROWS

BUCKET, SOURCE, OTHER, PAYING = "lake_of.tests", "source", "private", "paying"
ROOT = "ware house/50%+=ü"
KEPT = "kept here/p=a%20b/a b+%.parquet"
HMAC_KEY = {"accessKeyId": "GOOG1ELAKE", "secretAccessKey": "the-secret-of-the-lake"}
TABLES = [*ROWS, "odd", "clone", "forbidden"]


@pytest.fixture(scope="module")
def lake(
    google_storage_server: GoogleStorage, demo_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> GoogleStorage:
    tables = tmp_path_factory.mktemp("google") / "tables"
    for name in ROWS:
        google_storage_server.upload(demo_tables / name, BUCKET, f"{ROOT}/{name}")
    write_log(tables / "odd", {in_log(key): key.encode() for key in ODD_KEYS})
    for name, bucket in (("clone", SOURCE), ("forbidden", OTHER)):
        write_log(tables / name, {f"gs://{bucket}/{quote(KEPT)}": KEPT.encode()})
        google_storage_server.put(bucket, KEPT, KEPT.encode())
    for bucket in (BUCKET, PAYING):
        google_storage_server.upload(tables, bucket, ROOT)
        for key in ODD_KEYS:
            google_storage_server.put(bucket, f"{ROOT}/odd/{key}", key.encode())
    google_storage_server.secrets[HMAC_KEY["accessKeyId"]] = HMAC_KEY["secretAccessKey"]
    google_storage_server.requester_pays[PAYING] = "my-project"
    return google_storage_server


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No identity of this machine, and no metadata server."""
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    return monkeypatch


@contextmanager
def serving(
    lake: GoogleStorage,
    directory: Path,
    entry: dict[str, Any],
    tables: list[str] = TABLES,
    bucket: str = BUCKET,
    **keys: Any,
) -> Iterator[RunningGateway]:
    section = {
        "storages": [
            {"prefix": f"gs://{name}/", "endpoint": lake.endpoint, **entry}
            for name in {bucket, SOURCE, OTHER}
        ],
        "allowedRoots": [f"gs://{SOURCE}/kept here"],
        "drainDelaySeconds": 0,
    }
    directory.mkdir(exist_ok=True)
    shared = [share("demo", {table: f"gs://{bucket}/{ROOT}/{table}" for table in tables})]
    with running_gateway(directory, shared, section, **keys) as gateway:
        yield gateway


def check_odd_keys(gateway: RunningGateway, algorithm: str) -> None:
    files = files_of(gateway, "odd")
    assert {parse_qs(urlsplit(file["url"]).query)["X-Goog-Algorithm"][0] for file in files} == {algorithm}
    opened = [get(file["url"]) for file in files]
    assert sorted(opened) == sorted((200, key.encode()) for key in ODD_KEYS)


@pytest.fixture(scope="module")
def by_hmac(lake: GoogleStorage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with serving(lake, tmp_path_factory.mktemp("by-hmac"), HMAC_KEY) as gateway:
        yield gateway


def test_an_hmac_key_signs_every_odd_key(by_hmac: RunningGateway) -> None:
    check_odd_keys(by_hmac, "GOOG4-HMAC-SHA256")


def test_a_clone_reads_an_allowed_bucket_alone(by_hmac: RunningGateway) -> None:
    (file,) = files_of(by_hmac, "clone")
    assert get(file["url"]) == (200, KEPT.encode())
    answer = by_hmac.query("demo.default.forbidden")
    assert (answer.status, answer.json["errorCode"]) == (403, "PERMISSION_DENIED")
    assert OTHER not in answer.json["message"]


@pytest.mark.parametrize("delta", [True, False])
def test_the_official_client_reads_a_table_on_google(
    official_client: OfficialClient, by_hmac: RunningGateway, delta: bool
) -> None:
    found = official_client.rows(by_hmac.profile, "demo.default.cities", ["city"], use_delta_format=delta)
    assert sorted(city for (city,) in found) == sorted(row[0] for row in ROWS["cities"])


def test_the_key_of_a_service_account_reads_and_signs(
    lake: GoogleStorage, google_account: GoogleIdentity, tmp_path: Path
) -> None:
    file = google_account.service_account_file(tmp_path)
    with serving(lake, tmp_path / "served", {"credentialsFile": str(file)}) as gateway:
        check_odd_keys(gateway, "GOOG4-RSA-SHA256")
        (clone,) = files_of(gateway, "clone")
        assert get(clone["url"]) == (200, KEPT.encode())
        log = gateway.log.read_text()
        assert google_account.private_key.splitlines()[1] not in log
        assert "ya29." not in log


def test_a_requester_that_pays_is_named_in_reads_and_urls(
    lake: GoogleStorage, google_account: GoogleIdentity, tmp_path: Path
) -> None:
    entry = {"credentialsFile": str(google_account.service_account_file(tmp_path))}
    with serving(
        lake, tmp_path / "paying", {**entry, "userProject": "my-project"}, ["odd"], PAYING
    ) as paying:
        check_odd_keys(paying, "GOOG4-RSA-SHA256")
    with serving(lake, tmp_path / "other", entry, ["odd"], PAYING) as other:
        assert other.query("demo.default.odd").status != 200


def test_iam_signs_for_a_federated_identity_up_to_a_number_of_files(
    lake: GoogleStorage, google_account: GoogleIdentity, tmp_path: Path
) -> None:
    entry = {"credentialsFile": str(google_account.external_account_file(tmp_path, impersonates=True))}
    before = google_account.signatures
    with serving(lake, tmp_path / "served", entry, ["odd"]) as gateway:
        check_odd_keys(gateway, "GOOG4-RSA-SHA256")
        assert google_account.signatures - before >= len(ODD_KEYS)
    few = {**entry, "maxRemoteSignatures": len(ODD_KEYS) - 1}
    with serving(lake, tmp_path / "few", few, ["odd"]) as gateway:
        answer = gateway.query("demo.default.odd")
        assert (answer.status, answer.json["errorCode"]) == (400, "UNSUPPORTED_OPERATION")
        assert "HMAC" in answer.json["message"]


def test_a_machine_reads_by_the_tokens_of_its_metadata_server(
    lake: GoogleStorage, google_account: GoogleIdentity, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    for name, value in google_account.environment().items():
        environment.setenv(name, value)
    with serving(lake, tmp_path, {}, ["odd"]) as gateway:
        answer = gateway.request("GET", "/shares/demo/schemas/default/tables/odd/version")
        assert (answer.status, answer.headers["Delta-Table-Version"]) == (200, "0"), gateway.log.read_text()


def test_tokens_are_renewed_before_they_end(
    lake: GoogleStorage, google_account: GoogleIdentity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(google_account, "seconds", 4)
    file = google_account.service_account_file(tmp_path)
    with serving(lake, tmp_path / "served", {"credentialsFile": str(file)}, ["odd"]) as gateway:
        before = len(lake.tokens)
        ended = time.monotonic() + google_account.seconds
        # Each answer is whole until the first token has ended and another one is used.
        while time.monotonic() < ended or len(lake.tokens) == before:
            assert len(files_of(gateway, "odd")) == len(ODD_KEYS)
            assert time.monotonic() < ended + WAIT_SECONDS
            time.sleep(0.05)


REFUSALS = {
    "a deleted key": ("Invalid JWT Signature.", "the key was deleted"),
    "a wrong clock": ("Invalid JWT: check your iat and exp values in the JWT claim.", "the clock"),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_a_refused_identity_fails_its_own_tables_alone(
    lake: GoogleStorage,
    google_account: GoogleIdentity,
    demo_tables: Path,
    tmp_path: Path,
    refusal: tuple[str, str],
) -> None:
    description, reason = refusal
    entry = {"credentialsFile": str(google_account.service_account_file(tmp_path))}
    google_account.failures += [google_error("invalid_grant", description)] * 9
    shared = [
        share("demo", {"odd": f"gs://{BUCKET}/{ROOT}/odd"}),
        share("local", {"cities": str(demo_tables / "cities")}),
    ]
    storage = {"prefix": f"gs://{BUCKET}/", "endpoint": lake.endpoint, **entry}
    try:
        with running_gateway(tmp_path, shared, {"storages": [storage], "drainDelaySeconds": 0}) as gateway:
            answer = gateway.query("demo.default.odd")
            assert answer.status in {403, 503}
            assert "grant" not in answer.json["message"]
            assert gateway.query("local.default.cities").status == 200
            assert reason in gateway.logged("invalid_grant")
    finally:
        google_account.failures.clear()


def test_a_deleted_hmac_key_is_the_providers_fault(lake: GoogleStorage, tmp_path: Path) -> None:
    wrong = {**HMAC_KEY, "accessKeyId": "GOOG1EDELETED"}
    with serving(lake, tmp_path, wrong, ["odd"]) as gateway:
        answer = gateway.query("demo.default.odd")
        assert (answer.status, answer.json["errorCode"]) == (403, "PERMISSION_DENIED")
        for word in (BUCKET, "127.0.0.1", "GOOG1EDELETED"):
            assert word not in answer.json["message"]
