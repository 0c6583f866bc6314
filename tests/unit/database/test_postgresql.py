"""URLs as libpq reads them, encodings, rights, and connections that a pooler hands on to others."""

import json
import secrets
import socket
import threading
from contextlib import closing, contextmanager, suppress
from functools import partial
from urllib.parse import quote

import pytest
from support.gateway_app import Clock
from support.postgresql_server import running as postgresql_running
from support.waiting import wait_until

from gateway.cli.check import read_recipients
from gateway.config import loads
from gateway.config.database import DatabasePlace
from gateway.config.secret import Secret
from gateway.database.engine import Database
from gateway.database.errors import DatabaseUnusable
from gateway.database.postgresql import URL_INVALID
from gateway.governance.audited_database import NO_CHANGES, change_problems, database_problem
from gateway.governance.recipient_store import RecipientDatabase
from gateway.governance.stored_recipients import DatabaseReader

NOW_MS = 1_800_000_000_000
PASSWORD = "secret-of-the-test"


def place_of(url):
    return DatabasePlace(None, Secret(url))


def name_of(database):
    with database.statement() as connection:
        return connection.exec_driver_sql("SELECT current_database()").scalar()


@pytest.mark.parametrize(
    "form",
    [
        "postgresql://postgres@{host}/{name}",
        "postgresql://postgres@{host}:5432/{name}",
        "postgresql+psycopg://postgres@{host}/{name}",
        "postgres:///{name}?user=postgres&host={host}",
        "postgresql://postgres@%2Fnowhere:1,{host}:5432/{name}",
        "postgresql://postgres@/{name}?host=%2Fnowhere,{host}&port=1,5432",
        "postgresql://postgres@/{name}?host=%2Fnowhere&host={host}",
        "postgresql://postgres@{host}/{name}?client_encoding=LATIN1",
    ],
)
def test_a_url_is_read_as_libpq_reads_it(postgresql, form):
    name = postgresql.new_database()
    url = form.format(host=quote(postgresql.socket_directory, safe=""), name=name)
    with closing(Database(place_of(url))) as database:
        assert name_of(database) == name


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{PASSWORD}@host:port:{PASSWORD}/db",
        f"postgresql://user:{PASSWORD}@host/db?prepare_threshold=5",
        f"postgresql://user:{PASSWORD}@host/db?{PASSWORD}",
        f"postgresql://user:{PASSWORD}%zz@host/db",
        f"postgresql://user:{PASSWORD}@[::1/db",
    ],
)
def test_a_url_that_libpq_does_not_read_is_refused_without_its_password(url):
    with pytest.raises(DatabaseUnusable) as refused:
        Database(place_of(url))
    assert str(refused.value) == URL_INVALID


