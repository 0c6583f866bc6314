"""Credentials that are renewed when half of their lifetime is over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway import _native
from gateway.storage.aws.credentials import (
    S3Credentials,
)
from gateway.storage.aws.roles import CredentialsUnavailable

if TYPE_CHECKING:
    pass

log = logging.getLogger("gateway.storages")
ASK_AGAIN_SECONDS = 60.0
"""A role that was asked too early gives the same keys again."""
REFUSED_SECONDS = 5.0
FILE_SECONDS = 10.0
"""Keys of a file are read again after this."""


class RefreshingCredentials:
    """Keys that are asked for anew when half of their time is over. Thread-safe."""

    def __init__(
        self, ask: Callable[[], S3Credentials], now_seconds: Callable[[], float] = time.time
    ) -> None:
        """`ask` blocks, and raises NoRole."""
        self._ask = ask
        self._now_seconds = now_seconds
        self._asking = threading.Lock()
        self._found: S3Credentials | None = None
        self._ask_at_seconds = 0.0
        self._refused: tuple[float, CredentialsUnavailable] | None = None

    @property
    def found(self) -> S3Credentials | None:
        """The last ones."""
        return self._found

    @property
    def is_valid(self) -> bool:
        """Whether `fresh` would return at once."""
        return self._found is not None and self._now_seconds() < self._ask_at_seconds

    def fresh(self) -> S3Credentials:
        """Keys that are valid. Blocks while new ones are asked for. Raises LogError."""
        if not self.is_valid:
            with self._asking:
                if not self.is_valid:
                    self._renew()
        if self._found is None:
            raise self._failure(CredentialsUnavailable("no keys were found", lasting=True))
        return self._found

    def _renew(self) -> None:
        asked_at = self._now_seconds()
        if self._refused is not None and 0 <= asked_at - self._refused[0] < REFUSED_SECONDS:
            raise self._failure(self._refused[1])
        try:
            found = self._ask()
        except CredentialsUnavailable as reason:
            self._refused = (asked_at, reason)
            log.warning("the storage's keys were not renewed: %s", reason)
            if self._left_seconds(asked_at) <= 0:
                raise self._failure(reason) from None
            self._ask_at_seconds = asked_at + REFUSED_SECONDS
            return
        # Keys that did not change stay the same object: signers and answers made with them stay valid.
        self._found, self._refused = self._found if found == self._found else found, None
        left_seconds = self._left_seconds(asked_at)
        pause_seconds = max(left_seconds / 2, min(left_seconds, ASK_AGAIN_SECONDS), REFUSED_SECONDS)
        if found.file is not None:
            pause_seconds = min(pause_seconds, FILE_SECONDS)
        self._ask_at_seconds = asked_at + pause_seconds

    def _left_seconds(self, now_seconds: float) -> float:
        if self._found is None:
            return 0.0
        expires = self._found.expires
        return float("inf") if expires is None else expires.timestamp() - now_seconds

    def _failure(self, reason: CredentialsUnavailable) -> _native.LogError:
        # Where there have been keys, there will be keys again.
        is_denied = reason.lasting and self._found is None
        kind = _native.StorageDenied if is_denied else _native.StorageUnavailable
        error = kind("the provider's keys to the storage cannot be found or renewed; the provider must act")
        error.detail = str(reason)
        return error
