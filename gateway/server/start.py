"""What a process of the server does before its event loop and its threads begin.

In: the configuration file and the number of workers. Out: a `Start`: its configuration, its sockets, and for
a worker its slot.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.config import Config, load
from gateway.config.directory_access import check_session_policies
from gateway.config.file_stamps import Stamp, stamp
from gateway.database.errors import DatabaseUnusable
from gateway.governance.audited_database import create_database
from gateway.server.accepted_config import config_of_worker
from gateway.server.cache_directory import check_cache_directory
from gateway.server.extras import check_extras
from gateway.server.listeners import bind
from gateway.server.slot import Slot
from gateway.server.worker_secrets import WorkerSecrets
from gateway.times import epoch_ms
from gateway.web.request_limits import check_memory

NO_STATE = (
    "The server does not start: no state is kept on disk, because tokens that were revoked meanwhile would "
    "be accepted again. Make the database reachable and start the server again; running servers keep the "
    "last state for gateway.database.maxOutageSeconds"
)


@dataclass(frozen=True, slots=True)
class Start:
    """What a process begins with.

    Attributes:
        path, config: the file, and the configuration that was read from it.
        read: the stamp of the file, from before it was read; without it, later changes alone are noticed.
        listeners: one for each worker; empty in a worker.
        admin_listener: listener of the admin API, if there is one; None in a worker.
        slot: a worker's slot, with its secrets; None for a process that serves alone or supervises.

    """

    path: Path
    config: Config
    read: Stamp = ()
    listeners: Sequence[socket.socket] = ()
    admin_listener: socket.socket | None = None
    slot: Slot | None = None


def allow_descriptors() -> None:
    """Raise the limit of descriptors to the system's maximum. Workers inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    # A system may have a lower bound than its limit.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def started(path: Path, *, workers: int = 1) -> Start:
    """Read the configuration and bind the sockets.

    Raises ConfigError, OSError (CannotListen for a busy port, ExtraMissing) and DatabaseError.
    """
    slot = Slot.of_environment(os.environ)
    # Taken before the reading, so that a change before the watch begins is noticed.
    read = stamp([path])
    if slot is None:
        config = load(path)
    else:
        config, read = config_of_worker(path, WorkerSecrets.unpack(slot.secrets), read, workers=slot.count)
    check_extras(config)
    check_session_policies(config, str(path))
    allow_descriptors()
    if slot is not None:
        return Start(path, config, read, slot=slot)
    check_cache_directory(config)
    check_memory(config, workers=workers)
    admin = config.gateway.admin
    # Bound before anything else starts.
    listeners = bind(config.host, config.port, workers)
    admin_listener = None if admin is None else bind(admin.host, admin.port, 1)[0]
    try:
        create_database(config, epoch_ms)
    except DatabaseUnusable as error:
        raise DatabaseUnusable(f"{error}. {NO_STATE}") from None
    return Start(path, config, read, listeners, admin_listener)
