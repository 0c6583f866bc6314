"""The results of searches, and the tables that are known after them.

In: the result of each search of one place of the configuration. Out: the tables that are shared, and those
that are refused because of each other. A table that a search neither finds nor misses stays for a time. A
listing that succeeds with too little is no proof that tables are gone: where many are missing at once, they
stay until a second search agrees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from gateway.catalog.conflicts import LeftOut
from gateway.catalog.discovered import Discovered, FoundTable
from gateway.config import Location, Source

Limit = Literal["calls", "tables", "time"]
LIMITS: tuple[Limit, ...] = get_args(Limit)
FEW_TABLES = 10
"""A search may miss this number of known tables, or a tenth of them, without a second search that agrees."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search has found.

    Attributes:
        tables: the tables, by location.
        refused: what cannot be shared, with the reasons.
        unknown: directories that were not listed, or not to their end.
        unknown_tables: known tables of a catalog that it has not reached.
        named: known tables that a catalog lists and that can no longer be shared.
        device: the device of a local root; None for others.
        calls: number of listed directories or of requests.
        problem: why the search is not complete, for the operator; empty for a complete one.
        limit: which limit has ended it; None for none.
        is_cut: a fault of the storage or the catalog, and no refusal, has kept it from a part.

    """

    tables: tuple[FoundTable, ...] = ()
    refused: tuple[LeftOut, ...] = ()
    unknown: frozenset[Location] = frozenset()
    unknown_tables: frozenset[FoundTable] = frozenset()
    named: frozenset[FoundTable] = frozenset()
    device: int | None = None
    calls: int = 0
    problem: str = ""
    limit: Limit | None = None
    is_cut: bool = False

    def is_unknown(self, table: FoundTable) -> bool:
        """Return whether the search cannot say that a table is gone."""
        directories = (table.location, *table.location.outer())
        return table in self.unknown_tables or not self.unknown.isdisjoint(directories)


@dataclass(frozen=True, slots=True)
class KnownTables:
    """The tables of one place of the configuration, over its searches.

    Attributes:
        seen: the tables with the monotonic time of the last search that found them, in seconds.
        searches: number of searches.
        last: the result of the last search.
        missing: tables that a search has not found and that stay nevertheless, with the time of that search.
        device: the device of a local root, as of the last search that found it.

    """

    seen: dict[FoundTable, float] = field(default_factory=dict)
    searches: int = 0
    last: SearchResult = field(default_factory=SearchResult)
    missing: dict[FoundTable, float] = field(default_factory=dict)
    device: int | None = None

    def after(
        self, result: SearchResult, *, now_seconds: float, keep_seconds: float, every_seconds: float = 0.0
    ) -> KnownTables:
        """Return the tables after a search that began at a time.

        Found and unreached tables stay. A missing table stays, too, if its absence may be a fault, until a
        search that began `every_seconds` later misses it again.
        """
        seen_now = dict.fromkeys(result.tables, now_seconds)
        known = {
            table: seconds
            for table, seconds in self.seen.items()
            if table not in seen_now and now_seconds - seconds <= keep_seconds
        }
        unreached = {table: seconds for table, seconds in known.items() if result.is_unknown(table)}
        lost = known.keys() - unreached.keys() - result.named - _replaced(known, seen_now)
        missing = {
            table: seconds
            for table, seconds in self.missing.items()
            if table in unreached or (table in lost and now_seconds - seconds < every_seconds)
        }
        fresh = lost - self.missing.keys()
        if self._may_be_a_fault(result, fresh):
            missing |= dict.fromkeys(fresh, now_seconds)
        if not lost.isdisjoint(missing):
            unreached |= {table: known[table] for table in missing if table in lost}
            problem = (
                f"{len(missing)} of {len(self.seen)} known tables are missing; they are withdrawn when the "
                "next search misses them, too"
            )
            result = replace(result, problem=result.problem or problem)
        device = self.device if result.device is None else result.device
        return KnownTables(unreached | seen_now, self.searches + 1, result, missing, device)

    def _may_be_a_fault(self, result: SearchResult, lost: frozenset[FoundTable] | set[FoundTable]) -> bool:
        """Return whether so much is missing as after a lost mount, a lost right or a short answer."""
        if not lost:
            return False
        is_other_device = None not in (self.device, result.device) and self.device != result.device
        is_much = len(lost) > max(FEW_TABLES, len(self.seen) // 10)
        left = {table.schema.casefold() for table in self.seen if table not in lost}
        has_lost_schema = any(table.schema.casefold() not in left for table in lost)
        return not result.tables or is_other_device or is_much or has_lost_schema

    def failed(self, problem: str) -> SearchResult:
        """Return the result of a search that has reached no table."""
        return SearchResult(unknown_tables=frozenset(self.seen), problem=problem, is_cut=True)

    def distinct(self) -> tuple[tuple[FoundTable, ...], tuple[LeftOut, ...]]:
        """Return the tables whose names and locations are theirs alone, by name, and those that are refused.

        None of two tables gets a common name: another one could take its place by a new directory or entry.
        """
        names = Counter(map(_folded, self.seen))
        locations = Counter(table.location for table in self.seen)
        spellings: dict[str, set[str]] = {}
        for table in self.seen:
            spellings.setdefault(table.schema.casefold(), set()).add(table.schema)
        distinct, refused = [], []
        for table in self.seen:
            schema = table.schema.casefold()
            reason = ""
            if names[_folded(table)] > 1:
                reason = "another table has its name without case"
            elif len(spellings[schema]) > 1:
                reason = "another schema has its name without case"
            elif locations[table.location] > 1:
                reason = "another table has its location"
            if reason:
                refused.append(LeftOut(table.location.url, reason))
            else:
                distinct.append(table)
        return (
            tuple(sorted(distinct, key=lambda table: (table.schema, table.name))),
            tuple(sorted(refused, key=lambda entry: entry.name)),
        )


def discovered(known: Iterable[tuple[Source, KnownTables]]) -> Discovered:
    """Return the known tables of all places as one value."""
    return Discovered({source.key: tables.distinct()[0] for source, tables in known})


def within_limit(
    tables: Collection[FoundTable], known: Collection[Location], limit: int
) -> tuple[FoundTable, ...]:
    """Return at most `limit` tables. Of too many, those at known locations stay."""
    ordered = sorted(tables, key=lambda table: (table.location not in known, table.schema, table.name))
    return tuple(ordered[:limit])


def _replaced(known: Iterable[FoundTable], newer: Collection[FoundTable]) -> set[FoundTable]:
    """Return known tables in whose place a search has found another: by its names or its location."""
    names, locations = set(map(_folded, newer)), {table.location for table in newer}
    return {table for table in known if table.location in locations or _folded(table) in names}


def _folded(table: FoundTable) -> tuple[str, str]:
    """Return the names of a schema and a table, equal for those that differ in case alone."""
    return table.schema.casefold(), table.name.casefold()
