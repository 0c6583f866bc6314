"""The rows of `check` about storages: identities, what they may do, and advice."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.aws_identity import ROLE, Sts, running_sts
from support.google_identity import EMAIL, UNUSABLE, GoogleIdentity, iam_error, running
from support.google_storage import running as running_storage
from support.http_service import Response
from support.versitygw import VersityGw

from gateway.__main__ import main
from gateway.catalog.catalog import SharedTable
from gateway.cli import check
from gateway.cli.check import Checked, Finding
from gateway.cli.check_storages import Stage, StorageFinding, TableStage, check_storages
from gateway.config import Location, loads
from gateway.state import GatewayState


def checked(storages: list[dict[str, Any]], *tables: TableStage, **top: Any) -> list[StorageFinding]:
    text = json.dumps({"version": 1, **top, "gateway": {"anonymous": True, "storages": storages}})
    state = GatewayState.of(loads(text))
    try:
        return list(check_storages(state, tables))
    finally:
        state.tables.close()


def table(location: str, files: int = 0, stage: Stage = Stage.FETCHED) -> TableStage:
    return TableStage(Location.parse(location), stage, files, "share.schema.table")


def test_a_reason_of_a_storage_is_said_once_for_all_of_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    storages = [
        StorageFinding(url, "keys", "never", "no", "no", "yes", "unknown", problem="denied")
        for url in ("s3://b/", "s3://c/")
    ]

    def failed(name: str, url: str, problem: str) -> Finding:
        stage = TableStage(Location.parse(f"{url}t"), Stage.NOTHING, storage=url)
        return Finding(name, problem=problem, stage=stage)

    tables = [
        failed("s.d.a", "s3://b/", "denied"),
        failed("s.d.b", "s3://b/", "no log"),
        failed("s.d.c", "s3://c/", "denied"),
        failed("s.d.d", "s3://d/", "denied"),
    ]
    Checked([], tables, storages, [], [], [], []).write()
    assert capsys.readouterr().out.splitlines()[-7:] == [
        "s3://b/: denied",
        "s3://c/: denied",
        "s.d.a cannot be read: see s3://b/ above",
        "s.d.b cannot be read: no log",
        "s.d.c cannot be read: see s3://c/ above",
        "s.d.d cannot be read: denied",
        "0 of 4 tables can be read.",
    ]


@pytest.fixture
def google() -> Iterator[GoogleIdentity]:
    with running_storage() as storage, running(GoogleIdentity(storage)) as google:
        google.storage.objects["bucket"] = {}
        yield google


def test_an_identity_that_reads_and_signs_is_named(google: GoogleIdentity, tmp_path: Path) -> None:
    file = google.service_account_file(tmp_path)
    assert google.storage.service is not None
    entry = {"prefix": "gs://bucket/", "endpoint": google.storage.service.url, "credentialsFile": str(file)}
    few, many = table("gs://bucket/t", 10_000), table("gs://bucket/t", 600_001)
    (found,) = checked([entry], few)
    assert found.identity == f"the service account {EMAIL} of {file}"
    assert found.ends.endswith("Z")
    assert (found.list, found.read, found.sign, found.url) == ("yes", "yes", "yes", "yes")
    assert (found.problem, found.advice) == ("", ())
    (found,) = checked([entry], many)
    (advice,) = found.advice
    assert "signing its 600001 files by the service account's key takes 300 s of CPU" in advice
    assert "more than requestTimeoutSeconds, 300 s; give an HMAC key" in advice
    assert checked([entry], many, requestTimeoutSeconds=0)[0].advice == ()


def test_an_allowed_root_without_credentials_fails_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "user.json").write_text(json.dumps(UNUSABLE))
    storage = {"prefix": "gs://bucket/", "credentialsFile": str(tmp_path / "user.json")}
    gateway = {"anonymous": True, "storages": [storage], "allowedRoots": ["gs://bucket/kept"]}
    file = tmp_path / "share.yaml"
    file.write_text(json.dumps({"version": 1, "gateway": gateway}))
    assert main(["check", "-c", str(file)]) == 1
    printed = capsys.readouterr().out
    assert "gs://bucket/: the provider's keys to the storage cannot be found or renewed" in printed
    assert "0 of 0 tables can be read." in printed


def test_files_beyond_the_signatures_by_calls_are_told(google: GoogleIdentity, tmp_path: Path) -> None:
    file = google.external_account_file(tmp_path, impersonates=True)
    assert google.storage.service is not None
    entry = {"prefix": "gs://bucket/", "endpoint": google.storage.service.url, "credentialsFile": str(file)}
    (found,) = checked([entry | {"maxRemoteSignatures": 5}], table("gs://bucket/t", 6))
    (advice,) = found.advice
    assert "its 6 files are more than maxRemoteSignatures, 5; give an HMAC key" in advice
    file = google.external_account_file(tmp_path, impersonates=False)
    (found,) = checked([entry], table("gs://bucket/t", 6, Stage.READ))
    assert (found.list, found.sign, found.url) == ("yes", "no", "no")
    assert "can read, but not sign; give an HMAC key" in found.problem


@pytest.mark.parametrize("identity", ["hmac", "rsa", "iam"])
def test_check_opens_a_url_of_each_key_of_google(  # noqa: PLR0917 - fixtures
    google: GoogleIdentity,
    demo_tables: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    identity: str,
) -> None:
    table = demo_tables / "cities"
    for file in filter(Path.is_file, table.rglob("*")):
        google.storage.put("bucket", f"t/{file.relative_to(table).as_posix()}", file.read_bytes())
    google.storage.secrets["GOOG1E"] = "hmac-secret"
    keys = {
        "hmac": {"accessKeyId": "GOOG1E", "secretAccessKey": "hmac-secret"},
        "rsa": {"credentialsFile": str(google.service_account_file(tmp_path))},
        "iam": {"credentialsFile": str(google.external_account_file(tmp_path, impersonates=True))},
    }[identity]
    assert google.storage.service is not None
    entry = {"prefix": "gs://bucket/", "endpoint": google.storage.service.url, **keys}
    share = {"name": "s", "schemas": [{"name": "d", "tables": [{"name": "t", "location": "gs://bucket/t"}]}]}
    file = tmp_path / "share.yaml"
    gateway = {"anonymous": True, "storages": [entry]}
    file.write_text(json.dumps({"version": 1, "shares": [share], "gateway": gateway}))
    assert main(["check", "-c", str(file)]) == 0
    printed = capsys.readouterr().out
    (row,) = (line for line in printed.splitlines() if "gs://bucket/\t" in line)
    assert [cell.strip() for cell in row.split("\t")][3:] == ["yes"] * 4
    if identity == "iam":
        monkeypatch.setattr(google, "_signature", lambda _: iam_error("hidden"))
        assert main(["check", "-c", str(file)]) == 1
        printed = capsys.readouterr().out
        (row,) = (line for line in printed.splitlines() if "gs://bucket/\t" in line)
        assert [cell.strip() for cell in row.split("\t")][3:] == ["yes", "yes", "no", "no"]
        assert "the IAM service answers 403: the project's owner enables the API" in printed
        assert "hidden" not in printed
    if identity == "hmac":
        broken = Response(403, b"no chunk", {"Transfer-Encoding": "chunked"})
        google.storage.lie = lambda request, answer: broken if ".parquet" in request.path else answer
        assert main(["check", "-c", str(file)]) == 1
        assert "a signed URL cannot be reached (IncompleteRead)" in capsys.readouterr().out


def test_an_answer_that_does_not_end_is_read_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "FETCH_TIMEOUT_SECONDS", 1)

    def answer(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 60000\r\n\r\n")
            while True:
                connection.sendall(b" ")
                time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        location = Location.parse("s3://bucket/t")
        shared = SharedTable("t", "d", "s", "", "", location, history_shared=False, start_version=0)
        state = GatewayState.of(loads('{"version": 1, "gateway": {"anonymous": true}}'))
        with pytest.raises(check.NotReadable, match="a signed URL answers 403"):
            check.fetch(state, shared, f"http://127.0.0.1:{server.getsockname()[1]}/")


def test_an_identity_without_credentials_says_which_are_supported(tmp_path: Path) -> None:
    absent = {"prefix": "gs://bucket/", "impersonate": EMAIL, "credentialsFile": str(tmp_path / "user.json")}
    (tmp_path / "user.json").write_text(json.dumps(UNUSABLE))
    (found,) = checked([absent], table("gs://bucket/t", 0, Stage.NOTHING))
    assert (found.identity, found.list) == ("none found", "unknown")
    assert "has no credentials of the type external_account" in found.problem


@pytest.fixture
def sts() -> Iterator[Sts]:
    with running_sts(Sts("base-key", "base-secret")) as sts:
        yield sts


def test_a_role_of_a_role_is_warned_of_before_it_is_refused(sts: Sts) -> None:
    entry = {
        "prefix": "s3://bucket/",
        "endpoint": "http://127.0.0.1:1",
        "pathStyle": True,
        "accessKeyId": "base-key",
        "secretAccessKey": "base-secret",
        "roleArn": ROLE,
        "stsEndpoint": sts.url,
        "sessionSeconds": 7200,
        "retrySeconds": 0,
    }
    (found,) = checked([entry], table("s3://bucket/t", 0, Stage.NOTHING), preSignedUrlTimeoutSeconds=10_000)
    assert found.identity == f"the role {ROLE}, assumed by accessKeyId of the configuration"
    assert found.list == "no"
    chained, short = found.advice
    assert chained.startswith(
        "sessionSeconds is 7200: AWS allows 3600 where the role is assumed by the session"
    )
    assert "shorter than preSignedUrlTimeoutSeconds, 10000 s" in short


def test_check_prints_the_storages_of_its_tables(
    versitygw: VersityGw, demo_tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    versitygw.upload(demo_tables / "orders", "check-storages", "orders")
    entry = {
        "prefix": "s3://check-storages/",
        "endpoint": versitygw.endpoint,
        "pathStyle": True,
        "region": "us-east-1",
        "accessKeyId": "tests-access-key",
        "secretAccessKey": "tests-secret-key",
    }
    share = {
        "name": "s",
        "schemas": [{"name": "d", "tables": [{"name": "t", "location": "s3://check-storages/orders"}]}],
    }
    file = tmp_path / "share.yaml"

    def check(entry: dict[str, Any]) -> tuple[int, str]:
        gateway = {"anonymous": True, "storages": [entry]}
        file.write_text(json.dumps({"version": 1, "shares": [share], "gateway": gateway}))
        code = main(["check", "-c", str(file)])
        return code, capsys.readouterr().out

    code, printed = check(entry)
    assert code == 0, printed
    (row,) = (line for line in printed.splitlines() if "accessKeyId of the configuration" in line)
    assert [cell.strip() for cell in row.split("\t")][2:] == ["never", "yes", "yes", "yes", "yes"]
    code, printed = check(entry | {"secretAccessKey": "hidden-wrong"})
    assert code == 1
    assert "s3://check-storages/: " in printed
    assert "403 SignatureDoesNotMatch: the signature does not fit the request" in printed
    assert "hidden" not in printed
    code, printed = check(entry | {"publicEndpoint": "http://127.0.0.1:1"})
    assert code == 1
    (row,) = (line for line in printed.splitlines() if "accessKeyId of the configuration" in line)
    assert [cell.strip() for cell in row.split("\t")][2:] == ["never", "yes", "yes", "yes", "no"]
    assert "a signed URL cannot be reached (ConnectionRefusedError)" in printed
