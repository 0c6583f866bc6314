"""The doctor on tables in MinIO: signed URLs and temporary credentials, each verified by the store."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import RunningGateway, running_gateway, share, storage_with_sessions
from support.versitygw import S3Server

from gateway.__main__ import main

BUCKET = "doctor"


@pytest.fixture(scope="module")
def store(s3_with_sts: S3Server, demo_tables: Path) -> S3Server:
    for name in ("cities", "orders"):
        s3_with_sts.upload(demo_tables / name, BUCKET, f"ware house/50%+=ü/{name}")
    return s3_with_sts


@pytest.fixture(scope="module")
def gateway(store: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    storage = storage_with_sessions(store, f"s3://{BUCKET}/")
    places = {name: f"s3://{BUCKET}/ware house/50%+=ü/{name}" for name in ("cities", "orders")}
    shares = [share("demo", places, accessModes=["url", "dir"])]
    with running_gateway(tmp_path_factory.mktemp("doctor"), shares, {"storages": [storage]}) as served:
        served.profile.chmod(0o600)
        yield served


def examined(profile: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]], str]:
    code = main(["doctor", profile, "--json"])
    printed = capsys.readouterr().out
    return code, json.loads(printed)["steps"], printed


@pytest.mark.parametrize("table", ["cities", "orders"])
def test_urls_and_credentials_of_a_table_are_examined(
    *,
    gateway: RunningGateway,
    store: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    table: str,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", store.endpoint)
    monkeypatch.setenv("AWS_REGION", store.region)
    code, steps, printed = examined(f"{gateway.profile}#demo.default.{table}", capsys)
    assert code == 0, steps
    assert [step["step"] for step in steps][-2:] == ["file", "credentials"]
    for secret in (gateway.token, "ware house", "X-Amz", BUCKET):
        assert secret not in printed


def test_a_store_that_does_not_know_the_vended_keys_is_explained(
    *, gateway: RunningGateway, versitygw: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", versitygw.endpoint)
    monkeypatch.setenv("AWS_REGION", versitygw.region)
    code, steps, _ = examined(str(gateway.profile), capsys)
    assert code == 1
    assert steps[-1]["step"] == "credentials"
    assert steps[-1]["message"] == (
        "the store of the directory answers 400 InvalidToken: "
        "the session token does not belong to the access key"
    )
