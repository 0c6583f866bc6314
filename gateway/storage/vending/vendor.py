"""Issues temporary credentials for directories: of tables, and of anything else with a location.

In: a location and a recipient. Out: a `TemporaryCredential`, cached until half of its life is over. Requests
for the same credential share one call, on a thread of the vendor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway import _native
from gateway.config.directory_access import networks_problem, root_problem
from gateway.errors import PermissionDenied, Unavailable
from gateway.limits.admission import Admission
from gateway.storage.credentials import CredentialsFailed, CredentialsUnavailable
from gateway.storage.vending.cache import CredentialCache
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential

if TYPE_CHECKING:
    from gateway.access.catalog import Recipient
    from gateway.config import Location
    from gateway.storage.registry import Storages

CONCURRENT_REQUESTS = 8
QUEUED_REQUESTS = 256
QUEUE_SECONDS = 5.0
CACHE_BYTES = 8 * 1024 * 1024
NOT_ISSUED = "the provider's storage issues no temporary credentials for this location; the provider must act"


@dataclass(frozen=True, slots=True)
class Issued:
    """A credential, everything that it depends on, and whether it was issued to an earlier request."""

    credential: TemporaryCredential
    key: Hashable
    is_cached: bool


class CredentialVendor:
    """Issues the temporary credentials of one configuration. Used on one event loop."""

    def __init__(self, storages: Storages, *, seconds: int, now_ms: Callable[[], int]) -> None:
        """`seconds`: the requested lifetime."""
        self._storages = storages
        self._seconds = seconds
        self._now_ms = now_ms
        self._cache = CredentialCache(CACHE_BYTES)
        self._running: dict[Hashable, asyncio.Task[TemporaryCredential]] = {}
        self._admission = Admission(
            CONCURRENT_REQUESTS, queue_length=QUEUED_REQUESTS, queue_seconds=QUEUE_SECONDS
        )
        self._threads = ThreadPoolExecutor(CONCURRENT_REQUESTS, thread_name_prefix="vending")

    async def credential(self, location: Location, recipient: Recipient, purpose: Hashable) -> Issued:
        """Return a credential that reads a location. `purpose` identifies the table or another resource.

        The caller has checked the grant. Raises PermissionDenied where the credential cannot be limited to
        the recipient's networks, Unavailable, and LogError where the provider's identity cannot issue it.
        """
        problem = networks_problem(location, self._storages.entry(location), recipient.networks)
        if problem is not None:
            raise PermissionDenied(f"{problem}, and the recipient has networks")
        key = self.key(location, recipient, purpose)
        cached = self._cache.find(key, now_ms=self._now_ms())
        if cached is not None:
            return Issued(cached, key, is_cached=True)
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.ensure_future(
                self._issue(key, self._request(location, recipient))
            )
            running.add_done_callback(lambda task: self._ended(key, task))
        # A caller that leaves does not end the call of the others.
        return Issued(await asyncio.shield(running), key, is_cached=False)

    def key(self, location: Location, recipient: Recipient, purpose: Hashable) -> Hashable:
        """Return everything that a credential depends on under this configuration."""
        # The scheme decides about the location in the answer, and is no part of its comparison.
        entry = self._storages.entry(location)
        return (purpose, location.scheme, self._request(location, recipient), entry)

    def discard(self, issued: Issued) -> None:
        """Remove a credential whose recipient has lost access."""
        self._cache.remove(issued.key)

    def _request(self, location: Location, recipient: Recipient) -> CredentialRequest:
        return CredentialRequest(location, recipient.name, recipient.networks, self._seconds)

    def issuer(self, request: CredentialRequest) -> Callable[[], TemporaryCredential]:
        """Return a function that issues a credential. It blocks, and raises LogError. Raises LogError."""
        location = request.location
        problem = root_problem(location, self._storages.entry(location))
        if problem is not None:
            raise _failure(CredentialsUnavailable(problem, lasting=True))
        issue = self._storages.issuer(location, now_ms=self._now_ms)

        def issued() -> TemporaryCredential:
            try:
                return issue(request)
            except CredentialsUnavailable as reason:
                raise _failure(reason) from None

        return issued

    def forget(self) -> None:
        """Remove the cached credentials, as when grants have changed."""
        self._cache.clear()
        # A running request is for its callers alone.
        self._running.clear()

    def close(self) -> None:
        """Stop the threads; running calls end by their own timeouts."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _issue(self, key: Hashable, request: CredentialRequest) -> TemporaryCredential:
        if not await self._admission.enter():
            raise Unavailable("too many temporary credentials are being requested")
        task = asyncio.current_task()
        try:
            issue = self.issuer(request)
            issued = await asyncio.get_running_loop().run_in_executor(self._threads, issue)
        finally:
            self._admission.leave()
        now_ms = self._now_ms()
        if issued.expires_ms <= now_ms:
            raise _failure(CredentialsUnavailable("the provider issues a credential that has ended"))
        if self._running.get(key) is task:
            self._cache.keep(key, issued, now_ms=now_ms)
        return issued

    def _ended(self, key: Hashable, task: asyncio.Task[TemporaryCredential]) -> None:
        if self._running.get(key) is task:
            del self._running[key]
        with suppress(asyncio.CancelledError):
            # Read, so that an error whose callers have left is not reported as unhandled.
            task.exception()


def _failure(reason: CredentialsUnavailable) -> _native.LogError:
    error = _native.StorageDenied(NOT_ISSUED) if reason.lasting else CredentialsFailed(NOT_ISSUED)
    error.detail = str(reason)
    return error
