"""The last end of each recipient's tokens and client secrets, for a metric with few labels.

In: recipients with their credentials and clients, all of them or those that have changed. Out: the names of
those that end soon, with their ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from gateway.authentication.credential_table import Credential
from gateway.authentication.oauth_clients import OAuthClient

SOON_SECONDS = 30 * 86_400
MOST_REPORTED = 1000
"""Of more recipients those that end first are reported."""


class Expiries:
    """The ends, by recipient. Changed by one thread, read by another."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._ends_seconds: Mapping[str, float] = {}

    def report_all(self, credentials: Iterable[Credential], clients: Iterable[OAuthClient]) -> None:
        """Take the ends of all recipients."""
        self._ends_seconds = self._ends(credentials, clients)

    def report_some(
        self, names: Iterable[str], credentials: Iterable[Credential], clients: Iterable[OAuthClient]
    ) -> None:
        """Take the ends of the recipients with these names, which have these credentials and clients."""
        gone = {*names}
        ends = {name: end for name, end in self._ends_seconds.items() if name not in gone}
        self._ends_seconds = ends | self._ends(credentials, clients)

    def soonest(self) -> dict[str, float]:
        """Return the ends within 30 days from now, in seconds since the epoch, by recipient."""
        now_seconds = self._now_ms() / 1000
        soon = (
            (end, name)
            for name, end in self._ends_seconds.items()
            if now_seconds < end < now_seconds + SOON_SECONDS
        )
        return {name: end for end, name in heapq.nsmallest(MOST_REPORTED, soon)}

    def _ends(self, credentials: Iterable[Credential], clients: Iterable[OAuthClient]) -> dict[str, float]:
        """Return the ends of recipients whose credentials all end, and have not ended."""
        ends_ms = chain(
            (
                (credential.recipient.name, credential.expires_ms)
                for credential in credentials
                if not credential.is_forbidden
            ),
            ((client.recipient.name, secret.expires_ms) for client in clients for secret in client.secrets),
        )
        now_ms, ends = self._now_ms(), dict[str, float]()
        endless = set[str]()
        for name, expires_ms in ends_ms:
            if expires_ms is None:
                endless.add(name)
            elif expires_ms > now_ms:
                ends[name] = max(expires_ms / 1000, ends.get(name, 0.0))
        return {name: end for name, end in ends.items() if name not in endless}
