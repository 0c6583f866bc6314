"""Replicas know each other by their rows in a real PostgreSQL, by its clock; a file has one server."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import update
from support.postgresql_server import PostgresqlServer

from gateway.config.database import DatabasePlace
from gateway.database.engine import Database
from gateway.database.errors import DatabaseError
from gateway.database.migration import migrate
from gateway.database.schema import REPLICAS
from gateway.governance import replicas
from gateway.governance.replicas import LIVE_SECONDS, Replicas
from gateway.limits.replica_rank import ALONE, ReplicaRank, replica_id


@contextmanager
def opened(place: DatabasePlace) -> Iterator[Database]:
    with closing(Database(place, create=True)) as database:
        migrate(database, create=True)
        yield database


def age(database: Database, own_id: str, seconds: float) -> None:
    """Let a replica have written its row so long ago."""
    older = update(REPLICAS).where(REPLICAS.c.id == own_id)
    with database.statement() as connection:
        connection.execute(older.values(beat_ms=REPLICAS.c.beat_ms - int(seconds * 1000)))


def test_replicas_join_leave_and_come_back(postgresql: PostgresqlServer) -> None:
    with opened(postgresql.place(postgresql.new_database())) as database:
        one, two, three = (Replicas(own_id) for own_id in "abc")
        one.read(database)
        assert one.rank == ALONE
        for replica in (three, two, one):
            replica.read(database)
        assert [replica.rank for replica in (one, two)] == [ReplicaRank(0, 3), ReplicaRank(1, 3)]
        # A worker of the same replica is no other replica.
        worker = Replicas("c")
        for replica in (worker, three):
            replica.read(database)
            assert replica.rank == ReplicaRank(2, 3)
        age(database, "a", LIVE_SECONDS + 1)
        two.read(database)
        assert two.rank == ReplicaRank(0, 2)
        # Its own row is too old, so this replica keeps what it knows until it writes again.
        one.read(database)
        assert one.rank == ReplicaRank(0, 3)
        one._beat_at_seconds = None
        for replica in (one, two):
            replica.read(database)
        assert [replica.rank for replica in (one, two)] == [ReplicaRank(0, 3), ReplicaRank(1, 3)]
        age(database, "b", replicas.FORGOTTEN_SECONDS + 1)
        one._beat_at_seconds = None
        one.read(database)
        with database.statement() as connection:
            assert {row.id for row in connection.execute(REPLICAS.select())} == {"a", "c"}


def test_a_replica_that_ended_before_the_clock_went_back_does_not_count(postgresql: PostgresqlServer) -> None:
    with opened(postgresql.place(postgresql.new_database())) as database:
        ended, one, two = (Replicas(own_id) for own_id in "abc")
        for replica in (ended, one, two):
            replica.read(database)
        for own_id in "abc":
            age(database, own_id, -3600)
        for replica in (one, two, one):
            replica._beat_at_seconds = None
            replica.read(database)
        assert [replica.rank for replica in (one, two)] == [ReplicaRank(0, 2), ReplicaRank(1, 2)]


def test_a_database_that_fails_leaves_the_share_as_it_is(postgresql: PostgresqlServer) -> None:
    with opened(postgresql.place(postgresql.new_database())) as database:
        one, two = Replicas("a"), Replicas("b")
        for replica in (one, two, one):
            replica.read(database)
        with database.statement() as connection:
            connection.exec_driver_sql("DROP TABLE replicas")
        with pytest.raises(DatabaseError):
            one.read(database)
        assert one.rank == ReplicaRank(0, 2)


def test_a_file_is_that_of_one_server(tmp_path: Path) -> None:
    with opened(DatabasePlace(tmp_path / "recipients.db", None)) as database:
        alone = Replicas(replica_id(b"secret"))
        alone.read(database)
        assert alone.rank == ALONE


def test_the_id_of_a_replica_does_not_show_its_secret() -> None:
    assert replica_id(b"secret") == replica_id(b"secret") != replica_id(b"another")
    assert b"secret".hex() not in replica_id(b"secret")
