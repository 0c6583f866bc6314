"""The metric of the last end of each recipient's tokens and client secrets.

In: recipients with their credentials and clients, all of them or those that have changed. Out: one sample for
each name. Setting one costs ten times as much as making a recipient's entry of the credential table, so it is
done on a thread after the table is in force.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import Gauge

    from gateway.access.authentication import Credential
    from gateway.access.oauth_clients import OAuthClient

NEVER_EXPIRES = float("inf")
NO_EXPIRY = float("nan")
"""A comparison with it is false, so a revoked recipient raises no alert."""


class Expiries:
    """The reported ends, by recipient. Not thread-safe."""

    def __init__(self, gauge: Gauge, now_ms: Callable[[], int]) -> None:
        self._gauge = gauge
        self._now_ms = now_ms
        self._reported: dict[str, float] = {}

    def report_all(self, credentials: Iterable[Credential], clients: Iterable[OAuthClient]) -> None:
        """Report the ends of all recipients."""
        ends = self._ends(credentials, clients)
        self._set(dict.fromkeys(self._reported, NO_EXPIRY) | ends)

    def report_some(
        self, names: Iterable[str], credentials: Iterable[Credential], clients: Iterable[OAuthClient]
    ) -> None:
        """Report the ends of the recipients with these names, which have these credentials and clients."""
        known = {name: NO_EXPIRY for name in names if name in self._reported}
        self._set(known | self._ends(credentials, clients))

    def _ends(self, credentials: Iterable[Credential], clients: Iterable[OAuthClient]) -> dict[str, float]:
        ends_ms = chain(
            ((one.recipient.name, one.expires_ms) for one in credentials if not one.is_forbidden),
            ((one.recipient.name, secret.expires_ms) for one in clients for secret in one.secrets),
        )
        now_ms, ends = self._now_ms(), dict[str, float]()
        for name, expires_ms in ends_ms:
            if expires_ms is None or expires_ms > now_ms:
                seconds = NEVER_EXPIRES if expires_ms is None else expires_ms / 1000
                ends[name] = max(seconds, ends.get(name, 0.0))
        return ends

    def _set(self, ends: dict[str, float]) -> None:
        for name, seconds in ends.items():
            if seconds != self._reported.get(name):
                self._gauge.labels(name).set(seconds)
            if seconds == seconds:  # noqa: PLR0124 - only NaN differs from itself
                self._reported[name] = seconds
            else:
                self._reported.pop(name, None)
