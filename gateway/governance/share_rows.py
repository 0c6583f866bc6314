"""The rows of shares in the database: reads shares, and writes the differences of two states.

In: a connection within a transaction. Out: stored shares. Triggers of the database note each changed share.
Any program can write the rows. An invalid row becomes an entry with an unknown option, which excludes it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Row,
    Select,
    Table,
    bindparam,
    delete,
    or_,
    select,
    update,
)

from gateway.catalog.stored_shares import EXCLUDING_OPTIONS, StoredSchema, StoredShare, StoredTable
from gateway.database.rows import all_rows, batches, delete_orphans, insert_rows, is_text
from gateway.database.schema import SCHEMAS, SHARES, TABLES

_NO_OPTIONS = "{}"
_WITH_TABLES = '%"tables"%'
_PLACES = {SHARES: ("key",), SCHEMAS: ("share", "key"), TABLES: ("share", "schema", "key")}
"""The columns of the primary key of each table."""


def read(connection: Connection, keys: Collection[str] | None) -> dict[str, StoredShare]:
    """Return the shares with these keys that exist, by their keys; None: all."""
    if keys is None:
        return _read(connection, None)
    shares: dict[str, StoredShare] = {}
    for batch in batches(sorted(keys)):
        shares |= _read(connection, batch)
    return shares


def discovering(connection: Connection) -> set[str]:
    """Return the keys of shares whose options have the word `tables`, as those with discovered tables do."""
    queries = (
        select(SHARES.c.key).where(SHARES.c.options.like(_WITH_TABLES)),
        select(SCHEMAS.c.share).where(SCHEMAS.c.options.like(_WITH_TABLES)),
    )
    return {key for query in queries for (key,) in all_rows(connection, query) if is_text(key)}


def exclude_others(connection: Connection, key: str) -> bool:
    """Return whether another share may exclude tables of this one, as `StoredShare.excludes_others`."""
    # Texts of other options may have these words, too. The comparison is then of more shares.
    named = or_(*(TABLES.c.options.like(f'%"{name}"%') for name in sorted(EXCLUDING_OPTIONS)))
    queries = (
        select(TABLES.c.created_ms).where(TABLES.c.share != key, TABLES.c.options != _NO_OPTIONS, named),
        select(SCHEMAS.c.created_ms).where(SCHEMAS.c.share != key, SCHEMAS.c.options.like('%"volumes"%')),
    )
    return any(connection.execute(query.limit(1)).first() is not None for query in queries)


def _by_table() -> dict[Table, list[Any]]:
    return {table: [] for table in _PLACES}


@dataclass(frozen=True, slots=True)
class Differences:
    """The rows that differ between two states of shares.

    Attributes:
        new_shares, new_schemas: keys of new ones, below which old rows are deleted.
        gone: places of removed rows by their table.
        changed: values by their place, by their table.
        new: rows by their table.

    """

    new_shares: list[str] = field(default_factory=list)
    new_schemas: list[tuple[str, ...]] = field(default_factory=list)
    gone: dict[Table, list[tuple[str, ...]]] = field(default_factory=_by_table)
    changed: dict[Table, list[dict[str, Any]]] = field(default_factory=_by_table)
    new: dict[Table, list[dict[str, Any]]] = field(default_factory=_by_table)

    def write(self, connection: Connection, now_ms: int) -> None:
        """Write them. The number of statements does not depend on what is stored beside them."""
        for keys in batches(self.new_shares):
            delete_orphans(connection, {SCHEMAS: SCHEMAS.c.share.in_(keys), TABLES: TABLES.c.share.in_(keys)})
        for table, places in self.gone.items():
            _execute(connection, delete(table).where(*_at(table)), map(_placed, places))
        if connection.dialect.name == "sqlite":
            place = (TABLES.c.share == bindparam("at0"), TABLES.c.schema == bindparam("at1"))
            _execute(connection, delete(TABLES).where(*place), map(_placed, self.new_schemas))
        for table, values in self.changed.items():
            _execute(connection, update(table).where(*_at(table)), values)
        for table, rows in self.new.items():
            for batch in batches({**row, "created_ms": now_ms} for row in rows):
                insert_rows(connection, table, batch)

    def add(self, before: StoredShare | None, after: StoredShare) -> None:
        """Add the differences of two states of a share."""
        earlier = {schema.key: schema for schema in before.schemas} if before else {}
        later = {schema.key: schema for schema in after.schemas}
        values = {"name": after.name, "options": _text(after.options)}
        if before is None:
            self.new_shares.append(after.key)
        if before is None or (before.name, before.options) != (after.name, after.options):
            self._put(SHARES, (after.key,), values, is_new=before is None)
        self.gone[SCHEMAS] += ((after.key, key) for key in sorted(earlier.keys() - later.keys()))
        for key, schema in later.items():
            self._add_schema((after.key, key), earlier.get(key), schema)

    def _add_schema(self, place: tuple[str, ...], before: StoredSchema | None, after: StoredSchema) -> None:
        if before is None:
            self.new_schemas.append(place)
        if before is None or (before.name, before.options) != (after.name, after.options):
            values = {"name": after.name, "options": _text(after.options)}
            self._put(SCHEMAS, place, values, is_new=before is None)
        earlier = {table.key: table for table in before.tables} if before else {}
        later = {table.key: table for table in after.tables}
        self.gone[TABLES] += ((*place, key) for key in sorted(earlier.keys() - later.keys()))
        for key, table in later.items():
            if earlier.get(key) != table:
                values = {"name": table.name, "location": table.location, "options": _text(table.options)}
                self._put(TABLES, (*place, key), values, is_new=key not in earlier)

    def _put(self, table: Table, place: tuple[str, ...], values: dict[str, Any], *, is_new: bool) -> None:
        if is_new:
            self.new[table].append({**dict(zip(_PLACES[table], place, strict=True)), **values})
        else:
            self.changed[table].append({**_placed(place), **values})


def remove(connection: Connection, key: str) -> bool:
    """Delete a share with its schemas and tables, and return whether there was one."""
    return connection.execute(delete(SHARES).where(SHARES.c.key == key)).rowcount > 0


def differences(before: StoredShare | None, after: StoredShare) -> Differences:
    """Return the differences of two states of a share; None: it is new."""
    whole = Differences()
    whole.add(before, after)
    return whole


def _at(table: Table) -> list[ColumnElement[bool]]:
    return [table.c[name] == bindparam(f"at{number}") for number, name in enumerate(_PLACES[table])]


def _placed(place: tuple[str, ...]) -> dict[str, Any]:
    return {f"at{number}": key for number, key in enumerate(place)}


def _execute(connection: Connection, statement: Executable, rows: Iterable[dict[str, Any]]) -> None:
    for batch in batches(rows):
        connection.execute(statement, batch)


def _read(connection: Connection, keys: Collection[str] | None) -> dict[str, StoredShare]:
    def rows(query: Select[Any], column: Any) -> Iterable[Row[Any]]:
        return all_rows(connection, query if keys is None else query.where(column.in_(keys)))

    tables: dict[tuple[str, str], list[StoredTable]] = {}
    by_name = select(TABLES).order_by(TABLES.c.share, TABLES.c.schema, TABLES.c.key)
    for row in rows(by_name, TABLES.c.share):
        options = _options(row.options, row.name, row.location)
        table = StoredTable(_name(row.name), _name(row.location), options)
        tables.setdefault((row.share, row.schema), []).append(table)
    schemas: dict[str, list[StoredSchema]] = {}
    for row in rows(select(SCHEMAS).order_by(SCHEMAS.c.share, SCHEMAS.c.key), SCHEMAS.c.share):
        options, of_schema = _options(row.options, row.name), tables.get((row.share, row.key), ())
        schemas.setdefault(row.share, []).append(StoredSchema(_name(row.name), options, tuple(of_schema)))
    return {
        row.key: StoredShare(
            _name(row.name), _options(row.options, row.name), tuple(schemas.get(row.key, ()))
        )
        for row in rows(select(SHARES).order_by(SHARES.c.key), SHARES.c.key)
        # Grants and changes name a share by its key.
        if is_text(row.key)
    }


def _text(options: Mapping[str, Any]) -> str:
    return json.dumps(dict(options), sort_keys=True)


def _name(value: object) -> str:
    return str(value) if is_text(value) else ascii(value)


def _options(text: str, *names: object) -> dict[str, Any]:
    """Return options; for an invalid text an unknown option, which excludes the entry alone."""
    if not all(map(is_text, names)):
        return {"a text that is no UTF-8": True}
    if text == _NO_OPTIONS:
        return {}
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        options = None
    return options if isinstance(options, dict) else {"options that are no JSON object": True}
