"""One job at a time for each projection, by a lock that ends with the process that holds it.

The lock is held by Java, which writes the table: it ends when the last write is over, also after a crash of
Python alone. A directory is locked by a file in it, for all machines that mount it with locks. Object stores
have no such locks: there it is a file of this machine.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from gateway.spark.project import java

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

LOCK_FILE = "_job.lock"

_held: set[Path] = set()
_mutex = Lock()


class Locked(Exception):
    """Raised while another job keeps the projection."""

    def __init__(self) -> None:
        super().__init__("another job is at work on it")


@contextmanager
def locked(spark: SparkSession, root: str) -> Iterator[None]:
    """Hold the lock of a projection's directory. Raises Locked at once while another job holds it."""
    path = _lock_file(root)
    with _mutex:
        # Java would find out, too, but closing its second file would release the first one's lock.
        if path in _held:
            raise Locked
        _held.add(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = java.classes(spark).java.io.RandomAccessFile(str(path), "rw")
        try:
            if file.getChannel().tryLock() is None:
                raise Locked
            yield
        finally:
            file.close()
    finally:
        with _mutex:
            _held.discard(path)


def _lock_file(root: str) -> Path:
    if root.startswith("/"):
        return Path(root) / LOCK_FILE
    name = hashlib.sha256(root.encode()).hexdigest()[:32]
    return Path(tempfile.gettempdir()) / f"delta-gateway-{os.getuid()}-{name}.lock"
