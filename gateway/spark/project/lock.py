"""One job at a time for each projection, so that none undoes the unpublished work of another one.

In a local directory the lock is one of a file in it, for all machines that mount it with locks. Java holds
it, which writes the table: it ends with that process, also after a crash of Python alone. Object stores have
no locks: there it is an object that its holder renews, and that another job replaces once it has expired. A
job that was stopped for so long finds out before its next step. Should it not, its version is refused:
versions are published on the condition that they are not there yet.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Thread

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from gateway.spark import java
from gateway.spark.project.objects import Directory, Refused
from gateway.times import epoch_ms

LOCK_FILE = "_job.lock"
LEASE_MS = 300_000
"""Time after which an object that was not renewed is no lock any more. Clocks may differ by less."""

_RENEWALS = 5

_held: set[Path] = set()
_mutex = Lock()


class Locked(Exception):
    """Raised while another job keeps the projection."""

    def __init__(self, message: str = "another job is running on it") -> None:
        super().__init__(message)


@contextmanager
def locked(spark: SparkSession, root: str, lease_ms: int = LEASE_MS) -> Iterator[Callable[[], None]]:
    """Hold the lock of a projection's directory. Raises Locked at once while another job holds it.

    Gives a function that raises Locked when the lock was lost. Raises Unsafe.
    """
    if root.startswith("/"):
        with _file_lock(spark, Path(root) / LOCK_FILE):
            yield lambda: None
    else:
        lease = _Lease(Directory(spark, root, java.hadoop_settings(spark)), lease_ms)
        with lease.held():
            yield lease.check


@contextmanager
def _file_lock(spark: SparkSession, path: Path) -> Iterator[None]:
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


class _Lease:
    """A lock by an object that names its holder and the time until which it holds."""

    def __init__(self, directory: Directory, lease_ms: int) -> None:
        self._directory = directory
        self._lease_ms = lease_ms
        self._holder = uuid.uuid4().hex
        self._text = ""
        self._until_ms = 0
        self._lost = False
        self._ended = Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock within the block. Raises Locked."""
        self._take()
        renewing = Thread(target=self._renew, name="projection-lock", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            self._ended.set()
            renewing.join()
            # What the job did is done. A lock that its store does not give back expires.
            with suppress(Py4JError):
                if not self._lost and self._directory.read(LOCK_FILE) == self._text:
                    self._directory.remove(LOCK_FILE)

    def check(self) -> None:
        """Raise Locked if the lock was lost, or may have been."""
        if self._lost or epoch_ms() >= self._until_ms:
            raise Locked("its lock was lost, and another job may be running on it; the next run starts again")

    def _take(self) -> None:
        try:
            self._put(lambda text: self._directory.create(LOCK_FILE, text))
            self._directory.check_refusal(LOCK_FILE)
        except Refused:
            lease = self._directory.read(LOCK_FILE)
            if lease is None or _until_ms(lease) > epoch_ms():
                minutes = max(1, self._lease_ms // 60_000)
                raise Locked(
                    f"another job is running on it, or was killed less than {minutes} min ago"
                ) from None
            try:
                self._put(lambda text: self._directory.replace(LOCK_FILE, text, lease))
            except Refused:
                raise Locked from None

    def _renew(self) -> None:
        while not self._ended.wait(self._lease_ms / 1000 / _RENEWALS):
            try:
                self._put(lambda text: self._directory.replace(LOCK_FILE, text, self._text))
            except Refused:
                self._lost = True
                return
            except Py4JError:
                # The store may answer again before the lock expires, which `check` finds out.
                continue

    def _put(self, write: Callable[[str], None]) -> None:
        until_ms = epoch_ms() + self._lease_ms
        text = json.dumps({"holder": self._holder, "untilMs": until_ms})
        write(text)
        self._text, self._until_ms = text, until_ms


def _until_ms(text: str) -> int:
    """Return until when a lock holds. A text that is none has expired."""
    try:
        return int(json.loads(text)["untilMs"])
    except (ValueError, KeyError, TypeError):
        return 0
