"""The rows of shares in the database: their reading, and the writing of what differs.

In: a connection within a transaction. Out: stored shares. Triggers of the database note each changed share.
Any program can write the rows: an invalid one is left out by an option that no entry has.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, delete, insert, or_, select, update

from gateway.access.stored_shares import EXCLUDING_OPTIONS, StoredSchema, StoredShare, StoredTable
from gateway.database.rows import all_rows, delete_orphans, is_text
from gateway.database.schema import SCHEMAS, SHARES, TABLES, name_key

BATCH = 500
_NO_OPTIONS = "{}"
_WITH_TABLES = '%"tables"%'


def read(connection: Connection, keys: Collection[str] | None) -> dict[str, StoredShare]:
    """Return the shares with these keys that exist, by their keys; None: all."""
    if keys is None:
        return _read(connection, None)
    ordered = sorted(keys)
    found: dict[str, StoredShare] = {}
    for start in range(0, len(ordered), BATCH):
        found |= _read(connection, ordered[start : start + BATCH])
    return found


def discovering(connection: Connection) -> set[str]:
    """Return the keys of shares whose tables may be discovered: those with the word in their options."""
    queries = (
        select(SHARES.c.key).where(SHARES.c.options.like(_WITH_TABLES)),
        select(SCHEMAS.c.share).where(SCHEMAS.c.options.like(_WITH_TABLES)),
    )
    return {key for query in queries for (key,) in all_rows(connection, query) if is_text(key)}


def exclude_others(connection: Connection, key: str) -> bool:
    """Return whether a share beside that of a key may have what `StoredShare.excludes_others` says."""
    # A text of another option may have the word, too: then more is compared.
    named = or_(*(TABLES.c.options.like(f'%"{name}"%') for name in sorted(EXCLUDING_OPTIONS)))
    queries = (
        select(TABLES.c.created_ms).where(TABLES.c.share != key, TABLES.c.options != _NO_OPTIONS, named),
        select(SCHEMAS.c.created_ms).where(SCHEMAS.c.share != key, SCHEMAS.c.options.like('%"volumes"%')),
    )
    return any(connection.execute(query.limit(1)).first() is not None for query in queries)


def write(connection: Connection, before: StoredShare | None, after: StoredShare, now_ms: int) -> None:
    """Write what differs between two states of a share."""
    key = after.key
    if before is None:
        delete_orphans(connection, {SCHEMAS: SCHEMAS.c.share == key, TABLES: TABLES.c.share == key})
        connection.execute(
            insert(SHARES).values(key=key, name=after.name, options=_text(after.options), created_ms=now_ms)
        )
    elif (before.name, before.options) != (after.name, after.options):
        connection.execute(
            update(SHARES).where(SHARES.c.key == key).values(name=after.name, options=_text(after.options))
        )
    earlier = {name_key(schema.name): schema for schema in before.schemas} if before else {}
    later = {name_key(schema.name): schema for schema in after.schemas}
    for gone in earlier.keys() - later.keys():
        connection.execute(delete(SCHEMAS).where(SCHEMAS.c.share == key, SCHEMAS.c.key == gone))
    for schema_key, schema in later.items():
        _write_schema(connection, key, earlier.get(schema_key), schema, now_ms)


def remove(connection: Connection, key: str) -> None:
    """Delete a share with its schemas and tables."""
    connection.execute(delete(SHARES).where(SHARES.c.key == key))


def _write_schema(
    connection: Connection, share: str, before: StoredSchema | None, after: StoredSchema, now_ms: int
) -> None:
    key = name_key(after.name)
    if before is None:
        delete_orphans(connection, {TABLES: and_(TABLES.c.share == share, TABLES.c.schema == key)})
        connection.execute(
            insert(SCHEMAS).values(
                share=share, key=key, name=after.name, options=_text(after.options), created_ms=now_ms
            )
        )
    elif (before.name, before.options) != (after.name, after.options):
        connection.execute(
            update(SCHEMAS)
            .where(SCHEMAS.c.share == share, SCHEMAS.c.key == key)
            .values(name=after.name, options=_text(after.options))
        )
    earlier = {name_key(table.name): table for table in before.tables} if before else {}
    later = {name_key(table.name): table for table in after.tables}
    for gone in earlier.keys() - later.keys():
        connection.execute(
            delete(TABLES).where(TABLES.c.share == share, TABLES.c.schema == key, TABLES.c.key == gone)
        )
    new = []
    for table_key, table in later.items():
        values = {"name": table.name, "location": table.location, "options": _text(table.options)}
        if table_key not in earlier:
            new.append({"share": share, "schema": key, "key": table_key, **values, "created_ms": now_ms})
        elif earlier[table_key] != table:
            place = (TABLES.c.share == share, TABLES.c.schema == key, TABLES.c.key == table_key)
            connection.execute(update(TABLES).where(*place).values(**values))
    for start in range(0, len(new), BATCH):
        connection.execute(insert(TABLES), new[start : start + BATCH])


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
        own = tuple(tables.get((row.share, row.key), ()))
        schemas.setdefault(row.share, []).append(
            StoredSchema(_name(row.name), _options(row.options, row.name), own)
        )
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
    """Return options. An unknown one among them leaves the entry out, and nothing else."""
    if not all(map(is_text, names)):
        return {"a text that is no UTF-8": True}
    if text == _NO_OPTIONS:
        return {}
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        options = None
    return options if isinstance(options, dict) else {"options that are no JSON object": True}
