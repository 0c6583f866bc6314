"""Credentials that are renewed when half of their lifetime is over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Generic, TypeVar

from gateway import _native
from gateway.storage.credentials import (
    Credentials,
    CredentialsFailed,
    CredentialsUnavailable,
    without_credentials,
)
from gateway.storage.threads import DaemonThreads

C_co = TypeVar("C_co", bound=Credentials, covariant=True)

log = logging.getLogger("gateway.storages")
MINIMUM_RENEWAL_SECONDS = 60.0
"""A role returns the same keys when they are requested again too early."""
REFUSED_SECONDS = 5.0
REQUEST_SECONDS = 90.0
"""The longest time that callers wait for a request. Most clients of services bound single reads alone."""
FILE_SECONDS = 10.0
"""Credentials of a file are read again after this time."""


class RefreshingCredentials(Generic[C_co]):
    """Credentials that are renewed when half of their lifetime is over. Thread-safe.

    One thread at a time requests them. Others use the credentials that have not ended, wait for the first
    request, and fail at once after a failed request.
    """

    def __init__(
        self,
        request: Callable[[], C_co],
        now_seconds: Callable[[], float] = time.time,
        *,
        previous: RefreshingCredentials[C_co] | None = None,
        place: str = "the storage",
    ) -> None:
        """`request` blocks; it raises CredentialsUnavailable.

        The credentials of `previous` are used until their renewal is due. `place` names in messages what the
        credentials are for.
        """
        self._place = place
        self._request = request
        self._now_seconds = now_seconds
        self._lock = threading.Lock()
        self._state = threading.Lock()
        """For `_thread` and `_began`; never held while something blocks."""
        self._thread: threading.Thread | None = None
        self._began: float | None = None
        """The time of the first `start`, on a monotonic clock."""
        self._requested = threading.Event()
        """Set when the first request has ended."""
        self._attempts = 0
        self._current: C_co | None = None
        self._requested_at_seconds, self._renew_at_seconds = 0.0, 0.0
        self._refused: tuple[float, CredentialsUnavailable] | None = None
        self._running: Future[C_co] | None = None
        """A request that has not ended."""
        if previous is not None:
            self._current = previous.current
            self._requested_at_seconds, self._renew_at_seconds = previous.period_seconds

    @property
    def current(self) -> C_co | None:
        """The last credentials."""
        return self._current

    @property
    def period_seconds(self) -> tuple[float, float]:
        """The times of the last request and of the next renewal."""
        return self._requested_at_seconds, self._renew_at_seconds

    @property
    def is_valid(self) -> bool:
        """Return whether `get` returns at once."""
        # A clock that has stepped back was wrong at the last request, or is now: the end may come earlier.
        return (
            self._current is not None
            and self._requested_at_seconds <= self._now_seconds() < self._renew_at_seconds
        )

    @property
    def is_missing(self) -> bool:
        """Return whether credentials were requested and there were none so far."""
        return self._current is None and self._refused is not None

    def get(self) -> C_co:
        """Return valid credentials. Blocks while they are requested. Raises LogError."""
        if not self.is_valid:
            self._renew_once()
        if self._current is None:
            raise self._failure(CredentialsUnavailable("no keys were found", lasting=True))
        return self._current

    def refused(self) -> None:
        """Make the next `get` renew credentials that were not accepted, unless they are a moment old."""
        if self._now_seconds() - self._requested_at_seconds >= REFUSED_SECONDS:
            self._renew_at_seconds = self._requested_at_seconds

    def unexpired(self) -> C_co | None:
        """Return the last credentials, if they have not ended. Never blocks."""
        current = self._current
        return current if self._left_seconds(self._now_seconds()) > 0 else None

    def start(self, renew: Callable[[], object] | None = None) -> None:
        """Call `renew`, else `get`, on a new thread, unless such a thread runs. Never blocks."""
        with self._state:
            if self._began is None:
                self._began = time.monotonic()
            if not self._is_pausing() and (self._thread is None or not self._thread.is_alive()):
                # Not a thread of a pool: an identity that hangs would occupy it.
                self._thread = threading.Thread(
                    target=self._run, args=(renew or self.get,), name="credentials", daemon=True
                )
                self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the first request, at most `seconds` after its `start`."""
        began = self._began
        if began is not None:
            self._requested.wait(max(0.0, began + seconds - time.monotonic()))

    def _run(self, renew: Callable[[], object]) -> None:
        try:
            # Logged where it is raised, and raised again by the requests that need the credentials.
            with suppress(_native.LogError):
                renew()
        finally:
            self._requested.set()

    def _renew_once(self) -> None:
        """Renew unless another thread does. Raises LogError without credentials that have not ended."""
        attempts = self._attempts
        # The first request decides for all callers; later ones have something to return or to raise at once.
        waits = self._refused is None and self.unexpired() is None
        if not self._lock.acquire(blocking=waits):
            refused = self._refused
            if self.unexpired() is None and refused is not None:
                raise self._failure(refused[1])
            return
        try:
            if not self.is_valid:
                if self._refused is not None and self._attempts != attempts:
                    # The call for which this one has waited.
                    self._fail_without_keys(self._refused[1])
                else:
                    self._renew()
        finally:
            self._lock.release()

    def _renew(self) -> None:
        if self._refused is not None and self._is_pausing():
            raise self._failure(self._refused[1])
        requested_at = self._now_seconds()
        try:
            received = self._answer()
        except Exception as error:  # noqa: BLE001 - a service may answer anything
            reason = error if isinstance(error, CredentialsUnavailable) else without_credentials(error)
            # A service that hangs has taken its time: the pause begins now.
            refused_at = self._now_seconds()
            self._refused = (refused_at, reason)
            log.warning("%s's credentials were not renewed: %s", self._place, reason)
            self._fail_without_keys(reason)
            self._requested_at_seconds, self._renew_at_seconds = refused_at, refused_at + REFUSED_SECONDS
            return
        finally:
            self._attempts += 1
            self._requested.set()
        # Unchanged credentials stay the same object, so signers and answers made with them stay valid.
        self._current, self._refused = self._current if received == self._current else received, None
        left_seconds = self._left_seconds(requested_at)
        pause_seconds = max(left_seconds / 2, min(left_seconds, MINIMUM_RENEWAL_SECONDS), REFUSED_SECONDS)
        if received.file is not None:
            pause_seconds = min(pause_seconds, FILE_SECONDS)
        self._requested_at_seconds, self._renew_at_seconds = requested_at, requested_at + pause_seconds

    def _answer(self) -> C_co:
        """Return the answer to a request, also to one for which earlier calls have waited."""
        if self._running is None:
            self._running = DaemonThreads("credentials").submit(self._request)
        if not wait([self._running], REQUEST_SECONDS).done:
            raise CredentialsUnavailable(f"the service has not answered within {REQUEST_SECONDS:.0f} seconds")
        running, self._running = self._running, None
        return running.result()

    def _is_pausing(self) -> bool:
        """Return whether the last request failed a moment ago."""
        refused = self._refused
        return refused is not None and 0 <= self._now_seconds() - refused[0] < REFUSED_SECONDS

    def _left_seconds(self, now_seconds: float) -> float:
        if self._current is None:
            return 0.0
        expires = self._current.expires
        return float("inf") if expires is None else expires.timestamp() - now_seconds

    def _fail_without_keys(self, reason: CredentialsUnavailable) -> None:
        if self.unexpired() is None:
            # What it comes from may have the text of an answer.
            raise self._failure(reason) from None

    def _failure(self, reason: CredentialsUnavailable) -> _native.LogError:
        # A storage that had credentials is expected to have them again.
        is_denied = reason.lasting and self._current is None
        kind = _native.StorageDenied if is_denied else CredentialsFailed
        error = kind(
            f"the provider's keys to {self._place} cannot be found or renewed; the provider must act"
        )
        error.detail = str(reason)
        return error
