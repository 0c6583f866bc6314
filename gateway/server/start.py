"""What a process of the server does before its event loop and its threads begin.

In: the configuration file and the number of workers. Out: a `Start`: its configuration, its sockets, and for
a worker its slot. With several workers the process of the command reads the database, if there is one, and
forks them, so that `started` returns once in each of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gateway.access.audited_database import create_database
from gateway.config import Config, load
from gateway.config.file_stamps import Stamp, stamp
from gateway.config.session_policies import check_session_policies
from gateway.database.errors import DatabaseError
from gateway.server.accepted_config import config_of_worker
from gateway.server.cache_directory import check_cache_directory
from gateway.server.extras import check_extras
from gateway.server.forking import ForkedWorkers, can_fork, fork_workers
from gateway.server.service_manager import VARIABLES
from gateway.server.slot import Slot
from gateway.server.supervisor import bind
from gateway.server.worker_secrets import WorkerSecrets
from gateway.telemetry.clock import epoch_ms
from gateway.telemetry.log_output import forget_lines

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

    from gateway.access.stored_recipients import DatabaseReader


@dataclass(frozen=True, slots=True)
class Start:
    """What a process begins with.

    Attributes:
        path, config: the file, and the configuration that was read from it.
        read: the stamp of the file, from before it was read; without it, later changes alone are noticed.
        listeners: one for each worker; empty in a worker.
        admin_listener: that of the admin API, if there is one; None in a worker.
        slot: that of a worker, with its secrets; None for a process that serves alone or supervises.
        reader: in a forked worker, has the rows of the database.
        forked: the first workers, if they run already.

    """

    path: Path
    config: Config
    read: Stamp = ()
    listeners: Sequence[socket.socket] = ()
    admin_listener: socket.socket | None = None
    slot: Slot | None = None
    reader: DatabaseReader | None = None
    forked: ForkedWorkers | None = None


def started(path: Path, *, workers: int = 1) -> Start:
    """Read the configuration and bind the sockets; fork the workers if there are several.

    Raises ConfigError, OSError (CannotListen for a busy port, ExtraMissing) and DatabaseError.
    """
    slot = Slot.of_environment(os.environ)
    # Taken before the reading, so that a change before the watch begins is noticed.
    read = stamp([path])
    if slot is None:
        config = load(path)
    else:
        config = config_of_worker(path, WorkerSecrets.unpack(slot.secrets).config_text)
    check_extras(config)
    check_cache_directory(config)
    check_session_policies(config, str(path))
    if slot is not None:
        return Start(path, config, read, slot=slot)
    admin = config.gateway.admin
    # Bound before anything else starts.
    listeners = bind(config.host, config.port, workers)
    admin_listener = None if admin is None else bind(admin.host, admin.port, 1)[0]
    create_database(config, epoch_ms)
    start = Start(path, config, read, listeners, admin_listener)
    return _forked(start) if workers > 1 and can_fork() else start


def _forked(start: Start) -> Start:
    """Fork the workers. Returns the start of the supervisor, and in each worker that of the worker."""
    reader = _reader(start.config)
    others = () if start.admin_listener is None else (start.admin_listener,)
    if not can_fork():
        # A driver of the database has begun a thread.
        return start
    found = fork_workers(start.listeners, others, _become_worker)
    if isinstance(found, ForkedWorkers):
        return replace(start, forked=found)
    try:
        slot = found.with_secrets()
    except ConnectionResetError:
        # The supervisor could not begin, and says why.
        raise SystemExit(1) from None
    return Start(start.path, start.config, start.read, slot=slot, reader=reader)


def _reader(config: Config) -> DatabaseReader | None:
    """Return a reader that has read the database; None where there is none, or where it cannot be read."""
    if not config.has_database:
        return None
    # A server without a database starts sooner.
    from gateway.access.stored_recipients import DatabaseReader  # noqa: PLC0415

    reader = DatabaseReader(lambda: config.database_place)
    try:
        reader.read()
    except (DatabaseError, OSError, ValueError):
        # Each worker tries for itself, and reports what is wrong.
        return None
    reader.close()
    return reader


def _become_worker() -> None:
    """Let a forked worker neither report to the service manager nor write the lines of its supervisor."""
    forget_lines()
    for name in VARIABLES:
        os.environ.pop(name, None)
