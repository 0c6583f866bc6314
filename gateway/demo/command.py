"""The demo as a command: writes tables, configuration and profile, and prints how to read them.

The gateway runs as in production, by `delta-gateway serve` with the written configuration.
"""

import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from gateway.authentication.credential_table import token_hash
from gateway.demo.processes import HOST, exit_on_sigterm, free_port, is_listening, started
from gateway.demo.reader import read_profile
from gateway.demo.stores import LOCAL, StoredTables, stored
from gateway.demo.tables import SCHEMA, SHARE, TABLES, lay_out
from gateway.protocol.profile import profile, profile_text
from gateway.protocol.snippets import short_text
from gateway.server.cache_directory import directory_problem
from gateway.server.extras import check_server_extra, has_demo_extra

PREFIX = "/delta-sharing"
CONFIGURATION, PROFILE = "gateway.yaml", "demo.share"
OWN_CONFIGURATION = b"\n  tokenKeys:\n  - id: demo\n"
"""What each configuration of a demo has."""

Serve = Callable[[Path], int]
"""Runs the gateway with a configuration file until it is stopped, and returns its exit code."""
WriteRows = Callable[[Sequence[Mapping[str, object]]], None]
"""Prints rows with the same keys."""


@dataclass(frozen=True)
class Demo:
    """The files in the demo's directory."""

    port: int
    configuration: Path
    profile: Path
    token: str = field(repr=False)

    @property
    def endpoint(self) -> str:
        """Return the URL of the sharing endpoint."""
        return f"http://{HOST}:{self.port}{PREFIX}"


def run(
    serve: Serve,
    write_rows: WriteRows,
    *,
    directory: Path | None,
    port: int,
    once: bool,
    store: str = LOCAL,
    store_endpoint: str | None = None,
) -> int:
    """Run the demo. Returns an exit code.

    `directory` is kept and used again, without one a temporary is; `port` 0 means a free one. With `once` the
    gateway runs for as long as its own shares are read and printed. `store` is one of `STORES`;
    `store_endpoint` is the URL of one that runs already.
    """
    check_port(port)
    check_server_extra()
    with ExitStack() as stack:
        stack.enter_context(exit_on_sigterm())
        if directory is None:
            temporary = tempfile.TemporaryDirectory(prefix="delta-gateway-demo-", ignore_cleanup_errors=True)
            directory = Path(stack.enter_context(temporary))
        directory = directory.resolve()
        lay_out_missing(directory)
        tables = stack.enter_context(stored(store, directory, TABLES, store_endpoint))
        demo = prepare(directory, port, tables)
        if once:
            return read_once(demo, write_rows)
        sys.stdout.write(introduction(demo))
        sys.stdout.flush()
        return serve(demo.configuration)


def lay_out_missing(directory: Path) -> None:
    """Write the tables that are missing. Raises OSError where the directory has files of someone else."""
    files = [file for file in (directory / CONFIGURATION, directory / PROFILE) if file.exists()]
    if files and OWN_CONFIGURATION not in files[0].read_bytes():
        raise OSError(f"{files[0]} exists, and is not of a demo: name another directory")
    lay_out(directory, now_seconds=time.time())


def prepare(directory: Path, port: int, tables: StoredTables) -> Demo:
    """Write the configuration, and a profile with a new token."""
    token = secrets.token_urlsafe(32)
    demo = Demo(port or free_port(), directory / CONFIGURATION, directory / PROFILE, token)
    demo.configuration.touch(mode=0o600)
    demo.configuration.write_text(configuration(demo, tables), encoding="utf-8")
    demo.profile.touch(mode=0o600)
    demo.profile.write_text(profile_text(profile(demo.endpoint, token)), encoding="utf-8")
    return demo


def configuration(demo: Demo, tables: StoredTables) -> str:
    """Return a configuration with one recipient and a share of the three tables."""
    entries = [{"name": table, "location": tables.location(table), "historyShared": True} for table in TABLES]
    storages = {"storages": [dict(entry) for entry in tables.storages]} if tables.storages else {}
    recipient = {
        "name": "demo",
        "tokens": [{"sha256": token_hash(demo.token).hex()}],
        "shares": [SHARE],
    }
    keys = [{"id": "demo", "secret": secrets.token_urlsafe(32)}]
    return yaml.safe_dump(
        {
            "version": 1,
            "host": HOST,
            "port": demo.port,
            "endpoint": PREFIX,
            "shares": [{"name": SHARE, "schemas": [{"name": SCHEMA, "tables": entries}]}],
            "gateway": {"recipients": [recipient], "tokenKeys": keys, **storages, **_cache()},
        },
        sort_keys=False,
    )


def _cache() -> dict[str, object]:
    """Return the part of the configuration that keeps columns in the user's cache directory."""
    directory = user_cache_directory()
    if directory is None or directory_problem(directory) is not None:
        return {}
    return {"cache": {"directory": str(directory)}}


def user_cache_directory() -> Path | None:
    """Return the user's directory for columns: below `XDG_CACHE_HOME`, or where the system has caches.

    None for a user without a home directory, as containers have them.
    """
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if configured.startswith("/"):
        caches = Path(configured)
    else:
        try:
            home = Path.home()
        except RuntimeError:
            return None
        caches = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return caches / "delta-sharing-gateway" / "columns"


def introduction(demo: Demo) -> str:
    """Return the commands to copy and paste."""
    table = f"{SHARE}.{SCHEMA}.{TABLES[0]}"
    return (
        f"Sharing {', '.join(TABLES)} at {demo.endpoint} until Ctrl-C.\n\nProfile: {demo.profile}\n\n"
        f"{short_text(demo.profile, demo.endpoint, SHARE, table)}"
    )


def read_once(demo: Demo, write_rows: WriteRows) -> int:
    """Start a gateway, read its shares through HTTP, print the rows and stop it.

    Without the extra `demo` only the number of rows is printed.
    """
    has_frames = has_demo_extra()
    with running(demo):
        for table in read_profile(demo.profile):
            sys.stdout.write(f"{table.name}: {table.number_of_rows} rows\n")
            if has_frames:
                # Of an extra, and slow to import.
                from gateway.demo.frames import frame  # noqa: PLC0415

                write_rows(frame(table).rows(named=True))
    if not has_frames:
        sys.stdout.write(
            "The rows are shown with the extra `demo`: pip install 'delta-sharing-gateway[demo]'\n"
        )
    return 0


@contextmanager
def running(demo: Demo) -> Iterator[None]:
    """A gateway process for the length of a block."""
    # -P: only the installed package is found, also from the top of a checkout.
    command = [sys.executable, "-P", "-m", "gateway", "serve", "-c", str(demo.configuration)]
    log = demo.configuration.with_name("gateway.log")
    with log.open("wb") as output, started(command, output) as process:
        if not is_listening(demo.port, process):
            raise RuntimeError(f"the gateway did not start: {log.read_text()[-2000:]}")
        yield


def check_port(port: int) -> None:
    """Raises OSError for a port where the gateway cannot listen, before another program gets the token."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or "accepted: 0 to 65535"
            raise OSError(f"cannot listen on {HOST} port {port}: {reason}; --port names another") from None
