"""Measures the gateway with many recipients and stored tables, on SQLite and on PostgreSQL.

    python bench/governance.py [--recipients 20000] [--tables 10000] [--workers 4] [--changes 300]
                               [--only start|query|changes] [--database sqlite|postgresql] [--markdown FILE]
    python bench/governance.py --short     # few of each, answers checked, no figure judged: for tests

`start`: from the command to the server's line that it serves. `query`: a hot query of few files beside a
server whose database has one recipient and no table, in interleaved rounds. `changes`: from the return of a
change to the first answer by it of the last worker of two replicas, while other clients query both.
"""

import argparse
import datetime as dt
import http.client
import secrets
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from figures import text
from governance_rows import TABLE_SHARE, fill
from logs import SMALL, Logs, Table
from markdown import table_row
from measure import machine
from processes import connections_of_workers, cpu_of_group
from servers import COMMAND, ENVIRONMENT, SCHEMA, SHARE, Client, Server

from gateway.catalog.stored_shares import StoredTable
from gateway.config import Config, load
from gateway.demo.processes import free_port
from gateway.governance.audited_database import open_database, open_share_database
from gateway.governance.credentials import NewToken
from gateway.governance.recipient_store import RecipientDatabase
from gateway.governance.share_edits import with_table, without_table
from gateway.times import epoch_ms

ROOT = Path(__file__).resolve().parents[1]
RECIPIENT, OTHER_SHARE = "bench", "other"
START_BAR_SECONDS, SEEN_BAR_SECONDS, QUERY_BAR = 2.0, 1.0, 1.03
REQUESTS = 3000
LOAD_CONNECTIONS = 4
GIVEN_UP_SECONDS = 60.0
PAUSE_SECONDS = 0.002
SETTLE_SECONDS = 5.0


@dataclass(frozen=True)
class Size:
    """What is measured, and how often."""

    recipients: int
    tables: int
    workers: int
    changes: int
    rounds: int
    requests: int


@dataclass
class Figures:
    """The rows of the result: a database, what was measured, its value and whether it keeps a bar."""

    rows: list[tuple[str, str, str, str]] = field(default_factory=list)

    def add(self, kind: str, what: str, value: str, holds: bool | None = None) -> None:
        """Print and keep a row. `holds`: whether the bar is kept, if there is one."""
        verdict = "" if holds is None else "holds" if holds else "MISSED"
        self.rows.append((kind, what, value, verdict))
        print(f"{kind:10} {what}: {value} {verdict}".rstrip(), flush=True)


class Governed:
    """A directory with a configuration, its database and one recipient whose token is known."""

    def __init__(self, directory: Path, url: str, table: Table) -> None:
        directory.mkdir(parents=True)
        self.file = directory / "share.yaml"
        self._shares = [
            {
                "name": SHARE,
                "schemas": [
                    {
                        "name": SCHEMA,
                        "tables": [{"name": f"t{table.name}", "location": str(table.directory)}],
                    }
                ],
            },
            {"name": OTHER_SHARE},
        ]
        self._keys = {
            "database": url,
            "tokenKeys": [{"id": "1", "secret": secrets.token_hex(32)}],
            "storages": [{"prefix": "s3://bucket/", "region": "eu-west-1"}],
        }
        self.write(free_port())
        with self.recipients() as database:
            known = {record.name for record in database.list()}
            if RECIPIENT in known:
                self.token = database.issue(RECIPIENT, NewToken(old_expires_in_seconds=86_400)).token
            else:
                self.token = database.add(RECIPIENT, shares=[SHARE]).token

    def write(self, port: int) -> None:
        document = {"version": 1, "port": port, "host": "127.0.0.1", "shares": self._shares}
        self.file.write_text(yaml.safe_dump(document | {"gateway": self._keys}))

    @property
    def config(self) -> Config:
        return load(self.file)

    def recipients(self) -> RecipientDatabase:
        """Return a connection for changes of recipients."""
        return open_database(self.config, "bench", now_ms=epoch_ms)

    def command(self, port: int, workers: int = 1) -> list[str]:
        self.write(port)
        return [*COMMAND, "serve", "-c", str(self.file), *(["--workers", str(workers)] * (workers > 1))]

    @contextmanager
    def serving(self, workers: int = 1) -> Iterator[tuple[Server, Client]]:
        """Serve within the context."""
        with Server(lambda port: self.command(port, workers), ENVIRONMENT) as server:
            until(lambda: answers(server.port, self.token, SHARE) == 200)
            yield server, Client(server.port, self.token)


