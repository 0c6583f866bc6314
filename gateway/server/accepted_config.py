"""The configuration that a worker, or a running server, takes from the file.

In: the file and the configuration in force. Out: the configuration of the file, unless it is invalid or
changes what only a restart can change.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from gateway.config import Config, ConfigError, load, loads
from gateway.config.directory_access import check_session_policies
from gateway.config.effects import changed_fixed_keys
from gateway.config.file_stamps import UNREAD, Stamp
from gateway.server.extras import ExtraMissing, check_extras
from gateway.server.worker_secrets import WorkerSecrets
from gateway.web.request_limits import check_memory

log = logging.getLogger("gateway.serving")


class RestartRequired(ValueError):
    """Raised for a change that needs a restart."""


def config_of_worker(path: Path, secrets: WorkerSecrets, read: Stamp) -> tuple[Config, Stamp]:
    """Return the configuration in force, for one of several workers, and the stamp of its file.

    `read`: the stamp from before this. Changed files are for the reload of the worker: one that is still
    being written may be valid.
    """
    text, of_files = secrets.config_text, secrets.of_files
    # The reload reports the reason.
    with suppress(ConfigError):
        loaded = load(path, needs_readers=False)
        if (loaded.text, loaded.secrets) == (text, of_files):
            return loaded, read
    log.info("this worker starts by the configuration in force, and then looks at the changed files")
    directory = path.absolute().parent
    return loads(
        text, file=str(path), directory=directory, needs_readers=False, known_secrets=of_files
    ), UNREAD


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
