"""Signed URLs, local and S3, open only their object, also by ranges."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.gateway_process import RunningGateway, files_of, running_gateway, share, storage
from support.raw_http import get
from support.versitygw import VersityGw
from support.waiting import WAIT_SECONDS, wait_until


def test_every_url_opens_its_file(demo_gateway: RunningGateway) -> None:
    files = files_of(demo_gateway, "cities") + files_of(demo_gateway, "orders")
    assert len(files) == 8
    for file in files:
        status, content = get(file["url"])
        assert (status, len(content), content[:4], content[-4:]) == (200, file["size"], b"PAR1", b"PAR1")


@pytest.mark.parametrize(
    ("requested", "expected"), [("bytes=0-3", slice(0, 4)), ("bytes=-4", slice(-4, None))]
)
def test_ranges_are_answered_by_206(demo_gateway: RunningGateway, requested: str, expected: slice) -> None:
    (file, *_) = files_of(demo_gateway, "cities")
    _, whole = get(file["url"])
    assert get(file["url"], headers={"Range": requested}) == (206, whole[expected])


def flipped(url: str) -> str:
    """Another signature."""
    return url[:-1] + ("0" if url[-1] != "0" else "1")


TAMPERED: dict[str, Callable[[str], str]] = {
    "signature": flipped,
    "path": lambda url: url.replace("/part-", "/parT-", 1),
    "expiry": lambda url: url.replace("expires=", "expires=1", 1).replace(
        "X-Amz-Expires=", "X-Amz-Expires=1", 1
    ),
    "no query": lambda url: url.split("?")[0],
    "no signature": lambda url: url.split("&signature=")[0].split("&X-Amz-Signature=")[0],
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_url_is_refused(demo_gateway: RunningGateway, tamper: Callable[[str], str]) -> None:
    for file in files_of(demo_gateway, "cities"):
        assert tamper(file["url"]) != file["url"]
        # Without any signature left versitygw calls the request malformed.
        assert get(tamper(file["url"]))[0] in (
            {400, 403} if "Signature" not in tamper(file["url"]) else {403}
        )


def test_a_url_opens_no_file_of_another_table(demo_gateway: RunningGateway) -> None:
    (own, *_), (other, *_) = files_of(demo_gateway, "cities"), files_of(demo_gateway, "orders")
    foreign = other["url"].split("?")[0] + "?" + own["url"].split("?")[1]
    assert get(foreign)[0] == 403


def test_a_url_opens_no_neighbour(demo_gateway: RunningGateway) -> None:
    files = files_of(demo_gateway, "cities")
    swapped = files[0]["url"].split("?")[0] + "?" + files[1]["url"].split("?")[1]
    assert get(swapped)[0] == 403


@pytest.mark.parametrize("where", ["local", "s3"])
def test_an_expired_url_is_refused(where: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if where == "local":
        demo: Path = request.getfixturevalue("demo_tables")
        tables, section = {"orders": str(demo / "orders")}, {}
    else:
        request.getfixturevalue("s3_gateway")
        store: VersityGw = request.getfixturevalue("versitygw")
        tables, section = {"orders": "s3://demo/ware house/50%+=ü/orders"}, {"storages": [storage(store)]}
    with running_gateway(tmp_path, [share("demo", tables)], section, preSignedUrlTimeoutSeconds=2) as served:
        (file, *_) = files_of(served, "orders")
        assert get(file["url"])[0] == 200
        until = file["expirationTimestamp"] / 1000
        assert until - time.time() <= 2
        # The clock of a real S3 server cannot be set.
        wait_until(lambda: get(file["url"])[0] == 403)
        assert until - 1 < time.time() < until + WAIT_SECONDS
