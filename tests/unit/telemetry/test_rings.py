"""The slots of the last hour and day: bounded, added up over processes, and what they say about times."""

import pytest

from gateway.telemetry.rings import (
    ALL,
    ANSWERED,
    BYTES,
    EMPTY,
    FAILED,
    FILES,
    FIRST_BYTE_SECONDS,
    MAX_RINGS,
    REFUSED,
    SPANS,
    STREAMS,
    RequestFacts,
    Rings,
    added,
    quantile,
)

MINUTE_MS, NOW_MS = 60_000, 1_700_000_040_000


def facts(
    at_ms: int, outcome: int = ANSWERED, seconds: float | None = 0.02, streams: int = 1
) -> RequestFacts:
    return RequestFacts(at_ms, outcome, files=3, sent_bytes=100, streams=streams, first_byte_seconds=seconds)


def test_requests_are_added_to_the_slots_of_both_spans() -> None:
    rings, key = Rings(), ("recipient", "acme")
    rings.add([ALL, key], facts(NOW_MS, streams=4))
    rings.add([ALL], facts(NOW_MS + 1, REFUSED, None))
    rings.add([ALL], facts(NOW_MS - MINUTE_MS, FAILED))
    hour = rings.slots(ALL, "hour", NOW_MS)
    now = hour[NOW_MS // MINUTE_MS * MINUTE_MS]
    assert [now[place] for place in (ANSWERED, REFUSED, FAILED, FILES, BYTES, STREAMS)] == [
        1,
        1,
        0,
        6,
        200,
        4,
    ]
    assert len(hour) == 2
    (day,) = rings.slots(ALL, "day", NOW_MS).values()
    assert [day[place] for place in (ANSWERED, REFUSED, FAILED)] == [1, 1, 1]
    assert sum(numbers[ANSWERED] for numbers in rings.slots(key, "hour", NOW_MS).values()) == 1
    assert rings.slots(("table", "absent"), "hour", NOW_MS) == {}


def test_slots_before_the_span_are_forgotten_and_the_rings_are_bounded() -> None:
    rings = Rings()
    for minute in range(10_000):
        rings.add([ALL], facts(NOW_MS + minute * MINUTE_MS))
    last_ms = NOW_MS + 9_999 * MINUTE_MS
    for name, span in SPANS.items():
        assert [*rings.slots(ALL, name, last_ms)] == [*span.starts(last_ms)]
        assert rings.slots(ALL, name, last_ms + 2 * span.slots * span.slot_ms) == {}
    assert len(rings._rings[ALL].minutes) == SPANS["hour"].slots
    assert len(rings._rings[ALL].earlier) <= SPANS["day"].slots
    total = sum(numbers[ANSWERED] for numbers in rings.slots(ALL, "day", last_ms).values())
    assert total == (last_ms - SPANS["day"].starts(last_ms)[0]) // MINUTE_MS + 1
    for number in range(3 * MAX_RINGS):
        rings.add([("recipient", str(number))], facts(last_ms))
    assert len(rings._rings) == MAX_RINGS
    assert rings.slots(ALL, "hour", last_ms), "the ring of all requests stays"
    assert not rings.slots(("recipient", "0"), "hour", last_ms)


def test_a_clock_that_was_ahead_hides_no_later_request() -> None:
    rings, ahead_ms = Rings(), 365 * 86_400_000
    for minute in range(10_000):
        rings.add([ALL], facts(NOW_MS + ahead_ms + minute * MINUTE_MS))
    for minute in range(60):
        rings.add([ALL], facts(NOW_MS + minute * MINUTE_MS))
    for span in SPANS:
        slots = rings.slots(ALL, span, NOW_MS + 59 * MINUTE_MS).values()
        assert sum(numbers[ANSWERED] for numbers in slots) == 60


def test_slots_of_processes_are_added_up() -> None:
    one, other = Rings(), Rings()
    for rings, number in ((one, 2), (other, 3)):
        for _ in range(number):
            rings.add([ALL], facts(NOW_MS))
    other.add([ALL], facts(NOW_MS - MINUTE_MS))
    total = added([rings.slots(ALL, "hour", NOW_MS) for rings in (one, other)])
    assert sorted(numbers[ANSWERED] for numbers in total.values()) == [1, 5]
    assert added([]) == {}


@pytest.mark.parametrize(
    ("seconds", "share", "bound"),
    [
        ([0.001] * 99 + [9.0], 0.5, 0.005),
        ([0.001] * 99 + [9.0], 0.95, 0.005),
        ([0.001] * 9 + [9.0], 0.95, 10.0),
        ([0.005], 0.5, 0.005),
        ([0.0051], 0.5, 0.01),
        ([60.0], 0.95, FIRST_BYTE_SECONDS[-1]),
        ([], 0.5, None),
    ],
)
def test_a_quantile_is_the_bound_of_its_time(seconds: list[float], share: float, bound: float | None) -> None:
    rings = Rings()
    for one in seconds:
        rings.add([ALL], facts(NOW_MS, seconds=one))
    (numbers,) = rings.slots(ALL, "hour", NOW_MS).values() or [EMPTY]
    assert quantile(numbers, share) == bound
