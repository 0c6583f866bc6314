"""The native signer against boto3: the same key at the same moment has the same signature."""

import calendar
import time
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import boto3
import pytest
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st
from support.native import native
from support.object_keys import keys

ACCESS_KEY, SECRET_KEY = "AK/ID+1", "se/cret+key="

stores = st.sampled_from([
    ("eu-central-1", None, "virtual", "b-1"),
    ("eu-central-1", None, "path", "b-1"),
    ("cn-north-1", None, "virtual", "b-1"),
    ("us-west-2", None, "virtual", "dots.in.name"),
    ("r", "http://127.0.0.1:9000", "path", "b-1"),
    ("r", "https://store.example.com:8443", "virtual", "b-1"),
])  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def needs_the_native_module() -> None:
    native()


def signed_by_boto3(
    store: tuple[str, str | None, str, str], key: str, token: str | None, lifetime_seconds: int
) -> str:
    region, endpoint, style, bucket = store
    addressing: Any = {"addressing_style": style}
    client = boto3.client(
        "s3",
        region_name=region,
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        aws_session_token=token,
        config=Config(signature_version="s3v4", s3=addressing),
    )
    parameters = {"Bucket": bucket, "Key": key}
    return str(client.generate_presigned_url("get_object", Params=parameters, ExpiresIn=lifetime_seconds))


def parts(url: str) -> tuple[str, str, str, dict[str, str]]:
    """A URL but for the order of its query."""
    split = urlsplit(url)
    return split.scheme, split.netloc, split.path, dict(parse_qsl(split.query))


@given(
    stores,
    keys,
    st.none() | st.text("abcXYZ019+/=", min_size=1, max_size=400),
    st.integers(1, 7 * 86_400),
    st.booleans(),
)
def test_a_url_is_that_of_boto3(
    store: tuple[str, str | None, str, str],
    key: str,
    token: str | None,
    lifetime_seconds: int,
    portable: bool,
) -> None:
    theirs = signed_by_boto3(store, key, token, lifetime_seconds)
    region, endpoint, style, bucket = store
    signer = native().Signer.s3(
        bucket,
        region=region,
        endpoint=endpoint,
        path_style=style == "path",
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        session_token=token,
        portable=portable,
    )
    signed_at = calendar.timegm(time.strptime(parts(theirs)[3]["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
    ours, expires_ms = signer.sign(key, now_ms=signed_at * 1000, lifetime_seconds=lifetime_seconds)
    assert parts(ours) == parts(theirs)
    assert expires_ms == (signed_at + lifetime_seconds) * 1000


@settings(max_examples=20)
@given(keys, st.none() | st.text("abcXYZ019+/=", min_size=1, max_size=40))
def test_a_url_whose_reader_pays_has_the_signature_of_botocore_for_the_same_query(
    key: str, token: str | None
) -> None:
    # `generate_presigned_url` signs a header here, which the reader of a plain URL does not send.
    path = quote(key, safe="/-._~")
    request = AWSRequest("GET", f"http://127.0.0.1:9000/b-1/{path}?x-amz-request-payer=requester")
    S3SigV4QueryAuth(Credentials(ACCESS_KEY, SECRET_KEY, token), "s3", "r", expires=60).add_auth(request)
    theirs = parts(str(request.url))
    signer = native().Signer.s3(
        "b-1",
        region="r",
        endpoint="http://127.0.0.1:9000",
        path_style=True,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        session_token=token,
        requester_pays=True,
    )
    signed_at = calendar.timegm(time.strptime(theirs[3]["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
    ours, _ = signer.sign(key, now_ms=signed_at * 1000, lifetime_seconds=60)
    assert parts(ours) == theirs