def new_database(postgresql, encoding):
    name = f"t{secrets.token_hex(8)}"
    postgresql.execute(
        f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    return name


def test_a_database_without_an_encoding_holds_all_names(postgresql):
    place = postgresql.place(new_database(postgresql, "SQL_ASCII"))
    with RecipientDatabase(place, now_ms=Clock(NOW_MS)) as database:
        database.add("Zoë日本", shares=["sales日本"])
        assert [record.name for record in database.list()] == ["Zoë日本"]
    assert read_recipients(config(place.url.reveal())) == {}


def config(url):
    return loads(f"version: 1\ngateway: {{database: {{url: {json.dumps(url)}}}}}\n")


def test_a_database_that_cannot_hold_all_names_is_refused_in_a_sentence(postgresql):
    place = postgresql.place(new_database(postgresql, "LATIN1"))
    reason = "its encoding LATIN1 cannot hold all names: create a database with ENCODING 'UTF8'"
    with pytest.raises(DatabaseUnusable) as refused:
        RecipientDatabase(place, now_ms=Clock(NOW_MS))
    assert str(refused.value) == reason
    with pytest.raises(OSError, match=reason):
        read_recipients(config(place.url.reveal()))


def test_check_refuses_a_database_in_which_no_tables_can_be_made(postgresql):
    name, role = postgresql.new_database(), f"u{secrets.token_hex(8)}"
    postgresql.execute(f"CREATE ROLE {role} LOGIN")
    postgresql.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC", name)
    url = postgresql.url(name).replace("postgres@", f"{role}@")
    reason = "it has no tables, and the role may not make them: GRANT CREATE ON SCHEMA public to it"
    for refuse in (
        lambda: RecipientDatabase(place_of(url), now_ms=Clock(NOW_MS)),
        lambda: read_recipients(config(url)),
    ):
        with pytest.raises(OSError, match=reason):
            refuse()
    postgresql.execute(f"GRANT CREATE ON SCHEMA public TO {role}", name)
    assert read_recipients(config(url)) == {}
    RecipientDatabase(place_of(url), now_ms=Clock(NOW_MS)).close()


@pytest.mark.processes
def test_check_refuses_a_standby_as_a_server_does():
    # A server of its own: a standby copies all databases, and the shared server has those of all tests.
    with postgresql_running() as primary, primary.standby() as standby:
        name, clock = primary.new_database(), Clock(NOW_MS)
        with RecipientDatabase(primary.place(name), now_ms=clock) as database:
            database.add("alice")
        written = primary.execute("SELECT pg_current_wal_lsn()").strip()
        applied = f"SELECT pg_last_wal_replay_lsn() >= '{written}'"
        wait_until(lambda: standby.execute(applied).strip() == "t")
        with pytest.raises(OSError, match="it has no tables, and is a standby, which takes no changes"):
            RecipientDatabase(standby.place("postgres"), now_ms=clock)
        refused = config(standby.url(name))
        for read in (
            DatabaseReader(lambda: refused.database_place).read,
            partial(read_recipients, refused),
            partial(read_recipients, config(standby.url("postgres"))),
            partial(read_through_a_pooler, standby, name),
        ):
            with pytest.raises(OSError, match="its server is a standby: name the one that takes changes"):
                read()
        # No worker starts again by it.
        assert "its server is a standby" in (database_problem(refused) or "")
        assert [*change_problems(refused)] == [NO_CHANGES]


def read_through_a_pooler(server, name):
    with pooler(server) as port:
        place = place_of(f"postgresql://postgres@127.0.0.1:{port}/{name}?sslmode=disable")
        DatabaseReader(lambda: place).read()


def test_check_says_that_a_database_takes_no_changes(postgresql):
    name = postgresql.new_database()
    checked = config(postgresql.url(name))
    RecipientDatabase(postgresql.place(name), now_ms=Clock(NOW_MS)).close()
    assert [*change_problems(checked)] == []
    postgresql.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert [*change_problems(checked)] == [NO_CHANGES]
    assert read_recipients(checked) == {}


@contextmanager
def pooler(server):
    """A relay that names another process than that of the server, as poolers do. Returns its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def copy(source, target, change=lambda data: data):
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(change(data))
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def relay(client):
        with client, socket.socket(socket.AF_UNIX) as upstream:
            upstream.connect(f"{server.socket_directory}/.s.PGSQL.5432")
            forward = threading.Thread(target=copy, args=(client, upstream))
            forward.start()
            copy(upstream, client, renamed)
            forward.join()

    def accept():
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                relays.append(threading.Thread(target=relay, args=(client,)))
                relays[-1].start()

    relays = [threading.Thread(target=accept)]
    relays[0].start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for one in relays:
            one.join()


def renamed(data):
    """Answers with another process id in the message that has it."""
    begin = data.find(b"K\0\0\0\x0c")
    return data if begin < 0 else data[: begin + 5] + b"\x7f\xff\xff\xff" + data[begin + 9 :]


SESSION = (
    "SELECT current_setting('statement_timeout'), current_setting('lock_timeout'),"
    " (SELECT count(*) FROM pg_listening_channels())"
)


def session(database):
    with database.statement() as connection:
        return tuple(connection.exec_driver_sql(SESSION).one())


def test_nothing_is_left_on_a_session_that_a_pooler_hands_on(postgresql):
    name = postgresql.new_database()
    RecipientDatabase(postgresql.place(name), now_ms=Clock(NOW_MS)).close()
    with pooler(postgresql) as port:
        place = place_of(f"postgresql://postgres@127.0.0.1:{port}/{name}?sslmode=disable")
        with closing(Database(place)) as database:
            for transaction in (database.reading, database.changing):
                with transaction() as connection:
                    assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "30s"
            database.listen("changes")
            assert session(database) == ("0", "0", 0)
        reader = DatabaseReader(lambda: place)
        reader.read()
        reader.close()
    with closing(Database(postgresql.place(name))) as database:
        database.listen("changes")
        assert session(database) == ("30s", "0", 1)
