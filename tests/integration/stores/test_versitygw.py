"""The S3 server of the tests refuses the requests that S3 refuses, which tests of signed URLs rely on."""

import urllib.error
import urllib.parse
import urllib.request
from contextlib import closing

import pytest
from support.versitygw import VersityGw

KEY = "table/region=50%25 a+b=ü/part 1.parquet"


@pytest.fixture(scope="module")
def url(versitygw: VersityGw) -> str:
    versitygw.make_bucket("own")
    with closing(versitygw.client()) as client:
        client.put_object(Bucket="own", Key=KEY, Body=b"0123456789")
        return client.generate_presigned_url("get_object", {"Bucket": "own", "Key": KEY}, ExpiresIn=600)


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return refusal.code


def test_a_signed_url_opens_its_object_by_ranges(url: str) -> None:
    request = urllib.request.Request(url, headers={"Range": "bytes=2-4"})
    with urllib.request.urlopen(request) as answer:
        assert (answer.status, answer.read()) == (206, b"234")


@pytest.mark.parametrize(
    "tamper",
    [
        lambda url: url.replace("X-Amz-Signature=", "X-Amz-Signature=0")[:-1],
        lambda url: url.replace("/own/table/", "/own/tablf/"),
        lambda url: url.replace("X-Amz-Expires=600", "X-Amz-Expires=601"),
        lambda url: url.replace("us-east-1", "eu-west-1"),
    ],
    ids=["signature", "key", "lifetime", "region"],
)
def test_a_tampered_url_is_refused(url: str, tamper) -> None:
    assert tamper(url) != url
    assert status(tamper(url)) in {400, 403}


def test_a_url_without_its_query_is_refused(url: str) -> None:
    assert status(urllib.parse.urlsplit(url)._replace(query="").geturl()) == 403
