"""The native signer against google-cloud-storage, and its URLs against a verifier that reads them alone."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import example, given
from hypothesis import strategies as st
from support.http_service import Request
from support.native import NOW_MS, native
from support.object_keys import ODD_KEYS, keys
from support.signature_v4 import Keys, SignatureRefused, verify

BUCKET = "my_bucket.of-tests"
EMAIL = "reader@tests.iam.gserviceaccount.com"
ACCESS_ID, SECRET = "GOOG1E/+TESTS", "se/cret+key="
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
LONGEST_SECONDS = 7 * 86_400

lifetimes = st.integers(1, LONGEST_SECONDS)
projects = st.none() | st.just("my-project")
endpoints = st.sampled_from([None, "https://storage.example.com:8443"])


def odd_keys(test: Any) -> Any:
    """Each key that is hard to sign, beside the drawn ones."""
    for key in ODD_KEYS:
        test = example(key=key, lifetime_seconds=600, endpoint=None, project=None)(test)
    return test


@pytest.fixture(scope="module", autouse=True)
def needs_the_native_module() -> None:
    native()


@pytest.fixture(scope="module")
def account() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(account: rsa.RSAPrivateKey) -> str:
    return account.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def received(url: str) -> Request:
    """The request for a URL as a server receives it."""
    host, _, rest = url.partition("://")[2].partition("/")
    return Request("GET", f"/{rest}", {"host": host}, b"")


@odd_keys
@given(key=keys, lifetime_seconds=lifetimes, endpoint=endpoints, project=projects)
def test_a_url_by_a_service_accounts_key_is_that_of_googles_library(
    account: rsa.RSAPrivateKey, key: str, lifetime_seconds: int, endpoint: str | None, project: str | None
) -> None:
    from google.cloud.storage import _signing  # noqa: PLC0415 - slow to import
    from google.oauth2.service_account import Credentials  # noqa: PLC0415

    private_key = pem(account)
    information = {"client_email": EMAIL, "private_key": private_key, "token_uri": "https://token"}
    theirs = _signing.generate_signed_url_v4(
        Credentials.from_service_account_info(information),
        f"/{BUCKET}/{quote(key, safe='/~')}",
        expiration=timedelta(seconds=lifetime_seconds),
        api_access_endpoint=endpoint or "https://storage.googleapis.com",
        query_parameters={"userProject": project} if project else None,
        _request_timestamp=NOW.strftime("%Y%m%dT%H%M%SZ"),
    )
    signer = native().Signer.gcs(
        BUCKET, endpoint=endpoint, email=EMAIL, private_key=private_key, user_project=project
    )
    ours, expires_ms = signer.sign(key, now_ms=NOW_MS, lifetime_seconds=lifetime_seconds)
    assert ours == theirs
    assert expires_ms == NOW_MS + lifetime_seconds * 1000
    assert verify(received(ours), Keys({}, {EMAIL: account.public_key()}), now=NOW) == EMAIL


@odd_keys
@given(key=keys, lifetime_seconds=lifetimes, endpoint=endpoints, project=projects)
def test_a_url_by_an_hmac_key_is_verified_from_the_url_alone(
    key: str, lifetime_seconds: int, endpoint: str | None, project: str | None
) -> None:
    signer = native().Signer.gcs(
        BUCKET, endpoint=endpoint, access_id=ACCESS_ID, secret=SECRET, user_project=project
    )
    url, expires_ms = signer.sign(key, now_ms=NOW_MS, lifetime_seconds=lifetime_seconds)
    request = received(url)
    assert request.path == f"/{BUCKET}/{quote(key, safe='/-._~')}"
    assert request.query.get("userProject") == project
    assert verify(request, Keys({ACCESS_ID: SECRET}, {}), now=NOW) == ACCESS_ID
    end = datetime.fromtimestamp(expires_ms / 1000, UTC)
    with pytest.raises(SignatureRefused, match="ExpiredToken"):
        verify(request, Keys({ACCESS_ID: SECRET}, {}), now=end + timedelta(seconds=1))
    with pytest.raises(SignatureRefused, match="SignatureDoesNotMatch"):
        verify(request, Keys({ACCESS_ID: "another"}, {}), now=NOW)
