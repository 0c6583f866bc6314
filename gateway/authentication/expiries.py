"""The last end of each recipient's tokens and client secrets, for a metric with few labels.

In: recipients with their credentials and clients, all of them or those that have changed. Out: the names of
those that end soon, with their ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping

from gateway.authentication.credential_table import Holder

SOON_SECONDS = 30 * 86_400
MOST_REPORTED = 1000
"""Of more recipients those that end first are reported."""


class Expiries:
    """The ends, by recipient. Changed by one thread, read by another."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._ends_seconds: Mapping[str, float] = {}

    def report_all(self, holders: Iterable[Holder]) -> None:
        """Take the ends of all recipients."""
        self._ends_seconds = self._ends(holders)

    def report_some(self, gone: Iterable[Holder], new: Iterable[Holder]) -> None:
        """Take the ends of some recipients in place of others."""
        names = {holder.recipient.name for holder in gone}
        ends = {name: end for name, end in self._ends_seconds.items() if name not in names}
        self._ends_seconds = ends | self._ends(new)

    def soonest(self) -> dict[str, float]:
        """Return the ends within 30 days from now, in seconds since the epoch, by recipient."""
        now_seconds = self._now_ms() / 1000
        soon = (
            (end, name)
            for name, end in self._ends_seconds.items()
            if now_seconds < end < now_seconds + SOON_SECONDS
        )
        return {name: end for end, name in heapq.nsmallest(MOST_REPORTED, soon)}

    @staticmethod
    def _ends(holders: Iterable[Holder]) -> dict[str, float]:
        """Return the last ends of recipients whose credentials all end."""
        last = dict[str, float]()
        for holder in holders:
            ends_ms = [token.expires_ms for token in holder.credentials if not token.is_forbidden]
            ends_ms += (secret.expires_ms for client in holder.clients for secret in client.secrets)
            known_ms = [end_ms for end_ms in ends_ms if end_ms is not None]
            # Those in the past, too: the clock may be ahead now.
            if known_ms and len(known_ms) == len(ends_ms):
                last[holder.recipient.name] = max(known_ms) / 1000
        return last
