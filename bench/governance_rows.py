"""Fills a database of the gateway with recipients and shares, as one transaction."""

import secrets
from contextlib import closing
from typing import Any

from sqlalchemy import insert

from gateway.config.database import DatabasePlace
from gateway.database.engine import Database
from gateway.database.schema import GRANTS, RECIPIENTS, SCHEMAS, SHARES, TABLES, TOKENS
from gateway.times import epoch_ms

SHARE_COUNT = 100
TABLE_SHARE = "stored-000"
YEAR_MS = 365 * 86_400 * 1000
BATCH_ROWS = 1000


def fill(place: DatabasePlace, *, recipients: int, tables: int) -> None:
    """Insert recipients with a token and two grants each, and tables in a hundred shares."""
    now_ms = epoch_ms()
    keys = [f"recipient-{number:06}" for number in range(recipients)]
    shares = [f"stored-{number:03}" for number in range(SHARE_COUNT)]
    common = {"comment": "", "created_ms": now_ms, "properties": "{}", "forbids_bearer_tokens": False}
    described = {"options": "{}", "created_ms": now_ms}
    rows: dict[Any, list[dict[str, Any]]] = {
        RECIPIENTS: [{"key": key, "name": key, **common} for key in keys],
        TOKENS: [
            {
                "sha256": secrets.token_hex(32),
                "recipient": key,
                "created_ms": now_ms,
                "expires_ms": now_ms + YEAR_MS,
            }
            for key in keys
        ],
        SHARES: [{"key": share, "name": share, **described} for share in shares],
        SCHEMAS: [{"share": share, "key": "s", "name": "s", **described} for share in shares],
        TABLES: [
            {
                "share": shares[number % SHARE_COUNT],
                "schema": "s",
                "key": f"table-{number:05}",
                "name": f"table-{number:05}",
                "location": f"s3://bucket/warehouse/{number % SHARE_COUNT}/{number:05}",
                **described,
            }
            for number in range(tables)
        ],
        GRANTS: [
            {"recipient": key, "share": shares[(number + step) % SHARE_COUNT]}
            for number, key in enumerate(keys)
            for step in (0, 7)
        ],
    }
    with closing(Database(place)) as database, database.changing() as connection:
        for table, values in rows.items():
            for begin in range(0, len(values), BATCH_ROWS):
                connection.execute(insert(table), values[begin : begin + BATCH_ROWS])
