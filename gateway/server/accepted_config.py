"""The configuration that a worker, or a running server, takes from the file.

In: the file and the configuration in force. Out: the configuration of the file, unless it is invalid or
changes what only a restart can change.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path

from gateway.config import Config, ConfigError, load, loads
from gateway.config.directory_access import check_session_policies
from gateway.config.effects import changed_fixed_keys
from gateway.config.file_stamps import UNREAD, Stamp, stamp
from gateway.server.extras import ExtraMissing, check_extras
from gateway.server.reload import POLL_SECONDS
from gateway.server.worker_secrets import WorkerSecrets
from gateway.web.request_limits import check_memory

log = logging.getLogger("gateway.serving")


class RestartRequired(ValueError):
    """Raised for a change that needs a restart."""


def config_of_worker(
    path: Path, secrets: WorkerSecrets, read: Stamp, *, workers: int
) -> tuple[Config, Stamp]:
    """Read a file for one of several workers. `read`: its stamp from before this; returns it, or UNREAD.

    The configuration in force stays if the file is rejected, or is still being written: it may be valid.
    """
    text, of_files = secrets.config_text, secrets.of_files
    # Read again below, for the reason.
    with suppress(ConfigError):
        loaded = load(path, needs_readers=False)
        if (loaded.text, loaded.secrets) == (text, of_files):
            return loaded, read
    directory = path.absolute().parent
    current = loads(text, file=str(path), directory=directory, needs_readers=False, known_secrets=of_files)
    files = [path, *current.secret_files]
    before = stamp(files)
    time.sleep(POLL_SECONDS)
    try:
        if before == stamp(files):
            return accepted(path, current, workers=workers), read
        reason = "it is being changed"
    except (ValueError, OSError) as refused:
        reason = str(refused)
    log.error("the changed configuration is refused, this worker starts by the one in force: %s", reason)
    return current, UNREAD


def accepted(path: Path, running: Config, *, workers: int) -> Config:
    """Read a file for a running server of that many workers. Raises ConfigError, RestartRequired, OSError.

    It may give access to no recipient, when the last one has lost it.
    """
    loaded = load(path, needs_readers=False)
    if not loaded.readers:
        log.warning("%s: no recipient can read, and the server would not start", path)
    changed = changed_fixed_keys(running, loaded)
    if changed:
        raise RestartRequired(f"{', '.join(changed)}: a change of this needs a restart")
    try:
        check_extras(loaded)
    except ExtraMissing as reason:
        raise ConfigError(str(path), "", str(reason)) from None
    check_session_policies(loaded, str(path))
    check_memory(loaded, workers=workers)
    return loaded
