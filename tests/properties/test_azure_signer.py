"""The native signer against azure-storage-blob: the same blob, key and end have the same signature."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.native import NOW_MS, native
from support.object_keys import ODD_KEYS, keys

ACCOUNT, CONTAINER = "myaccount", "my-container"
VERSION = "2022-11-02"
ACCOUNT_KEY = base64.b64encode(bytes(range(64))).decode()
DELEGATION = {
    "object_id": "b2c3d4e5-f607-4182-93a4-b5c6d7e8f901",
    "tenant_id": "0f7d4c8e-5b1a-4f0e-9a52-3c1a6d7e8f90",
    "start": "2027-01-15T07:00:00Z",
    "expiry": "2027-01-21T07:00:00Z",
    "service": "b",
    "version": "2022-11-02",
    "value": base64.b64encode(bytes(range(32, 64))).decode(),
}
# Lines of the string to sign that a later version of the service has: the delegated user's tenant and object,
# headers and query parameters.
LATER_LINES = (13, 14, 21, 22)

lifetimes = st.integers(1, 86_400)
endpoints = st.sampled_from([
    None, "http://127.0.0.1:10000/myaccount", "https://lake.example.com:8443", "https://a.blob.core.usgovcloudapi.net"
])  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def needs_the_native_module() -> None:
    native()


def odd_keys(test: Any) -> Any:
    """Each key that is hard to sign, beside the drawn ones."""
    for key in ODD_KEYS:
        test = example(key=key, lifetime_seconds=600, endpoint=None, portable=False)(test)
    return test


def string_to_sign(key: str, expires_ms: int, endpoint: str | None, delegation_key: Any = None) -> str:
    """The string that Azure's own library signs."""
    from azure.storage.blob._shared_access_signature import (  # noqa: PLC0415 - slow to import
        BlobSharedAccessSignature,
    )

    library = BlobSharedAccessSignature(
        ACCOUNT, None if delegation_key else ACCOUNT_KEY, user_delegation_key=delegation_key
    )
    library.x_ms_version = VERSION
    strings: list[str] = []
    library.generate_blob(
        CONTAINER,
        key,
        permission="r",
        expiry=datetime.fromtimestamp(expires_ms / 1000, UTC),
        protocol=None if (endpoint or "").startswith("http:") else "https",
        sts_hook=strings.append,
    )
    return strings[0]


def check(url: str, key: str, endpoint: str | None, text: str, signing_key: str) -> dict[str, str]:
    """Check the place and the signature of a URL; return its query."""
    split = urlsplit(url)
    base = endpoint or f"https://{ACCOUNT}.blob.core.windows.net"
    assert url.partition("?")[0] == f"{base}/{CONTAINER}/{quote(key, safe='/-._~')}"
    query = dict(parse_qsl(split.query, strict_parsing=True))
    digest = hmac.new(base64.b64decode(signing_key), text.encode(), hashlib.sha256).digest()
    assert query["sig"] == base64.b64encode(digest).decode()
    # A plus sign in a query is a space.
    assert "+" not in split.query
    return query


@odd_keys
@given(key=keys, lifetime_seconds=lifetimes, endpoint=endpoints, portable=st.booleans())
def test_a_signature_of_the_accounts_key_is_that_of_azures_library(
    key: str, lifetime_seconds: int, endpoint: str | None, portable: bool
) -> None:
    signer = native().Signer.azure(
        ACCOUNT, CONTAINER, endpoint=endpoint, account_key=ACCOUNT_KEY, portable=portable
    )
    url, expires_ms = signer.sign(key, now_ms=NOW_MS, lifetime_seconds=lifetime_seconds)
    assert expires_ms == NOW_MS + lifetime_seconds * 1000
    text = string_to_sign(key, expires_ms, endpoint)
    query = check(url, key, endpoint, text, ACCOUNT_KEY)
    # A key may contain line breaks.
    values = text.replace(f"/blob/{ACCOUNT}/{CONTAINER}/{key}", "", 1).split("\n")
    assert {value for value in query.values() if value != query["sig"]} == {
        value for value in values if value
    }


@odd_keys
@given(key=keys, lifetime_seconds=lifetimes, endpoint=endpoints, portable=st.booleans())
def test_a_signature_of_a_user_delegation_key_is_that_of_azures_library(
    key: str, lifetime_seconds: int, endpoint: str | None, portable: bool
) -> None:
    from azure.storage.blob import UserDelegationKey  # noqa: PLC0415 - slow to import

    signer = native().Signer.azure(
        ACCOUNT,
        CONTAINER,
        endpoint=endpoint,
        delegation_key=native().DelegationKey(**DELEGATION),
        portable=portable,
    )
    url, expires_ms = signer.sign(key, now_ms=NOW_MS, lifetime_seconds=lifetime_seconds)
    theirs = UserDelegationKey()
    theirs.signed_oid, theirs.signed_tid = DELEGATION["object_id"], DELEGATION["tenant_id"]
    theirs.signed_start, theirs.signed_expiry = DELEGATION["start"], DELEGATION["expiry"]
    theirs.signed_service, theirs.signed_version = DELEGATION["service"], DELEGATION["version"]
    theirs.value = DELEGATION["value"]
    lines = string_to_sign(key, expires_ms, endpoint, theirs).split("\n")
    # No line of a drawn key comes before the resource's own, which may have line breaks itself.
    extra = key.count("\n")
    kept = [line for number, line in enumerate(lines) if number - extra not in LATER_LINES]
    assert len(kept) - extra == 24
    query = check(url, key, endpoint, "\n".join(kept), DELEGATION["value"])
    named = {"skoid": "object_id", "sktid": "tenant_id", "skt": "start", "ske": "expiry"}
    named |= {"sks": "service", "skv": "version"}
    assert {name: query[name] for name in named} == {name: DELEGATION[field] for name, field in named.items()}


def test_a_url_ends_before_its_delegation_key_and_its_session() -> None:
    key = native().DelegationKey(**DELEGATION)
    end = datetime.fromisoformat(DELEGATION["expiry"])
    end_ms = int(end.timestamp() * 1000)
    near = int((end - timedelta(minutes=10)).timestamp() * 1000)
    signer = native().Signer.azure(ACCOUNT, CONTAINER, delegation_key=key)
    assert signer.sign("a", now_ms=near, lifetime_seconds=3600)[1] <= end_ms
    sooner = native().Signer.azure(
        ACCOUNT, CONTAINER, delegation_key=key, credentials_expire_ms=near + 300_000
    )
    assert sooner.sign("a", now_ms=near, lifetime_seconds=3600)[1] <= near + 300_000
