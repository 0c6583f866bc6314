"""The requests of the last hour and day in slots of time: all of them, those of a recipient, and of a table.

In: each request at its end. Out: the slots of a span, as numbers that are added up over processes. A slot
without requests takes no memory; the rings are those of the last `MAX_RINGS` recipients and tables.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

MAX_RINGS = 128
"""Of a process. A full ring takes about 64 KiB: 156 slots of 18 numbers."""
FIRST_BYTE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of the times to the first byte; a slot has one number for each, and one for longer times."""
ANSWERED, REFUSED, FAILED, FILES, BYTES, STREAMS, FIRST_BYTE = range(7)
"""The places of a slot's numbers."""
EMPTY = (0,) * (FIRST_BYTE + len(FIRST_BYTE_SECONDS) + 1)
Slots = Mapping[int, Iterable[int]]
"""The numbers of slots, by the start of each in milliseconds."""
ALL = ("", "")
"""The key of the ring of all requests; others are those of `recipient` and `table` with a name."""


class Span(NamedTuple):
    """A time that ends now, in slots."""

    slot_ms: int
    slots: int

    def starts(self, now_ms: int) -> range:
        """Return the starts of the slots, the oldest first."""
        last = now_ms // self.slot_ms * self.slot_ms
        return range(last - (self.slots - 1) * self.slot_ms, last + 1, self.slot_ms)


SPANS: Mapping[str, Span] = {"hour": Span(60_000, 60), "day": Span(900_000, 96)}


class RequestFacts(NamedTuple):
    """What a request adds to its slots. `outcome`: one of ANSWERED, REFUSED, FAILED."""

    at_ms: int
    outcome: int
    files: int
    sent_bytes: int
    streams: int
    """Running in the process."""
    first_byte_seconds: float | None


class Rings:
    """The rings of a process. Only the event loop changes them."""

    def __init__(self) -> None:
        self._rings: OrderedDict[tuple[str, str], dict[str, dict[int, list[int]]]] = OrderedDict()

    def add(self, keys: Iterable[tuple[str, str]], facts: RequestFacts) -> None:
        """Add a request to the ring of each key."""
        for key in keys:
            ring = self._rings.get(key)
            if ring is None:
                ring = self._rings[key] = {name: {} for name in SPANS}
            self._rings.move_to_end(key)
            for name, span in SPANS.items():
                _add(ring[name], span, facts)
        if ALL in self._rings:
            self._rings.move_to_end(ALL)
        while len(self._rings) > MAX_RINGS:
            self._rings.popitem(last=False)

    def slots(self, key: tuple[str, str], span: str, now_ms: int) -> dict[int, tuple[int, ...]]:
        """Return the slots of a span that have requests."""
        ring, starts = self._rings.get(key, {}).get(span, {}), SPANS[span].starts(now_ms)
        return {start: tuple(numbers) for start, numbers in ring.items() if start in starts}


def _add(slots: dict[int, list[int]], span: Span, facts: RequestFacts) -> None:
    start = facts.at_ms // span.slot_ms * span.slot_ms
    numbers = slots.get(start)
    if numbers is None:
        numbers = slots[start] = [*EMPTY]
        while len(slots) > span.slots:
            del slots[min(slots)]
    numbers[facts.outcome] += 1
    numbers[FILES] += facts.files
    numbers[BYTES] += facts.sent_bytes
    numbers[STREAMS] = max(numbers[STREAMS], facts.streams)
    if facts.first_byte_seconds is not None:
        numbers[FIRST_BYTE + bisect_left(FIRST_BYTE_SECONDS, facts.first_byte_seconds)] += 1


def added(several: Iterable[Slots]) -> dict[int, tuple[int, ...]]:
    """Return the slots of several processes together. Of the streams it is the most that there can be."""
    total: dict[int, tuple[int, ...]] = {}
    for slots in several:
        for start, numbers in slots.items():
            pairs = zip(total.get(start, EMPTY), numbers, strict=True)
            total[start] = tuple(one + other for one, other in pairs)
    return total


def quantile(numbers: Iterable[int], share: float) -> float | None:
    """Return the bound below which a share of the times to the first byte of a slot are; None without any."""
    counts = [*numbers][FIRST_BYTE:]
    wanted = share * sum(counts)
    if not wanted:
        return None
    reached = 0
    for bound, count in zip(FIRST_BYTE_SECONDS, counts, strict=False):
        reached += count
        if reached >= wanted:
            return bound
    return FIRST_BYTE_SECONDS[-1]