def main() -> None:
    """Run the command line."""
    arguments = parse()
    size = Size(
        arguments.recipients,
        arguments.tables,
        arguments.workers,
        arguments.changes,
        arguments.rounds,
        REQUESTS,
    )
    if arguments.short:
        size = Size(300, 200, 2, 4, 1, 50)
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="gateway-governance-") as folder, ExitStack() as stack:
        table = Logs(Path(folder, "logs"), None).plain(SMALL)
        for kind in [arguments.database] if arguments.database else ["sqlite", "postgresql"]:
            new_url = stack.enter_context(databases(kind, Path(folder, kind)))
            empty = Governed(Path(folder, kind, "empty"), new_url(), table)
            url = new_url()
            full = Governed(Path(folder, kind, "full"), url, table)
            fill(full.config.database_place, recipients=size.recipients, tables=size.tables)
            if arguments.only in (None, "start"):
                start(kind, figures, size, full)
            if arguments.only in (None, "query"):
                query(kind, figures, size, table, [empty, full])
            if arguments.only in (None, "changes"):
                changes(kind, figures, size, table, [full, Governed(Path(folder, kind, "two"), url, table)])
    if arguments.markdown:
        arguments.markdown.write_text(markdown(figures))
    if arguments.short:
        print("answers are right")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Measures many recipients and stored tables.")
    parser.add_argument("--recipients", type=int, default=20_000)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=4, help="of each replica")
    parser.add_argument("--changes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["start", "query", "changes"])
    parser.add_argument("--database", choices=["sqlite", "postgresql"])
    parser.add_argument("--markdown", type=Path, help="writes a table for the performance page")
    parser.add_argument("--short", action="store_true", help="few of each, answers checked only")
    return parser.parse_args()


@contextmanager
def databases(kind: str, directory: Path) -> Iterator[Callable[[], str]]:
    """Return what makes the URL of a new database."""
    if kind == "sqlite":
        yield lambda: f"sqlite:///{directory / secrets.token_hex(4) / 'recipients.db'}"
        return
    # At the end: `run` is a module here and among the tests.
    sys.path.append(str(ROOT / "tests"))
    from support.postgresql_server import running  # noqa: PLC0415

    with running() as server:
        yield lambda: server.url(server.new_database())


def start(kind: str, figures: Figures, size: Size, full: Governed) -> None:
    """Time and CPU from the command to the line that the server serves; each worker is ready then."""
    for workers in sorted({1, 2, size.workers}):
        found = [started(full, workers) for _ in range(size.rounds)]
        seconds, cpu = (statistics.median(values) for values in zip(*found, strict=True))
        figures.add(
            kind,
            f"start of {workers} workers",
            f"{seconds:.2f} s, least {min(found)[0]:.2f} s, CPU {cpu:.2f} s",
            min(found)[0] < START_BAR_SECONDS,
        )


def started(full: Governed, workers: int) -> tuple[float, float]:
    """Return the time and the CPU of one start."""
    begin = time.monotonic()
    process = subprocess.Popen(full.command(free_port(), workers), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "listening on" in line:
                return time.monotonic() - begin, cpu_of_group(process.pid)
        raise RuntimeError("the server ended while it started")
    finally:
        # Nobody reads its lines from here on.
        threading.Thread(target=process.stderr.read, daemon=True).start() if process.stderr else None
        process.terminate()
        process.wait(GIVEN_UP_SECONDS)


def query(kind: str, figures: Figures, size: Size, table: Table, governed: Sequence[Governed]) -> None:
    """CPU of a small query with and without recipients and tables."""
    empty, full = governed
    with empty.serving() as (one, one_client), full.serving() as (other, other_client):
        subjects = {"empty": (one, one_client), "full": (other, other_client)}
        for _, client in subjects.values():
            client.whole(table)
        # A server reports the ends of tokens after its start.
        time.sleep(SETTLE_SECONDS if size.rounds > 1 else 0)
        rounds = []
        for number in range(4 * size.rounds if size.rounds > 1 else 1):
            found = {}
            # Which comes first changes from round to round.
            for name in sorted(subjects, reverse=number % 2 == 1):
                server, client = subjects[name]
                found[name] = (
                    server.cpu(lambda client=client: queried(client, table, size.requests)) / size.requests
                )
            rounds.append(found)
    # The least of many rounds: other work of the machine only adds to it.
    least = {name: min(found[name] for found in rounds) for name in subjects}
    ratio = least["full"] / least["empty"]
    figures.add(
        kind,
        "hot query of 20 files",
        f"least {least['full'] * 1e6:.1f} µs of CPU, {text(ratio, 'x')} of an empty database",
        ratio <= QUERY_BAR,
    )


def queried(client: Client, table: Table, requests: int) -> float:
    """Send queries, each of whose answers is checked; return their rate."""
    return client.requests_per_second(client.path(table), requests, "--digest", table.expected.digest)


def changes(kind: str, figures: Figures, size: Size, table: Table, replicas: Sequence[Governed]) -> None:
    """Time until each worker of both replicas answers by a change of a grant, and of a share."""
    with ExitStack() as stack:
        running = [stack.enter_context(replica.serving(size.workers)) for replica in replicas]
        connections = [
            (connection, replicas[number].token)
            for number, (server, client) in enumerate(running)
            for connection in stack.enter_context(connections_of_workers(server, size.workers))
        ]
        for connection, token in connections:
            # The first answer of a worker is streamed.
            status(connection, token, f"shares/{SHARE}/schemas/{SCHEMA}/tables/t{table.name}/query", b"{}")
        stop, pool = threading.Event(), stack.enter_context(ThreadPoolExecutor(len(running)))
        sending = [pool.submit(load_until, stop, client, table) for _, client in running]
        try:
            database = stack.enter_context(replicas[0].recipients())
            grants = [
                seen(connections, number % 2 == 0, lambda is_there: change_grant(database, is_there))
                for number in range(size.changes)
            ]
            shares = stack.enter_context(open_share_database(replicas[0].config, "bench", now_ms=epoch_ms))
            database.grant(RECIPIENT, [TABLE_SHARE])
            location = StoredTable("changed", "s3://bucket/changed")

            def change_table(is_there: bool) -> None:
                if is_there:
                    shares.edit(TABLE_SHARE, lambda share: with_table(share, "s", location))
                else:
                    shares.edit(TABLE_SHARE, lambda share: without_table(share, "s", "changed"))

            path = f"shares/{TABLE_SHARE}/schemas/s/tables/changed"
            tables = [
                seen(connections, number % 2 == 0, change_table, path)
                for number in range(max(2, size.changes // 10))
            ]
        finally:
            stop.set()
            if not all(one.result() for one in sending):
                raise AssertionError("no query was answered")
    for what, found in (("a grant", grants), ("a stored table", tables)):
        ordered = sorted(found)
        middle, last = statistics.median(ordered), ordered[max(0, -(-len(ordered) * 99 // 100) - 1)]
        figures.add(
            kind,
            f"change of {what} until {2 * size.workers} workers answer by it, {len(found)} changes",
            f"p50 {middle:.2f} s, p99 {last:.2f} s, most {ordered[-1]:.2f} s",
            last < SEEN_BAR_SECONDS,
        )


def change_grant(database: RecipientDatabase, is_there: bool) -> None:
    """Grant a share, or take it back."""
    if is_there:
        database.grant(RECIPIENT, [OTHER_SHARE])
    else:
        database.revoke(RECIPIENT, shares=[OTHER_SHARE])


def load_until(stop: threading.Event, client: Client, table: Table) -> int:
    """Query until it is stopped; return how often."""
    count = 0
    while not stop.is_set():
        count += 1
        client.requests_per_second(
            client.path(table), 500, "--digest", table.expected.digest, "--connections", str(LOAD_CONNECTIONS)
        )
    return count


def seen(
    connections: Sequence[tuple[http.client.HTTPConnection, str]],
    is_there: bool,
    change: Callable[[bool], None],
    path: str = f"shares/{OTHER_SHARE}",
) -> float:
    """Make a change, and return the time from its end until the last worker answers by it."""
    change(is_there)
    end = time.monotonic()
    waiting, expected = list(connections), 200 if is_there else 404
    while waiting:
        waiting = [one for one in waiting if status(*one, path) != expected]
        if time.monotonic() - end > GIVEN_UP_SECONDS:
            raise AssertionError(f"a worker does not answer by a change: {path}")
        time.sleep(PAUSE_SECONDS)
    return time.monotonic() - end


def status(connection: http.client.HTTPConnection, token: str, path: str, posted: bytes | None = None) -> int:
    """Return the status of a request on a kept connection."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("GET" if posted is None else "POST", f"/delta-sharing/{path}", posted, headers)
    response = connection.getresponse()
    body = response.read()
    if response.status not in (200, 404):
        raise AssertionError(f"wrong answer: {response.status} {body[:200]!r}")
    return response.status


def answers(port: int, token: str, share: str) -> int:
    """Return the status of a share on a new connection."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=GIVEN_UP_SECONDS)) as connection:
        return status(connection, token, f"shares/{share}")


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + GIVEN_UP_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)


def markdown(figures: Figures) -> str:
    about = machine()
    lines = [
        f"{dt.datetime.now(dt.UTC).date().isoformat()}, {about['cores']} cores, {about['cpu']}.",
        "",
        "```",
        shlex.join(["python", *sys.argv]),
        "```",
        "",
        table_row(["database", "what", "figure", "bar"]),
        table_row(["---"] * 4),
        *(table_row(row) for row in figures.rows),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
