"""Grants: what a recipient may read, down to the files of a table.

In: the grants of a recipient, each for a share, a schema or a table, perhaps with a condition. Out: whether a
name is granted, and the rule of a table. A table with several grants has the files of all of them: its rule
is met where one of the conditions is true, and a grant without a condition gives the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass

EVERY_SHARE = "*"


@dataclass(frozen=True, slots=True)
class Rule:
    """The conditions of the grants for one table, of which one has to be true for a file.

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
        return self.schema is None and self.condition is None

    def is_in(self, share: str) -> bool:
        """Return whether the grant is for a share or for a part of it."""
        return self.share in (EVERY_SHARE, share)

    def is_whole_schema(self, schema: str) -> bool:
        """Return whether everything of a schema is granted without a condition."""
        return self.schema in (None, schema) and self.table is None and self.condition is None

    def covers(self, share: str, schema: str, table: str) -> bool:
        """Return whether the grant is for a table, with or without a condition."""
        return self.is_in(share) and self.schema in (None, schema) and self.table in (None, table)
