"""Connections to PostgreSQL that wait for no answer for ever.

In: the URL of a server, or of several hosts with one writer, as libpq reads it. Out: a connection that
closes itself when a statement has no answer in time. The server ends the statement itself a
little earlier, unless it hangs, such as a stopped process or one whose disk does not answer: the kernel then
still acknowledges what is sent, so that no time limit of TCP is exceeded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from gateway.database.errors import DatabaseUnusable

CONNECT_SECONDS = 5
"""For each host of a URL."""
ACKNOWLEDGED_SECONDS = 10
"""Time after which a server that acknowledges nothing is given up."""
STATEMENT_SECONDS = 30
"""Maximum time of a statement, by the server's clock."""
ANSWER_SECONDS = STATEMENT_SECONDS + 5.0
"""The same, by this one's."""

OPTIONS: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    "tcp_user_timeout": ACKNOWLEDGED_SECONDS * 1000,
    "keepalives_idle": ACKNOWLEDGED_SECONDS,
    "keepalives_interval": ACKNOWLEDGED_SECONDS // 3,
    "application_name": "delta-sharing-gateway",
}
"""Parameters of each connection; parameters of the URL take precedence."""
ENCODINGS = ("UTF8", "SQL_ASCII")
"""Of databases that can hold all names. The second one keeps bytes as they come."""
URL_INVALID = "its URL is none that libpq reads, or has an option that libpq does not know"

_ENCODING = {"client_encoding": "UTF8"}
_SCHEME = re.compile(r"postgres(?:ql)?(?:\+psycopg)?://")


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that ends when a statement has no answer in time.

    Attributes:
        answer_seconds: maximum time of a statement by this side's clock; None: no limit.
        is_pooled: whether a pooler is between, which may give each transaction another session.

    """

    answer_seconds: float | None = ANSWER_SECONDS
    is_pooled: bool = False

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait as the base does. Raises OperationalError when the server does not answer in time."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.answer_seconds)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise
            self.close()
            raise psycopg.OperationalError(f"no answer within {self.answer_seconds:g} s") from None

    def limit_statements(self, *, is_local: bool) -> None:
        """Limit the time of statements, unless the role or the URL does. `is_local`: of this transaction."""
        self.execute(
            "SELECT set_config('statement_timeout', %s, %s) WHERE current_setting('statement_timeout') = '0'",
            [f"{STATEMENT_SECONDS}s", is_local],
        )


def connector(url: str, password: str | None) -> Callable[..., BoundedConnection]:
    """Return a function that connects, for SQLAlchemy's event `do_connect`. Raises DatabaseUnusable.

    `password`: replaces the password of the URL.
    """
    try:
        given = conninfo_to_dict(_SCHEME.sub("postgresql://", url, count=1))
    except psycopg.Error:
        # The error of libpq may have a part of the password.
        raise DatabaseUnusable(URL_INVALID) from None
    if not all(re.fullmatch("[0-9]*", port) for port in str(given.get("port", "")).split(",")):
        # Of a URL without a host that is its password, which the error of a connection would name.
        raise DatabaseUnusable(URL_INVALID)
    options = OPTIONS | given | _ENCODING
    if password is not None:
        options["password"] = password

    def connect(*_: object) -> BoundedConnection:
        connection = BoundedConnection.connect(**options, autocommit=True, prepare_threshold=None)
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    return connect


def _prepare(connection: BoundedConnection) -> None:
    """Look at the server, and limit statements. Raises DatabaseUnusable and psycopg's errors."""
    row = connection.execute("SELECT current_setting('server_encoding'), pg_backend_pid()").fetchone()
    encoding, process_id = row or (None, None)
    if encoding not in ENCODINGS:
        raise DatabaseUnusable(
            f"its encoding {encoding} cannot hold all names: create a database with ENCODING 'UTF8'"
        )
    # A pooler names a process of its own. What a session sets there stays for its next client.
    connection.is_pooled = process_id != connection.info.backend_pid
    if not connection.is_pooled:
        connection.limit_statements(is_local=False)
