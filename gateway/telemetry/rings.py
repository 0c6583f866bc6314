"""The requests of the last hour and day in slots of time: of all, a recipient, a table, and a storage.

In: each request at its end. Out: the slots of a span, as numbers that are added up over processes. A slot
without requests takes no memory; the rings are those of the last `MAX_RINGS` recipients, tables and storages.
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
"""The key of the ring of all requests. Other keys are `recipient`, `table` and `storage` with a name."""


class Span(NamedTuple):
    """A time that ends now, in slots."""

    slot_ms: int
    slots: int

    def starts(self, now_ms: int) -> range:
        """Return the starts of the slots, the oldest first."""
        last = now_ms // self.slot_ms * self.slot_ms
        return range(last - (self.slots - 1) * self.slot_ms, last + 1, self.slot_ms)


MINUTE_MS = 60_000
SPANS: Mapping[str, Span] = {"hour": Span(MINUTE_MS, 60), "day": Span(900_000, 96)}


class RequestFacts(NamedTuple):
    """What a request adds to its slots. `outcome`: one of ANSWERED, REFUSED, FAILED."""

    at_ms: int
    outcome: int
    files: int
    sent_bytes: int
    streams: int
    """Running in the process, or of its storage."""
    first_byte_seconds: float | None


class _Ring:
    """The last hour in minutes, and the time before it in quarters of an hour."""

    __slots__ = ("earlier", "minutes", "numbers", "start")

    def __init__(self) -> None:
        self.minutes: dict[int, list[int]] = {}
        self.earlier: dict[int, list[int]] = {}
        self.start = -1
        """The start of the current minute, of `numbers`: most requests are in the same minute."""
        self.numbers: list[int] = []

    def begin(self, start: int) -> None:
        """Begin a minute; add the oldest minutes to their quarters of an hour.

        Those of a clock that was ahead are the farthest, and go first.
        """
        self.start, self.numbers = start, self.minutes.setdefault(start, [*EMPTY])

        def distance(slot: int) -> int:
            return abs(slot - start)

        while len(self.minutes) > SPANS["hour"].slots:
            farthest = max(self.minutes, key=distance)
            _fold(self.earlier, farthest, self.minutes.pop(farthest))
        while len(self.earlier) > SPANS["day"].slots:
            del self.earlier[max(self.earlier, key=distance)]

    def slots(self, span: str) -> Mapping[int, list[int]]:
        """Return all slots of a span."""
        if span == "hour":
            return self.minutes
        total = {start: [*numbers] for start, numbers in self.earlier.items()}
        for start, numbers in self.minutes.items():
            _fold(total, start, numbers)
        return total


class Rings:
    """The rings of a process. Only the event loop changes them."""

    def __init__(self) -> None:
        self._rings: OrderedDict[tuple[str, str], _Ring] = OrderedDict()

    def add(self, keys: Iterable[tuple[str, str]], facts: RequestFacts) -> None:
        """Add a request to the ring of each key."""
        at_ms, outcome, files, sent_bytes, streams, seconds = facts
        start = at_ms // MINUTE_MS * MINUTE_MS
        bucket = None if seconds is None else FIRST_BYTE + bisect_left(FIRST_BYTE_SECONDS, seconds)
        for key in keys:
            ring = self._rings.get(key)
            if ring is None or ring.start != start:
                ring = self._begun(key, start)
            numbers = ring.numbers
            numbers[outcome] += 1
            numbers[FILES] += files
            numbers[BYTES] += sent_bytes
            numbers[STREAMS] = max(numbers[STREAMS], streams)
            if bucket is not None:
                numbers[bucket] += 1

    def _begun(self, key: tuple[str, str], start: int) -> _Ring:
        """Return the ring of a key at the start of a minute; the one unused longest is forgotten."""
        ring = self._rings.setdefault(key, _Ring())
        ring.begin(start)
        for used in (key, ALL):
            if used in self._rings:
                self._rings.move_to_end(used)
        while len(self._rings) > MAX_RINGS:
            self._rings.popitem(last=False)
        return ring

    def slots(self, key: tuple[str, str], span: str, now_ms: int) -> dict[int, tuple[int, ...]]:
        """Return the slots of a span that have requests."""
        ring, starts = self._rings.get(key), SPANS[span].starts(now_ms)
        all_slots = {} if ring is None else ring.slots(span)
        return {start: tuple(numbers) for start, numbers in all_slots.items() if start in starts}


def _fold(slots: dict[int, list[int]], minute: int, numbers: Iterable[int]) -> None:
    """Add the numbers of a minute to the slot of its quarter of an hour."""
    span_ms = SPANS["day"].slot_ms
    slot = slots.setdefault(minute // span_ms * span_ms, [*EMPTY])
    for place, number in enumerate(numbers):
        slot[place] = max(slot[place], number) if place == STREAMS else slot[place] + number


def added(several: Iterable[Slots]) -> dict[int, tuple[int, ...]]:
    """Add up the slots of several processes. The number of streams is the possible maximum."""
    total: dict[int, tuple[int, ...]] = {}
    for slots in several:
        for start, numbers in slots.items():
            pairs = zip(total.get(start, EMPTY), numbers, strict=True)
            total[start] = tuple(number + other for number, other in pairs)
    return total


def quantile(numbers: Iterable[int], share: float) -> float | None:
    """Return the quantile of the times to the first byte of a slot; None without requests."""
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
