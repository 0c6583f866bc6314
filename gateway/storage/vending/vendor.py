"""Issues temporary credentials for directories: of tables, and of anything else with a location.

In: a location and a recipient. Out: a `TemporaryCredential`, cached until half of its life is over. Requests
for the same credential share one call. The calls of each entry of `gateway.storages` have their own bound and
their own circuit breaker, and a recipient has a part of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Hashable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gateway import _native
from gateway.catalog.catalog import Recipient
from gateway.config import Location, StorageEntry
from gateway.config.operation import StorageFaults
from gateway.errors import PermissionDenied, Unavailable
from gateway.limits.admission import Admission, whole_pause
from gateway.storage.breaker import StorageDown
from gateway.storage.calls import Caller, StorageCalls
from gateway.storage.credentials import CredentialsFailed, CredentialsUnavailable, without_credentials
from gateway.storage.threads import DaemonThreads
from gateway.storage.vending.cache import CredentialCache
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential

if TYPE_CHECKING:
    from gateway.storage.registry import Storages

CONCURRENT_REQUESTS = 8
"""Calls for one entry of `gateway.storages` at the same time."""
RECIPIENT_REQUESTS = 4
"""The requests of one recipient."""
QUEUED_REQUESTS = 256
QUEUE_SECONDS = 5.0
CALL_SECONDS = 10.0
"""The longest time that a request waits for its call, which may end later."""
CACHE_BYTES = 8 * 1024 * 1024
NOT_ISSUED = "the provider's storage issues no temporary credentials for this location; the provider must act"
BUSY = "more temporary credentials are requested at once than the storage issues; repeat the request"
PAUSED = (
    "the service that issues the storage's temporary credentials does not answer; repeat the request later"
)

log = logging.getLogger("gateway.storages")


@dataclass(frozen=True, slots=True)
class CredentialKey:
    """Everything that a credential depends on.

    Attributes:
        purpose: identifies the table or another resource.
        scheme: decides about the location in the answer, and is not compared with other locations.
        request: the request for it.
        entry: the entry of the storage.

    """

    purpose: Hashable
    scheme: str
    request: CredentialRequest
    entry: StorageEntry


@dataclass(frozen=True, slots=True)
class Issued:
    """A credential, everything that it depends on, and whether it was issued to an earlier request."""

    credential: TemporaryCredential
    key: CredentialKey
    is_cached: bool


class CredentialVendor:
    """Issues the temporary credentials of one configuration. Used on one event loop."""

    def __init__(
        self,
        storages: Storages,
        *,
        seconds: int,
        now_ms: Callable[[], int],
        faults: StorageFaults,
        call_seconds: float | None = None,
        previous: CredentialVendor | None = None,
    ) -> None:
        """`seconds`: the requested lifetime. `faults`: of the circuit breakers.

        A request waits for `call_seconds` at most, or for CALL_SECONDS. The credentials of `previous` stay
        cached: each has everything that it depends on as its key.
        """
        self._storages = storages
        self._seconds = seconds
        self._now_ms = now_ms
        self._call_seconds = min(call_seconds or CALL_SECONDS, CALL_SECONDS)
        self._faults = replace(
            faults,
            concurrent_calls=CONCURRENT_REQUESTS,
            queued_calls=QUEUED_REQUESTS,
            queue_seconds=QUEUE_SECONDS,
        )
        self.cache: CredentialCache[CredentialKey] = (
            previous.cache if previous else CredentialCache(CACHE_BYTES)
        )
        self._running: dict[CredentialKey, asyncio.Task[TemporaryCredential]] = {}
        self._calls: dict[str, StorageCalls] = {}
        self._slots: dict[tuple[str, str], Admission] = {}
        """Those of a recipient for a storage, while there are calls."""
        self._threads = DaemonThreads("vending")
        self._is_closed = False

    async def credential(self, location: Location, recipient: Recipient, purpose: Hashable) -> Issued:
        """Return a credential that reads a location. `purpose` identifies the table or another resource.

        The caller has checked the grant. Raises PermissionDenied where the credential cannot be limited to
        the recipient's networks, Unavailable, and LogError where the provider's identity cannot issue it.
        """
        problem = self._storages.entry(location).networks_problem(recipient.networks)
        if problem is not None:
            raise PermissionDenied(f"{problem}, and the recipient has networks")
        key = self.key(location, recipient, purpose)
        cached = self.cache.find(key, now_ms=self._now_ms())
        if cached is not None:
            return Issued(cached, key, is_cached=True)
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.ensure_future(self._issue(key))
            running.add_done_callback(lambda task: self._ended(key, task))
        # A caller that leaves does not end the call of the others.
        return Issued(await asyncio.shield(running), key, is_cached=False)

    def key(self, location: Location, recipient: Recipient, purpose: Hashable) -> CredentialKey:
        """Return everything that a credential depends on under this configuration."""
        request = CredentialRequest(location, recipient.name, recipient.networks, self._seconds)
        return CredentialKey(purpose, location.scheme, request, self._storages.entry(location))

    def discard(self, issued: Issued) -> None:
        """Remove a credential whose recipient has lost access."""
        self.cache.remove(issued.key)

    def issuer(self, request: CredentialRequest) -> Callable[[], TemporaryCredential]:
        """Return a function that issues a credential. It blocks, and raises LogError. Raises LogError."""
        location = request.location
        problem = self._storages.entry(location).root_problem(location)
        if problem is not None:
            raise _failure(CredentialsUnavailable(problem, lasting=True))
        issue = self._storages.store(location).issuer(now_ms=self._now_ms)

        def issued() -> TemporaryCredential:
            try:
                return issue(request)
            except CredentialsUnavailable as reason:
                raise _failure(reason) from None
            except _native.LogError:
                raise
            except Exception as error:  # noqa: BLE001 - a provider may answer anything
                raise _failure(without_credentials(error)) from None

        return issued

    def forget(self, recipients: Collection[str]) -> None:
        """Remove the cached credentials of recipients, as when their grants have changed."""

        def is_theirs(key: CredentialKey) -> bool:
            return key.request.recipient in recipients

        self.cache.remove_if(is_theirs)
        # A running request serves only its callers.
        for key in [key for key in self._running if is_theirs(key)]:
            del self._running[key]

    def close(self) -> None:
        """Refuse new calls; running ones end by their own timeouts and do not delay the exit."""
        self._is_closed = True

    async def _issue(self, key: CredentialKey) -> TemporaryCredential:
        if self._is_closed:
            raise Unavailable("the server is shutting down")
        request = key.request
        storage = key.entry.prefix.url
        task = asyncio.current_task()
        async with self._slot(storage, request.recipient):
            issue = self.issuer(request)
            try:
                issued = await self._storage_calls(storage).run(Caller(request.recipient, ""), issue)
            except StorageDown as down:
                log.warning("a temporary credential is not issued: the service does not answer, or is paused")
                pause_seconds = whole_pause(down.retry_after_seconds)
                raise Unavailable(PAUSED, retry_after_seconds=pause_seconds) from None
        now_ms = self._now_ms()
        if issued.expires_ms <= now_ms:
            raise _failure(CredentialsUnavailable("the provider issues a credential that has ended"))
        if self._running.get(key) is task:
            self.cache.put(key, issued, now_ms=now_ms)
        return issued

    @asynccontextmanager
    async def _slot(self, storage: str, recipient: str) -> AsyncIterator[None]:
        """Hold one of the recipient's slots for a storage. Raises Unavailable."""
        owner = (storage, recipient)
        slots = self._slots.get(owner)
        if slots is None:
            slots = self._slots[owner] = Admission(
                RECIPIENT_REQUESTS, queue_length=QUEUED_REQUESTS, queue_seconds=QUEUE_SECONDS
            )
        if not await slots.enter():
            raise Unavailable(BUSY)
        try:
            yield
        finally:
            slots.leave()
            if not slots.used:
                self._slots.pop(owner, None)

    def _storage_calls(self, storage: str) -> StorageCalls:
        if storage not in self._calls:
            self._calls[storage] = StorageCalls(
                storage,
                self._faults,
                now_seconds=time.monotonic,
                is_fault=lambda error: isinstance(error, _native.StorageUnavailable),
                call_seconds=self._call_seconds,
                threads=self._threads,
            )
        return self._calls[storage]

    def _ended(self, key: CredentialKey, task: asyncio.Task[TemporaryCredential]) -> None:
        if self._running.get(key) is task:
            del self._running[key]
        with suppress(asyncio.CancelledError):
            # Read, so that an error whose callers have left is not reported as unhandled.
            task.exception()


def _failure(reason: CredentialsUnavailable) -> _native.LogError:
    error = _native.StorageDenied(NOT_ISSUED) if reason.lasting else CredentialsFailed(NOT_ISSUED)
    error.detail = str(reason)
    return error
