"""The section `gateway.database`: where recipients, grants and shares are stored that change at run time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qsl

from gateway.config.errors import Invalid
from gateway.config.operation import setting
from gateway.config.secret import Secret
from gateway.times import DAY_SECONDS

_PLACE_OPTIONS = frozenset({"host", "hostaddr", "port", "dbname", "service"})
"""Options of libpq that say where the database is."""
_SQLITE = "sqlite:///"
_POSTGRESQL = re.compile(r"postgres(?:ql)?(?:\+psycopg)?://.")


@dataclass(frozen=True, slots=True)
class DatabasePlace:
    """Where a database is: either a SQLite file or a PostgreSQL server.

    Attributes:
        path: the file; None for a server.
        url: of the server; None for a file. It may have the password.
        password: of the server, if it is not in the URL.

    """

    path: Path | None
    url: Secret | None = None
    password: Secret | None = None


@dataclass(frozen=True, slots=True)
class Database:
    """The database of recipients, grants and shares that change while the server runs.

    A text in place of the section is its `url`.

    Attributes:
        url: `sqlite:///recipients.db`, with a file beside the configuration, `sqlite:////directory/file` or
            `postgresql://user@host:5432/database`, with libpq's options as in `?sslmode=verify-full`.
            PostgreSQL needs the extra `postgresql`.
        password: password for PostgreSQL, in place of one in the URL.
        max_outage_seconds: time for which the last known state is in force while the database cannot be
            read. Afterwards its recipients and shares get 503 until it can be read again.

    """

    TEXT_FIELD: ClassVar[str] = "url"
    REFUSES_UNKNOWN_KEYS: ClassVar[bool] = True

    url: Secret
    password: Secret | None = None
    max_outage_seconds: float = setting(float(DAY_SECONDS), minimum=0)

    def __post_init__(self) -> None:
        url = self.url.reveal()
        # The messages have no part of the URL, which may have a password.
        if not _POSTGRESQL.match(url) and not (url.startswith(_SQLITE) and len(url) > len(_SQLITE)):
            raise Invalid("url", "expected sqlite:///FILE or postgresql://USER@HOST:PORT/DATABASE")
        if not self.is_file and url.partition("?")[0].count("@") > 1:
            # What follows the first one would be the host, which errors and logs name.
            raise Invalid("url", "'@' within a user name or a password is written as %40")
        if self.is_file and ("?" in url or "#" in url):
            raise Invalid("url", "a file has no options: expected sqlite:///FILE without '?' and '#'")
        if self.is_file and self.password is not None:
            raise Invalid("password", "is for PostgreSQL; a SQLite file has none")

    @property
    def is_file(self) -> bool:
        """Return whether the database is a SQLite file."""
        return self.url.reveal().startswith(_SQLITE)

    @property
    def server(self) -> tuple[object, ...]:
        """Identify the database, without the user, the password and the options of connections."""
        url, _, query = self.url.reveal().partition("?")
        if self.is_file:
            return (url,)
        return url.partition("://")[2].rpartition("@")[2], *(
            (key, text) for key, text in parse_qsl(query, keep_blank_values=True) if key in _PLACE_OPTIONS
        )

    def place(self, directory: Path) -> DatabasePlace:
        """Return where the database is; `directory`: of the configuration."""
        if self.is_file:
            return DatabasePlace(directory / self.url.reveal().removeprefix(_SQLITE))
        return DatabasePlace(None, self.url, self.password)
