"""A new file: whole or not at all, and gone again if what it belongs to fails.

In: a path and a text. Out: the file. An older file is replaced only on request. SIGINT and SIGTERM wait from
the moment the file has its name until it is kept or taken back. Contexts of several files may be nested; the
inner one is kept first.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

from gateway.server.deferred_signals import DeferredSignals

_WITHOUT_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""Errors of file systems that give a file one name, such as those of USB sticks and network shares."""


class NewFile:
    """A file of its owner alone, as a context: on an error before `keep`, the file is as it was before."""

    def __init__(self, path: Path, what: str, *, if_exists: str, overwrite: bool = False) -> None:
        """Raises OSError where no file can be written, and FileExistsError unless `overwrite`.

        `what` names the file in messages; `if_exists` says how to replace an existing one.
        """
        self._what = what
        self._if_exists = if_exists
        self._overwrite = overwrite
        self._earlier: Path | None = None
        self._published = False
        self._signals = DeferredSignals()
        # Renaming would replace a link, a pipe or a device itself.
        self._path = self._regular(path)
        if self._path.exists() and not overwrite:
            raise self._exists(path)
        path = self._path
        try:
            # In the same directory, readable by its owner only.
            descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        except OSError as error:
            raise self._unwritable(path, error) from None
        self._half = Path(name)
        self._file = os.fdopen(descriptor, "wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            if error is not None and self._published:
                self._restore()
            self._clear()
            self._file.close()
        finally:
            self._signals.release()

    def keep(self) -> None:
        """Keep the file: the token has taken effect. Deferred signals are sent now."""
        self._published = False
        try:
            with suppress(OSError):
                self._clear()
        finally:
            self._signals.release()

    def _restore(self) -> None:
        self._published = False
        if self._earlier is None:
            self._path.unlink(missing_ok=True)
        else:
            self._earlier.replace(self._path)

    def _clear(self) -> None:
        for leftover in filter(None, (self._half, self._earlier)):
            leftover.unlink(missing_ok=True)

    def write_text(self, text: str) -> None:
        """Write the complete text to the disk, once. Raises OSError."""
        try:
            with self._file as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            self._signals.hold()
            self._publish()
        except FileExistsError:
            raise self._exists(self._path) from None
        except OSError as error:
            raise self._unwritable(self._path, error) from None

    def _publish(self) -> None:
        if self._overwrite:
            with suppress(FileNotFoundError):
                earlier = self._half.with_name(f"{self._half.name}.earlier")
                _link(self._path, earlier)
                self._earlier = earlier
            # From here on an error restores the earlier one, which may have its other name alone.
            self._published = self._earlier is not None
            self._half.replace(self._path)
        else:
            # Linking, unlike renaming, fails if the file was created meanwhile.
            _link(self._half, self._path)
        self._published = True
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _regular(self, path: Path) -> Path:
        """Return the path behind all links, of a regular file or of none. Raises OSError."""
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            mode = stat.S_IFREG
        except OSError as error:
            raise self._unwritable(path, error) from None
        if not stat.S_ISREG(mode):
            raise OSError(f"{self._what} {path} cannot be written: it exists and is not a regular file")
        return Path(os.path.realpath(path))

    def _unwritable(self, path: Path, error: OSError) -> OSError:
        return OSError(f"{self._what} {path} cannot be written: {error.strerror}")

    def _exists(self, path: Path) -> FileExistsError:
        return FileExistsError(f"{path} exists; {self._if_exists}")


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, or another one where it can have one alone. Raises FileExistsError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS:
            raise
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            source.replace(target)
        except OSError:
            target.unlink()
            raise
