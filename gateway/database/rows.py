"""Rows that any program may have written.

SQLite keeps values of any type in a column of texts, and any bytes in a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy.exc
from sqlalchemy import ColumnElement, Connection, Row, Select, Table, delete, insert, text

from gateway.encoding import is_utf_8

T = TypeVar("T")

BATCH = 500
"""Rows or keys of a statement."""
_NOT_UTF_8 = "Could not decode to UTF-8"


def all_rows(connection: Connection, query: Select[Any]) -> Sequence[Row[Any]]:
    """Return all rows of a query.

    SQLite keeps any bytes in a column of texts, and its driver refuses all rows for them. What is no UTF-8
    then has half surrogate pairs in its place, which the caller refuses.
    """
    try:
        return connection.execute(query).all()
    except sqlalchemy.exc.OperationalError as error:
        if connection.dialect.name != "sqlite" or _NOT_UTF_8 not in str(error.orig):
            raise
    driver: Any = connection.connection.driver_connection
    driver.text_factory = lambda text: text.decode(errors="surrogateescape")
    try:
        return connection.execute(query).all()
    finally:
        driver.text_factory = str


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows with the same columns, of texts and numbers.

    PostgreSQL runs its triggers for each statement, and a statement with a parameter for each value takes
    longer to make than to run: there all rows are one parameter, without escapes, which a database without an
    encoding does not read.
    """
    if connection.dialect.name != "postgresql":
        connection.execute(insert(table), rows)
        return
    quote = connection.dialect.identifier_preparer.quote
    name, columns = quote(table.name), ", ".join(map(quote, rows[0]))
    source = f"json_populate_recordset(NULL::{name}, CAST(:rows AS json))"
    statement = f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {source}"  # noqa: S608 - own names
    connection.execute(text(statement), {"rows": json.dumps([dict(row) for row in rows], ensure_ascii=False)})


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    """Iterate over parts of values, each as long as statements should be."""
    remaining = iter(values)
    while batch := [*islice(remaining, BATCH)]:
        yield batch


def delete_orphans(connection: Connection, conditions: Mapping[Table, ColumnElement[bool]]) -> None:
    """Delete the rows, by table, that a former owner of a name has left: a new one gets none of them.

    Programs that delete the owner's row from a SQLite file leave them, unless they enforce foreign keys.
    """
    if connection.dialect.name == "sqlite":
        for table, condition in conditions.items():
            connection.execute(delete(table).where(condition))


def is_text(value: object) -> bool:
    """Return whether a value is a text of UTF-8."""
    return isinstance(value, str) and is_utf_8(value)
