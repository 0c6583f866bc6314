"""The replicas of a server, as a PostgreSQL database knows them.

In: a connection, and the id of this replica, which its workers have in common. Out: `ReplicaRank`, the part
of the recipients' limits for this replica. A replica lives for as long as one of its workers writes its row;
the clock is that of the database.
"""

from __future__ import annotations

import time

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert

from gateway.database.engine import NOW_MS, Database
from gateway.database.schema import REPLICAS
from gateway.limits.replica_rank import ALONE, ReplicaRank

BEAT_SECONDS = 2.0
"""Between two writes of a row."""
LIVE_SECONDS = 10.0
"""Time without a write after which a replica counts as ended."""
FORGOTTEN_SECONDS = 3600.0


class Replicas:
    """The replicas beside this one. Not thread-safe."""

    def __init__(self, own_id: str) -> None:
        self._own_id = own_id
        self._beat_at_seconds: float | None = None
        self.rank = ALONE
        """The share at the last reading."""

    def read(self, database: Database) -> None:
        """Write the row of this replica when it is time, and read the others. Raises DatabaseError."""
        if database.is_sqlite:
            # Several machines never share a file.
            return
        now_seconds = time.monotonic()
        if self._beat_at_seconds is None or now_seconds - self._beat_at_seconds >= BEAT_SECONDS:
            self._beat(database)
            self._beat_at_seconds = now_seconds
        live_ms = int(LIVE_SECONDS * 1000)
        # Where the clock was ahead, the row of a replica that has ended has a time to come.
        is_live = REPLICAS.c.beat_ms.between(NOW_MS - live_ms, NOW_MS + live_ms)
        with database.statement() as connection:
            live = connection.scalars(select(REPLICAS.c.id).where(is_live).order_by(REPLICAS.c.id)).all()
        if self._own_id in live:
            self.rank = ReplicaRank(live.index(self._own_id), len(live))

    def _beat(self, database: Database) -> None:
        beat = insert(REPLICAS).values(id=self._own_id, beat_ms=NOW_MS)
        with database.statement() as connection:
            connection.execute(beat.on_conflict_do_update(index_elements=["id"], set_={"beat_ms": NOW_MS}))
            connection.execute(
                delete(REPLICAS).where(REPLICAS.c.beat_ms < NOW_MS - int(FORGOTTEN_SECONDS * 1000))
            )
