"""Grants: what a recipient may read, down to the files of a table.

In: the grants of a recipient, each for a share, a schema or a table, perhaps with a condition. Out: whether a
name is granted, and the rule of a table. A table with several grants has the files of all of them: its rule
is met where one of the conditions is true, and a grant without a condition gives the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.config.recipients import EVERY_SHARE

MAX_CONDITION_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Rule:
    """The conditions of the grants for one table. A file is granted if one of them is true for it.

    Attributes:
        conditions: SQL over the table's partition columns.
        properties: of the recipient, by the names that conditions have after `recipient.`.

    """

    conditions: tuple[str, ...]
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """A grant for a share, or for a schema or a table of it.

    Attributes:
        share: the name in lower case; `*` for every share.
        schema, table: names in lower case; None for all.
        condition: SQL over the table's partition columns; None for all files.

    """

    share: str
    schema: str | None = None
    table: str | None = None
    condition: str | None = None

    @staticmethod
    def of(share: str, schema: str | None, table: str | None, condition: str | None) -> Grant:
        """Return the grant for names in any case."""
        return Grant(share.casefold(), schema and schema.casefold(), table and table.casefold(), condition)

    @property
    def is_whole_share(self) -> bool:
        """Return whether everything of a share is granted without a condition."""
        return self.schema is None and self.table is None and self.condition is None

    def covers(self, schema: str, table: str) -> bool:
        """Return whether the grant is for a table of its share, by names in any case."""
        return self.schema in {None, schema.casefold()} and self.table in {None, table.casefold()}


def place_text(grant: Grant) -> str:
    """Return the place of a grant, as `grant_operations.place_of` reads it."""
    parts = (grant.share, grant.schema, grant.table)
    return ".".join(_quoted(part) for part in parts if part is not None)


def grant_text(grant: Grant) -> str:
    """Return a grant for people."""
    condition = "" if grant.condition is None else f" where {grant.condition}"
    return place_text(grant) + condition


def still_readable(grants: Iterable[Grant], taken: Iterable[Grant]) -> tuple[str, ...]:
    """Return the texts of the grants that still give access to a part of a taken place."""
    places = tuple(taken)
    left = (grant_text(grant) for grant in grants if any(_overlap(grant, place) for place in places))
    return tuple(dict.fromkeys(left))


def _overlap(left: Grant, right: Grant) -> bool:
    shares = {left.share, right.share}
    return (len(shares) == 1 or EVERY_SHARE in shares) and all(
        None in pair or pair[0] == pair[1]
        for pair in ((left.schema, right.schema), (left.table, right.table))
    )


def _quoted(part: str) -> str:
    return f"`{part.replace('`', '``')}`" if "." in part or "`" in part else part


class GrantIndex:
    """The grants of a recipient by their names: a lookup does not look at each of them."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._conditions: dict[tuple[str, str | None, str | None], list[str | None]] = {}
        for grant in grants:
            place = (grant.share, grant.schema, grant.table)
            self._conditions.setdefault(place, []).append(grant.condition)
        self._shares = frozenset(share for share, _, _ in self._conditions)
        self._schemas = frozenset((share, schema) for share, schema, _ in self._conditions)
        self.in_every_share = tuple(
            (schema, table) for share, schema, table in self._conditions if share == EVERY_SHARE
        )
        """The schemas and tables that are granted in each share that has them."""

    def is_named(self, share: str) -> bool:
        """Return whether a grant is for a share or a part of it by the share's name."""
        return share in self._shares

    def reaches(self, share: str, schema: str) -> bool:
        """Return whether a grant is for a schema, a part of it, or all of its share."""
        places = [(name, inner) for name in (EVERY_SHARE, share) for inner in (None, schema)]
        return any(place in self._schemas for place in places)

    def is_whole_schema(self, share: str, schema: str) -> bool:
        """Return whether everything of a schema is granted without a condition."""
        places = [(name, inner, None) for name in (EVERY_SHARE, share) for inner in (None, schema)]
        return any(None in self._conditions.get(place, ()) for place in places)

    def conditions(self, share: str, schema: str, table: str) -> list[str | None]:
        """Return the conditions of all grants for a table; None for one without a condition."""
        texts: list[str | None] = []
        for name in (EVERY_SHARE, share):
            for place in ((name, None, None), (name, schema, None), (name, schema, table)):
                texts += self._conditions.get(place, ())
        return texts


NO_GRANTS = GrantIndex(())
