"""Any key goes through a location, a signed URL and a store unchanged."""

import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.azurite_server import Azurite
from support.google_storage import GoogleStorage
from support.native import native
from support.raw_http import get
from support.versitygw import VersityGw

from gateway.config import Location

BUCKET = "round-trips"
NUMBERS = count()
# Without control characters and backslashes, which not all of these stores accept in a key.
segments = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="/\\"),
    min_size=1,
    max_size=24,
).filter(lambda segment: segment.strip(".") == segment and len(segment.encode()) < 200)
keys = st.lists(segments, min_size=1, max_size=3).map("/".join)


def check(put: Callable[[str, bytes], object], sign: Callable[[str], Any], location: str, key: str) -> None:
    """Put an object at the key of a location; its URL opens it, and no URL of another key does."""
    # Keys of examples neither overwrite one another nor are directories of one another.
    key = f"{next(NUMBERS)}/{key}"
    encoded = quote(key) if location.startswith("https:") else key
    assert Location.parse(f"{location}{encoded}").key == key
    put(key, key.encode())
    url, _ = sign(key)
    assert get(url) == (200, key.encode())
    other, _ = sign(f"{key}x")
    assert get(f"{url.partition('?')[0]}?{other.partition('?')[2]}")[0] == 403


def now() -> dict[str, int]:
    return {"now_ms": int(time.time() * 1000), "lifetime_seconds": 600}


@given(key=keys)
def test_of_azure(azurite: Azurite, key: str) -> None:
    signer = native().Signer.azure(
        azurite.account, BUCKET, endpoint=azurite.endpoint, account_key=azurite.account_key
    )
    check(
        lambda name, content: azurite.put(BUCKET, name, content),
        lambda name: signer.sign(name, **now()),
        f"https://{azurite.account}.blob.core.windows.net/{BUCKET}/",
        key,
    )


@given(key=keys)
def test_of_google(google_storage_server: GoogleStorage, key: str) -> None:
    google_storage_server.secrets["GOOG1ROUND"] = "secret"
    signer = native().Signer.gcs(
        BUCKET, endpoint=google_storage_server.endpoint, access_id="GOOG1ROUND", secret="secret"
    )
    check(
        lambda name, content: google_storage_server.put(BUCKET, name, content),
        lambda name: signer.sign(name, **now()),
        f"gs://{BUCKET}/",
        key,
    )


@pytest.fixture(scope="module")
def client(versitygw: VersityGw) -> Any:
    with closing(versitygw.client()) as client:
        versitygw.make_bucket(BUCKET)
        yield client


@given(key=keys)
def test_of_s3(versitygw: VersityGw, client: Any, key: str) -> None:
    signer = native().Signer.s3(
        BUCKET,
        region=versitygw.region,
        endpoint=versitygw.endpoint,
        path_style=True,
        access_key_id=versitygw.access_key_id,
        secret_access_key=versitygw.secret_access_key,
    )
    check(
        lambda name, content: client.put_object(Bucket=BUCKET, Key=name, Body=content),
        lambda name: signer.sign(name, **now()),
        f"s3://{BUCKET}/",
        key,
    )
