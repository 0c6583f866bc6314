"""Credentials that are renewed when half of their lifetime is over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from gateway import _native
from gateway.storage.credentials import Credentials, CredentialsUnavailable

C_co = TypeVar("C_co", bound=Credentials, covariant=True)

log = logging.getLogger("gateway.storages")
MINIMUM_RENEWAL_SECONDS = 60.0
"""A role returns the same keys when they are requested again too early."""
REFUSED_SECONDS = 5.0
FILE_SECONDS = 10.0
"""Credentials of a file are read again after this time."""


class RefreshingCredentials(Generic[C_co]):
    """Credentials that are renewed when half of their lifetime is over. Thread-safe."""

    def __init__(self, request: Callable[[], C_co], now_seconds: Callable[[], float] = time.time) -> None:
        """`request` blocks; it raises CredentialsUnavailable."""
        self._request = request
        self._now_seconds = now_seconds
        self._lock = threading.Lock()
        self._current: C_co | None = None
        self._renew_at_seconds = 0.0
        self._refused: tuple[float, CredentialsUnavailable] | None = None

    @property
    def current(self) -> C_co | None:
        """The last credentials."""
        return self._current

    @property
    def is_valid(self) -> bool:
        """Return whether `get` returns at once."""
        return self._current is not None and self._now_seconds() < self._renew_at_seconds

    @property
    def is_missing(self) -> bool:
        """Return whether credentials were requested and there were none so far."""
        return self._current is None and self._refused is not None

    def get(self) -> C_co:
        """Return valid credentials. Blocks while they are renewed. Raises LogError."""
        if not self.is_valid:
            with self._lock:
                if not self.is_valid:
                    self._renew()
        if self._current is None:
            raise self._failure(CredentialsUnavailable("no keys were found", lasting=True))
        return self._current

    def _renew(self) -> None:
        requested_at = self._now_seconds()
        if self._refused is not None and 0 <= requested_at - self._refused[0] < REFUSED_SECONDS:
            raise self._failure(self._refused[1])
        try:
            received = self._request()
        except CredentialsUnavailable as reason:
            self._refused = (requested_at, reason)
            log.warning("the storage's credentials were not renewed: %s", reason)
            if self._left_seconds(requested_at) <= 0:
                raise self._failure(reason) from None
            self._renew_at_seconds = requested_at + REFUSED_SECONDS
            return
        # Unchanged credentials stay the same object, so signers and answers made with them stay valid.
        self._current, self._refused = self._current if received == self._current else received, None
        left_seconds = self._left_seconds(requested_at)
        pause_seconds = max(left_seconds / 2, min(left_seconds, MINIMUM_RENEWAL_SECONDS), REFUSED_SECONDS)
        if received.file is not None:
            pause_seconds = min(pause_seconds, FILE_SECONDS)
        self._renew_at_seconds = requested_at + pause_seconds

    def _left_seconds(self, now_seconds: float) -> float:
        if self._current is None:
            return 0.0
        expires = self._current.expires
        return float("inf") if expires is None else expires.timestamp() - now_seconds

    def _failure(self, reason: CredentialsUnavailable) -> _native.LogError:
        # A storage that had credentials is expected to have them again.
        is_denied = reason.lasting and self._current is None
        kind = _native.StorageDenied if is_denied else _native.StorageUnavailable
        error = kind("the provider's keys to the storage cannot be found or renewed; the provider must act")
        error.detail = str(reason)
        return error
