"""What is known after searches: a short listing is no proof that tables are gone."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog.discovered import FoundTable
from gateway.config import Location
from gateway.discovery.known_tables import KnownTables, SearchResult

EVERY, KEEP = 300.0, 86_400.0


def tables(schema: str, count: int) -> tuple[FoundTable, ...]:
    names = (f"t{number}" for number in range(count))
    return tuple(FoundTable(schema, name, Location.parse(f"s3://b/{schema}/{name}")) for name in names)


def after(
    known: KnownTables, found: Iterable[FoundTable], now_seconds: float, device: int | None = None
) -> KnownTables:
    result = SearchResult(tuple(found), device=device)
    return known.after(result, now_seconds=now_seconds, keep_seconds=KEEP, every_seconds=EVERY)


MANY = (*tables("a", 60), *tables("b", 60))


@pytest.mark.parametrize(
    ("before", "left", "devices"),
    [
        (tables("a", 1), (), (None, None)),
        (MANY, (), (None, None)),
        (MANY, MANY[13:], (None, None)),
        (MANY, tables("a", 60), (None, None)),
        ((*MANY, *tables("c", 1)), MANY, (None, None)),
        (MANY, MANY[1:], (1, 2)),
    ],
    ids=[
        "the only table",
        "all",
        "more than ten and a tenth",
        "a schema",
        "a small schema",
        "another device",
    ],
)
def test_much_that_is_missing_stays_until_a_second_search_agrees(
    before: tuple[FoundTable, ...], left: tuple[FoundTable, ...], devices: tuple[int | None, int | None]
) -> None:
    known = after(KnownTables(), before, 0, devices[0])
    doubted = after(known, left, EVERY, devices[1])
    assert doubted.seen.keys() == {*before}
    assert doubted.missing.keys() == {*before} - {*left}
    assert f"{len(before) - len(left)} of {len(before)} known tables are missing" in doubted.last.problem
    # A reload searches at once, and is no second look.
    soon = after(doubted, left, EVERY + 1, devices[1])
    assert soon.seen.keys() == {*before}
    agreed = after(soon, left, 2 * EVERY, devices[1])
    assert agreed.seen.keys() == {*left}
    assert (agreed.missing, agreed.last.problem) == ({}, "")
    # What is there again was never gone.
    assert after(doubted, before, 2 * EVERY, devices[1]).missing == {}


@pytest.mark.parametrize(
    "renamed",
    [
        tuple(FoundTable(f"new_{table.schema}", table.name, table.location) for table in MANY),
        tuple(FoundTable(table.schema.upper(), table.name, table.location) for table in MANY),
        tuple(
            FoundTable(table.schema, table.name, Location.parse(f"{table.location.url}-2")) for table in MANY
        ),
    ],
    ids=["schemas", "the case of schemas", "directories"],
)
def test_tables_that_are_found_under_another_name_or_elsewhere_are_not_missing(
    renamed: tuple[FoundTable, ...],
) -> None:
    known = after(after(KnownTables(), MANY, 0), renamed, EVERY)
    assert known.seen.keys() == {*renamed}
    assert (known.missing, known.last.problem) == ({}, "")
    assert len(known.distinct()[0]) == len(MANY)


@pytest.mark.parametrize(("before", "left"), [(MANY, MANY[12:]), (tables("a", 12), tables("a", 2))])
def test_a_few_tables_are_withdrawn_at_once(
    before: tuple[FoundTable, ...], left: tuple[FoundTable, ...]
) -> None:
    assert after(after(KnownTables(), before, 0), left, EVERY).seen.keys() == {*left}


def test_a_search_that_says_nothing_is_no_second_look() -> None:
    known = after(after(KnownTables(), MANY, 0), (), EVERY)
    silent = known.after(known.failed("hangs"), now_seconds=2 * EVERY, keep_seconds=KEEP, every_seconds=EVERY)
    assert silent.seen.keys() == {*MANY}
    assert after(silent, (), 3 * EVERY).seen == {}


def test_what_a_catalog_names_and_protects_is_withdrawn_at_once() -> None:
    known = after(KnownTables(), tables("a", 1), 0)
    result = SearchResult(named=frozenset(tables("a", 1)))
    assert known.after(result, now_seconds=1, keep_seconds=KEEP, every_seconds=EVERY).seen == {}


def test_nothing_stays_longer_than_keep_seconds() -> None:
    known = after(KnownTables(), MANY, 0)
    assert after(known, (), KEEP + 1).seen == {}


@given(st.lists(st.frozensets(st.sampled_from(MANY[::10])), max_size=8), st.integers(1, 3))
def test_no_single_search_withdraws_everything(found: list[frozenset[FoundTable]], step: int) -> None:
    known = KnownTables()
    for number, tables_found in enumerate(found):
        later = after(known, tables_found, number * EVERY / step)
        assert {*tables_found} <= later.seen.keys() <= {*known.seen, *tables_found}
        if known.seen and not known.missing:
            assert later.seen, "a first search without a table withdraws none"
        known = later
