"""Azurite and MinIO refuse what Azure and S3 refuse, which tests of signed URLs and sessions rely on."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support.aws_identity import ROLE
from support.azurite_server import Azurite
from support.raw_http import get
from support.versitygw import S3Server

KEY = "table/region=50%25 a+b=ü/part 1.parquet"
CONTENT = b"0123456789"


@pytest.fixture(scope="module")
def url(azurite: Azurite) -> str:
    """A URL that Azure's own library signs by the account's key."""
    from azure.storage.blob import BlobSasPermissions, generate_blob_sas  # noqa: PLC0415 - slow to import

    azurite.put("own", KEY, CONTENT)
    signature = generate_blob_sas(
        azurite.account,
        "own",
        KEY,
        account_key=azurite.account_key,
        permission=BlobSasPermissions(read=True),
        expiry=datetime.now(UTC) + timedelta(minutes=10),
    )
    with azurite.client() as client:
        return f"{client.get_blob_client('own', KEY).url}?{signature}"


def test_a_signed_url_of_azurite_opens_its_blob_by_ranges(url: str) -> None:
    assert get(url, headers={"Range": "bytes=2-4"}) == (206, b"234")


TAMPERED: dict[str, Callable[[str], str]] = {
    "signature": lambda url: url.replace("sig=", "sig=A", 1),
    "key": lambda url: url.replace("/table/", "/tablf/", 1),
    "expiry": lambda url: url.replace("se=2", "se=3", 1),
    "permission": lambda url: url.replace("sp=r", "sp=rw", 1),
    "no query": lambda url: url.split("?")[0],
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_url_of_azurite_is_refused(url: str, tamper: Callable[[str], str]) -> None:
    assert tamper(url) != url
    status, body = get(tamper(url))
    assert status in {403, 404}
    assert CONTENT not in body


@pytest.fixture(scope="module")
def session(s3_with_sts: S3Server) -> Iterator[Any]:
    """Temporary keys for one prefix of a bucket."""
    with closing(s3_with_sts.client()) as client:
        s3_with_sts.make_bucket("own")
        for key in ("in/a", "out/a"):
            client.put_object(Bucket="own", Key=key, Body=CONTENT)
    policy = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::own/in/*"}],
    }
    with closing(s3_with_sts.client(service="sts")) as sts:
        yield sts.assume_role(
            RoleArn=ROLE,
            RoleSessionName="tests",
            Policy=json.dumps(policy),
            DurationSeconds=900,
        )["Credentials"]


@pytest.mark.parametrize(
    ("key", "token", "expected"),
    [("in/a", None, None), ("out/a", None, "AccessDenied"), ("in/a", "", "403"), ("in/a", "x", "403")],
    ids=["inside", "outside", "no token", "wrong token"],
)
def test_a_session_is_bound_to_its_policy_and_its_token(
    s3_with_sts: S3Server, session: Any, key: str, token: str | None, expected: str | None
) -> None:
    keys = {
        "accessKeyId": session["AccessKeyId"],
        "secretAccessKey": session["SecretAccessKey"],
        "sessionToken": session["SessionToken"] if token is None else token,
    }
    with closing(s3_with_sts.client(keys)) as client:
        if expected is None:
            with closing(client.get_object(Bucket="own", Key=key)["Body"]) as body:
                assert body.read() == CONTENT
            return
        with pytest.raises(ClientError) as refusal:
            client.get_object(Bucket="own", Key=key)
        assert refusal.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
        assert expected in {"403", refusal.value.response["Error"]["Code"]}
