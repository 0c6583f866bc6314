"""The directory for columns of tables, before a server uses it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gateway.config import Config

OTHERS_CAN_WRITE = 0o022


def check_cache_directory(config: Config) -> None:
    """Raise OSError if `gateway.cache.directory` cannot be used. Creates nothing."""
    directory = config.gateway.cache.directory
    if directory is None:
        return
    problem = directory_problem(directory)
    if problem is not None:
        raise OSError(f"gateway.cache.directory {directory} cannot be used: {problem}")


def directory_problem(directory: Path) -> str | None:
    """Return why the server could not keep columns in a directory; None if it can."""
    try:
        status = directory.lstat()
    except FileNotFoundError:
        parent = next(parent for parent in directory.absolute().parents if parent.exists())
        return None if os.access(parent, os.W_OK | os.X_OK) else "it cannot be made"
    except OSError as reason:
        return reason.strerror
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory, or it is a symbolic link"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if status.st_mode & OTHERS_CAN_WRITE:
        return "other users can write to it"
    return None if os.access(directory, os.R_OK | os.W_OK | os.X_OK) else "it cannot be written"
