"""The tests' server of Google Cloud Storage accepts URLs of Google's own library, and no others."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from support.google_identity import EMAIL, GoogleIdentity
from support.google_storage import GoogleStorage
from support.http_service import Request
from support.raw_http import get
from support.signature_v4 import Keys, SignatureRefused, verify

KEYS = ["p=a%20b/x", "p=a b/x", "p=é/x", "x+y", "q!'()*@$&,;:~", "%41", "A", "a/b?c#d"]
BUCKET = "of-googles-library"
HMAC_KEY = ("GOOG1ETESTS", "the-secret-of-the-key")


@pytest.fixture(scope="module")
def storage(google_storage_server: GoogleStorage) -> GoogleStorage:
    for key in KEYS:
        google_storage_server.put(BUCKET, key, key.encode())
    google_storage_server.secrets[HMAC_KEY[0]] = HMAC_KEY[1]
    return google_storage_server


@pytest.fixture(scope="module")
def sign(
    storage: GoogleStorage, google_account: GoogleIdentity, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., str]:
    from google.cloud.storage import Bucket, Client  # noqa: PLC0415 - slow to import
    from google.oauth2.service_account import Credentials  # noqa: PLC0415

    file = google_account.service_account_file(tmp_path_factory.mktemp("google"))
    credentials = Credentials.from_service_account_file(str(file))
    bucket = Bucket(Client(project="tests", credentials=credentials), BUCKET)

    def signed(key: str, **options: Any) -> str:
        options = {"expiration": timedelta(minutes=10), "api_access_endpoint": storage.endpoint} | options
        url: str = bucket.blob(key).generate_signed_url(version="v4", credentials=credentials, **options)
        return url

    return signed


@pytest.mark.parametrize("key", KEYS)
def test_a_url_of_googles_library_opens_its_object_alone(sign: Callable[..., str], key: str) -> None:
    assert get(sign(key)) == (200, key.encode())


def test_a_range_is_answered_alone(sign: Callable[..., str]) -> None:
    assert get(sign("x+y"), headers={"Range": "bytes=1-1"}) == (206, b"+")


TAMPERED: dict[str, Callable[[str], str]] = {
    "signature": lambda url: url[:-1] + ("0" if url[-1] != "0" else "1"),
    "key": lambda url: url.replace("x%2By", "A"),
    "lifetime": lambda url: url.replace("X-Goog-Expires=600", "X-Goog-Expires=601"),
    "parameter": lambda url: url + "&userProject=other",
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_url_is_refused(
    storage: GoogleStorage, sign: Callable[..., str], tamper: Callable[[str], str]
) -> None:
    url = sign("x+y")
    assert tamper(url) != url
    assert get(tamper(url))[0] == 403
    assert storage.codes[-1] == "SignatureDoesNotMatch"


def test_an_ended_url_is_refused(storage: GoogleStorage, sign: Callable[..., str]) -> None:
    url = sign("A", expiration=timedelta(seconds=1))
    signed = url.partition("X-Goog-Date=")[2][:16]
    begin = datetime.strptime(signed, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    request = Request("GET", url.removeprefix(storage.endpoint), {"host": url.split("/")[2]}, b"")
    keys = Keys(storage.secrets, storage.public_keys)
    assert verify(request, keys, now=begin + timedelta(seconds=1)) == EMAIL
    with pytest.raises(SignatureRefused, match="ExpiredToken"):
        verify(request, keys, now=begin + timedelta(seconds=2))


@pytest.fixture
def interoperable(storage: GoogleStorage) -> Iterator[Any]:
    """A client of S3 with an HMAC key, as the interoperable API has it."""
    client = boto3.client(
        "s3",
        endpoint_url=storage.endpoint,
        region_name="auto",
        aws_access_key_id=HMAC_KEY[0],
        aws_secret_access_key=HMAC_KEY[1],
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
    )
    with closing(client):
        yield client


@pytest.mark.parametrize("key", KEYS)
def test_an_hmac_key_reads_through_the_interoperable_api(interoperable: Any, key: str) -> None:
    with closing(interoperable.get_object(Bucket=BUCKET, Key=key)["Body"]) as body:
        assert body.read() == key.encode()
    url = interoperable.generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": key}, ExpiresIn=60)
    assert get(url) == (200, key.encode())


def test_the_objects_are_listed_by_pages_and_directories(interoperable: Any) -> None:
    first = interoperable.list_objects_v2(Bucket=BUCKET, MaxKeys=3)
    assert first["IsTruncated"]
    rest = interoperable.list_objects_v2(Bucket=BUCKET, ContinuationToken=first["NextContinuationToken"])
    assert [found["Key"] for found in first["Contents"] + rest["Contents"]] == sorted(KEYS)
    found = interoperable.list_objects_v2(Bucket=BUCKET, Prefix="p=a", Delimiter="/")
    assert [prefix["Prefix"] for prefix in found["CommonPrefixes"]] == ["p=a b/", "p=a%20b/"]


def test_an_unknown_hmac_key_is_refused(storage: GoogleStorage, interoperable: Any) -> None:
    storage.secrets[HMAC_KEY[0]] = "another"
    try:
        with pytest.raises(ClientError, match="403"):
            interoperable.head_object(Bucket=BUCKET, Key="A")
    finally:
        storage.secrets[HMAC_KEY[0]] = HMAC_KEY[1]


def test_each_file_of_google_gets_a_token_that_reads(
    storage: GoogleStorage, google_account: GoogleIdentity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import google.auth  # noqa: PLC0415 - slow to import
    import google.auth.transport.requests  # noqa: PLC0415
    import requests  # noqa: PLC0415

    scope = ["https://www.googleapis.com/auth/devstorage.read_only"]
    files = [
        google_account.service_account_file(tmp_path),
        google_account.external_account_file(tmp_path, impersonates=True),
    ]
    # Without it the library asks Google for the project of a federated identity.
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "tests")
    with requests.Session() as session:
        request = google.auth.transport.requests.Request(session)
        for file in files:
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
            credentials, _ = google.auth.default(scopes=scope, request=request)
            credentials.refresh(request)
            headers = {"Authorization": f"Bearer {credentials.token}"}
            assert get(f"{storage.endpoint}/{BUCKET}/A", headers=headers) == (200, b"A"), file
    wrong = {"Authorization": "Bearer another"}
    assert get(f"{storage.endpoint}/{BUCKET}/A", headers=wrong)[0] == 401
