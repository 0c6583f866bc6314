"""What all unit tests have: databases in files that no power failure harms."""

import sqlite3
from typing import Any

from sqlalchemy import Engine, event


@event.listens_for(Engine, "connect")
def leave_the_disk_alone(connection: Any, _record: object) -> None:
    """A commit waits for no disk, which is most of its time; no test ends the machine."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")
