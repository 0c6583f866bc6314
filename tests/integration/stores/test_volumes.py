"""Volumes in MinIO: files are read with the vended keys alone, and nothing outside of the directory."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support.gateway_process import RunningGateway, running_gateway, storage_with_sessions
from support.versitygw import S3Server

BUCKET, ROOT = "volumes", "ware house/50%+=ü/pictures"
INSIDE = ["a.jpg", "sub directory/ü+%20.png", "_delta_log/no table"]
OUTSIDE = ["ware house/50%+=ü/pictures2/a.jpg", "ware house/50%+=ü/other", "a.jpg", f"{ROOT}x"]


@pytest.fixture(scope="module")
def store(s3_with_sts: S3Server) -> S3Server:
    with closing(s3_with_sts.client()) as client:
        s3_with_sts.make_bucket(BUCKET)
        for key in (*(f"{ROOT}/{name}" for name in INSIDE), *OUTSIDE):
            client.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
    return s3_with_sts


@pytest.fixture(scope="module")
def gateway(store: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    storage = storage_with_sessions(store, f"s3://{BUCKET}/")
    volume = {"name": "pictures", "location": f"s3://{BUCKET}/{ROOT}"}
    shares = [{"name": "s", "schemas": [{"name": "d", "volumes": [volume]}]}]
    section = {"storages": [storage], "drainDelaySeconds": 0}
    with running_gateway(tmp_path_factory.mktemp("volumes"), shares, section) as served:
        yield served


@pytest.fixture
def vended(store: S3Server, gateway: RunningGateway) -> Iterator[Any]:
    """A client of the store with the keys of the volume and nothing else."""
    path = "/shares/s/schemas/d/volumes/pictures"
    volume = gateway.request("GET", path).json
    assert volume["storageLocation"] == f"s3://{BUCKET}/{ROOT}"
    answer = gateway.request("POST", f"{path}/temporary-volume-credentials")
    assert answer.status == 200, answer.body
    keys = answer.json["awsTempCredentials"]
    with closing(store.client(keys)) as client:
        yield client
    log = gateway.log.read_text()
    assert keys["secretAccessKey"] not in log
    assert keys["sessionToken"] not in log


def test_every_file_of_a_volume_is_listed_and_read_with_the_vended_keys(vended: Any) -> None:
    listed = vended.list_objects_v2(Bucket=BUCKET, Prefix=f"{ROOT}/")
    assert sorted(one["Key"] for one in listed["Contents"]) == sorted(f"{ROOT}/{name}" for name in INSIDE)
    for name in INSIDE:
        key = f"{ROOT}/{name}"
        assert vended.get_object(Bucket=BUCKET, Key=key)["Body"].read() == key.encode()


@pytest.mark.parametrize("key", OUTSIDE)
def test_nothing_outside_of_the_volume_is_read(vended: Any, key: str) -> None:
    assert status(lambda: vended.get_object(Bucket=BUCKET, Key=key)) == 403


@pytest.mark.parametrize("prefix", ["", "ware house/", ROOT, f"{ROOT}2/"])
def test_nothing_outside_of_the_volume_is_listed(vended: Any, prefix: str) -> None:
    assert status(lambda: vended.list_objects_v2(Bucket=BUCKET, Prefix=prefix)) == 403


def test_nothing_is_written_or_deleted(vended: Any) -> None:
    key = f"{ROOT}/{INSIDE[0]}"
    assert status(lambda: vended.put_object(Bucket=BUCKET, Key=key, Body=b"")) == 403
    assert status(lambda: vended.delete_object(Bucket=BUCKET, Key=key)) == 403


def status(call: Any) -> int:
    with pytest.raises(ClientError) as refused:
        call()
    return int(refused.value.response["ResponseMetadata"]["HTTPStatusCode"])


def test_the_credentials_are_one_form_with_an_end(gateway: RunningGateway, tmp_path: Path) -> None:
    path = "/shares/s/schemas/d/volumes/pictures/temporary-volume-credentials"
    answer = gateway.request("POST", path, {})
    assert sorted(answer.json) == ["awsTempCredentials", "expirationTime"]
    assert answer.headers["Cache-Control"] == "no-store"
