"""Connections to PostgreSQL that wait for no answer for ever.

In: the URL of a server, or of several of which one accepts changes. Out: the arguments of a connection, and a
connection that closes itself when a statement has no answer in time. The server ends the statement itself a
little earlier, unless it hangs, such as a stopped process or one whose disk does not answer: the kernel then
still acknowledges what is sent, so that no time limit of TCP is exceeded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg.abc import RV, PQGen

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
    # A pooler of connections gives each transaction another session, which knows no prepared statement.
    "prepare_threshold": None,
}
"""Of each connection; those of the URL take precedence."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that ends when a statement has no answer in time.

    Attributes:
        answer_seconds: maximum time of a statement by this side's clock; None: no limit.

    """

    answer_seconds: float | None = ANSWER_SECONDS

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


def connect(_dialect: Any, _record: Any, arguments: Sequence[Any], keys: dict[str, Any]) -> BoundedConnection:
    """Connect for SQLAlchemy, whose event `do_connect` has these arguments.

    A time limit of statements that the role or the URL sets stays.
    """
    connection = BoundedConnection.connect(*arguments, **keys, autocommit=True)
    try:
        connection.execute(
            "SELECT set_config('statement_timeout', %s, false)"
            " WHERE current_setting('statement_timeout') = '0'",
            [f"{STATEMENT_SECONDS}s"],
        )
    except BaseException:
        connection.close()
        raise
    return connection
