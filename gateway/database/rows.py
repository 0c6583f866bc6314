"""Rows that any program may have written.

SQLite keeps values of any type in a column of texts, and any bytes in a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy.exc
from sqlalchemy import Connection, Row, Select

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


def is_text(value: object) -> bool:
    """Return whether a value is a text of UTF-8."""
    if not isinstance(value, str):
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False
