"""The cache of credentials, shared calls, and errors without secrets."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pytest
from support.gateway_app import Clock

from gateway import _native
from gateway.catalog.catalog import Recipient
from gateway.config import Location, StorageEntry
from gateway.config.networks import parse_networks
from gateway.config.operation import StorageFaults
from gateway.config.secret import Secret
from gateway.config.storages import default_entry
from gateway.config.storages.s3 import S3Entry
from gateway.errors import PermissionDenied, Unavailable
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.vending.cache import ENTRY_BYTES, CredentialCache
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential
from gateway.storage.vending.vendor import BUSY, PAUSED, CredentialVendor

NOW_MS = 1_795_000_000_000
ROLE = "arn:aws:iam::123456789012:role/reader"
ENTRY = S3Entry(Location("s3", "bucket", ""), role_arn=ROLE)
TABLE = Location.parse("s3a://bucket/t")
ALICE, BOB = (Recipient(name, frozenset({"*"})) for name in ("alice", "bob"))


@dataclass
class Issuer:
    """In place of the storages: counts the credentials that it issues."""

    clock: Clock
    entry_of: StorageEntry = ENTRY
    seconds: int | None = None
    error: Exception | None = None
    may_end: threading.Event = field(default_factory=threading.Event)
    hanging: frozenset[str] = frozenset()
    """Buckets whose service does not answer before `may_end`."""
    requests: list[CredentialRequest] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def entry(self, location: Location) -> StorageEntry:
        if self.hanging:
            return replace(ENTRY, prefix=Location("s3", location.bucket, ""))
        return self.entry_of if location.kind == "s3" else default_entry(location)

    def store(self, _location: Location) -> Self:
        return self

    def issuer(self, *, now_ms: Callable[[], int]) -> Callable[[CredentialRequest], TemporaryCredential]:
        def issue(request: CredentialRequest) -> TemporaryCredential:
            self.requests.append(request)
            self.threads.add(threading.current_thread().name.partition("_")[0])
            if not self.hanging or request.location.bucket in self.hanging:
                self.may_end.wait(10)
            if self.error is not None:
                raise self.error
            ends = now_ms() + 1000 * (request.seconds if self.seconds is None else self.seconds)
            number = str(len(self.requests))
            fields = {
                "accessKeyId": Secret(number),
                "secretAccessKey": Secret("s"),
                "sessionToken": Secret("t"),
            }
            return TemporaryCredential(request.location, "awsTempCredentials", fields, ends, number)

        return issue


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW_MS)


@pytest.fixture
def issuer(clock: Clock) -> Issuer:
    issuer = Issuer(clock)
    issuer.may_end.set()
    return issuer


def vendor_of(issuer: Issuer, clock: Clock, seconds: int = 3600, **changes: Any) -> CredentialVendor:
    options = {"faults": StorageFaults()} | changes
    storages: Any = issuer
    return CredentialVendor(storages, seconds=seconds, now_ms=clock, **options)


@pytest.fixture
def vendor(issuer: Issuer, clock: Clock) -> CredentialVendor:
    return vendor_of(issuer, clock)


async def key_id(vendor: CredentialVendor, recipient: Recipient = ALICE, **changes: Any) -> str:
    arguments = {"location": TABLE, "purpose": "table-id"} | changes
    return (await vendor.credential(arguments["location"], recipient, arguments["purpose"])).credential.key_id


async def test_a_credential_is_issued_again_when_half_of_its_life_is_over(
    vendor: CredentialVendor, issuer: Issuer, clock: Clock
) -> None:
    first = await vendor.credential(TABLE, ALICE, "table-id")
    clock.now_ms += 1_799_999
    again = await vendor.credential(TABLE, ALICE, "table-id")
    assert (first.is_cached, again.is_cached) == (False, True)
    assert again.credential is first.credential
    clock.now_ms += 1
    assert await key_id(vendor) == "2"
    assert issuer.threads == {"vending"}


async def test_a_credential_of_a_clock_that_was_ahead_is_not_answered_again(
    vendor: CredentialVendor, clock: Clock
) -> None:
    assert await key_id(vendor) == "1"
    clock.now_ms -= 8 * 3_600_000
    assert await key_id(vendor) == "2"
    assert await key_id(vendor) == "2"


async def test_a_credential_is_for_everything_that_it_depends_on(
    vendor: CredentialVendor, issuer: Issuer, clock: Clock
) -> None:
    near = replace(ALICE, networks=parse_networks(["192.0.2.0/24"]))
    seen = [
        await key_id(vendor),
        await key_id(vendor, BOB),
        await key_id(vendor, near),
        await key_id(vendor, purpose="another-table"),
        await key_id(vendor, location=Location.parse("s3://bucket/t")),
        await key_id(vendor, location=Location.parse("s3://bucket/aux")),
    ]
    issuer.entry_of = replace(ENTRY, role_arn=f"{ROLE}2")
    seen.append(await key_id(vendor))
    assert len(set(seen)) == len(seen) == len(issuer.requests)
    assert await key_id(vendor_of(issuer, clock, seconds=900)) not in seen
    assert await key_id(vendor) == seen[-1]


async def test_concurrent_requests_share_one_call_and_one_that_leaves_does_not_end_it(
    vendor: CredentialVendor, issuer: Issuer
) -> None:
    issuer.may_end.clear()
    waiting = [asyncio.create_task(key_id(vendor)) for _ in range(20)]
    while not issuer.requests:
        await asyncio.sleep(0.001)
    waiting[0].cancel()
    issuer.may_end.set()
    assert await asyncio.gather(*waiting[1:]) == ["1"] * 19
    assert len(issuer.requests) == 1


async def test_a_failed_call_fails_its_callers_and_is_not_kept(
    vendor: CredentialVendor, issuer: Issuer
) -> None:
    for lasting, kind in ((True, _native.StorageDenied), (False, _native.StorageUnavailable)):
        issuer.error = CredentialsUnavailable("the role arn:aws:secret", lasting=lasting)
        with pytest.raises(kind) as failed:
            await key_id(vendor)
        assert "arn" not in str(failed.value)
        assert "arn" in str(failed.value.detail)
    issuer.error = None
    assert await key_id(vendor) == "3"


async def test_cached_credentials_are_forgotten_when_grants_change_and_running_ones_are_not_kept(
    vendor: CredentialVendor, issuer: Issuer
) -> None:
    assert await key_id(vendor) == "1"
    vendor.forget({"alice"})
    issuer.may_end.clear()
    running = asyncio.create_task(key_id(vendor))
    while len(issuer.requests) < 2:
        await asyncio.sleep(0.001)
    vendor.forget({"alice"})
    issuer.may_end.set()
    assert await running == "2"
    assert await key_id(vendor) == "3"
    assert await key_id(vendor) == "3"


async def test_networks_that_a_store_cannot_hold_are_refused(
    vendor: CredentialVendor, issuer: Issuer
) -> None:
    near = replace(ALICE, networks=parse_networks(["192.0.2.0/24"]))
    issuer.entry_of = default_entry(TABLE)
    with pytest.raises(PermissionDenied, match="networks"):
        await key_id(vendor, near, location=Location.parse("gs://bucket/t"))
    assert issuer.requests == []


@pytest.mark.parametrize(
    "location", ["s3://bucket/", "/tables/t", "abfss://data@acct.dfs.core.windows.net/t"]
)
async def test_a_root_that_no_credential_can_be_limited_to_is_refused_again_here(
    vendor: CredentialVendor, issuer: Issuer, location: str
) -> None:
    with pytest.raises(_native.StorageDenied):
        await key_id(vendor, location=Location.parse(location))
    assert issuer.requests == []


async def test_a_credential_that_has_ended_is_not_answered(vendor: CredentialVendor, issuer: Issuer) -> None:
    issuer.seconds = 0
    with pytest.raises(_native.StorageUnavailable):
        await key_id(vendor)


def test_the_cache_is_bounded_in_bytes_and_keeps_what_was_used_last() -> None:
    credential = TemporaryCredential(
        TABLE, "gcpOauthToken", {"oauthToken": Secret("x" * 90)}, NOW_MS + 10, "id"
    )
    size = ENTRY_BYTES + credential.size_bytes
    cache: CredentialCache[str] = CredentialCache(3 * size)
    for key in "abc":
        cache.put(key, credential, now_ms=NOW_MS)
    assert cache.size_bytes == 3 * size
    assert cache.find("a", now_ms=NOW_MS) is credential
    cache.put("d", credential, now_ms=NOW_MS)
    assert [cache.find(key, now_ms=NOW_MS) for key in "abcd"] == [credential, None, credential, credential]
    assert [cache.find(key, now_ms=NOW_MS + 5) for key in "acd"] == [None] * 3
    assert (len(cache), cache.size_bytes) == (0, 0)
    CredentialCache(size - 1).put("a", credential, now_ms=NOW_MS)


async def test_a_storage_whose_service_hangs_leaves_the_others_alone_and_is_paused(
    issuer: Issuer, clock: Clock
) -> None:
    vendor = vendor_of(issuer, clock, call_seconds=1, faults=StorageFaults(failures=3, open_seconds=60))
    issuer.hanging = frozenset({"dead"})
    issuer.may_end.clear()
    dead = [asyncio.create_task(key_id(vendor, location=Location.parse(f"s3://dead/{n}"))) for n in range(40)]
    while len(issuer.requests) < 4:
        await asyncio.sleep(0.001)
    async with asyncio.timeout(0.75):
        await key_id(vendor, BOB, location=Location.parse("s3://good/t"))
        await key_id(vendor, ALICE, location=Location.parse("s3://good/t"))
    failures = await asyncio.gather(*dead, return_exceptions=True)
    assert {str(failure) for failure in failures} == {PAUSED}
    asked = len(issuer.requests)
    with pytest.raises(Unavailable, match=PAUSED):
        await key_id(vendor, BOB, location=Location.parse("s3://dead/t"))
    assert len(issuer.requests) == asked
    issuer.may_end.set()


async def test_a_recipient_has_a_part_of_the_calls_of_a_storage(
    vendor: CredentialVendor, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.storage.vending.vendor.QUEUE_SECONDS", 0.1)
    issuer.may_end.clear()
    greedy = [asyncio.create_task(key_id(vendor, purpose=n)) for n in range(20)]
    while len(issuer.requests) < 4:
        await asyncio.sleep(0.001)
    modest = asyncio.create_task(key_id(vendor, BOB))
    while not any(request.recipient == "bob" for request in issuer.requests):
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.2)
    assert [request.recipient for request in issuer.requests] == ["alice"] * 4 + ["bob"]
    issuer.may_end.set()
    await modest
    found = await asyncio.gather(*greedy, return_exceptions=True)
    assert [str(one) for one in found].count(BUSY) == 16
    assert vendor._slots == {}


async def test_the_credentials_of_recipients_that_did_not_change_stay_and_outlive_a_reload(
    vendor: CredentialVendor, issuer: Issuer, clock: Clock
) -> None:
    first, second = await key_id(vendor), await key_id(vendor, BOB)
    after = vendor_of(issuer, clock, previous=vendor)
    after.forget({"alice"})
    assert await key_id(after, BOB) == second
    assert await key_id(after) != first
    later = vendor_of(issuer, clock, seconds=1800, previous=after)
    assert await key_id(later, BOB) not in (first, second)


async def test_a_call_that_hangs_does_not_delay_the_exit_and_a_late_request_is_refused(
    vendor: CredentialVendor, issuer: Issuer
) -> None:
    issuer.may_end.clear()
    running = asyncio.create_task(key_id(vendor))
    while not issuer.requests:
        await asyncio.sleep(0.001)
    threads = [thread for thread in threading.enumerate() if thread.name == "vending"]
    assert threads
    assert all(thread.daemon for thread in threads)
    vendor.close()
    with pytest.raises(Unavailable, match="shutting down"):
        await key_id(vendor, BOB)
    issuer.may_end.set()
    assert await running == "1"


async def test_an_unexpected_error_of_a_provider_is_no_internal_error(
    vendor: CredentialVendor, issuer: Issuer
) -> None:
    issuer.error = KeyError("the text of an answer")
    with pytest.raises(_native.StorageUnavailable) as failed:
        await key_id(vendor)
    assert str(failed.value.detail) == "no credentials in the answer (KeyError)"
