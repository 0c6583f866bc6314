"""A profile as a file: its owner's alone, whole or not at all, and gone again when its token does not count.

In: a path and a profile. Out: the file. It holds a token that is kept nowhere else, so it is written before
the token counts, and an older file is replaced only with `--overwrite`. SIGINT and SIGTERM wait from the
moment the file has its name until it is kept or taken back, so that file and database always agree.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import orjson

from gateway.cli.deferred_signals import DeferredSignals

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType


class ProfileFile:
    """A place for a profile, as a context: on an error before `keep`, the file is as it was before."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        """Raises OSError where no file can be written, and FileExistsError unless it is to be overwritten."""
        self._overwrite = overwrite
        self._earlier: Path | None = None
        self._published = False
        self._signals = DeferredSignals()
        # A renaming would replace a link, a pipe or a device itself, and nobody would get the profile.
        self._path = _regular(path)
        if self._path.exists() and not overwrite:
            raise _exists(path)
        path = self._path
        try:
            # In the same directory, and with its owner's rights alone.
            descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        except OSError as error:
            raise OSError(f"the profile {path} cannot be written: {error.strerror}") from None
        self._half = Path(name)
        self._file = os.fdopen(descriptor, "wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is not None and self._published:
                self._take_back()
            self._clear()
            self._file.close()
        finally:
            self._signals.release()

    def keep(self) -> None:
        """The token counts: from here on no error removes the file. A signal that waited comes now."""
        self._published = False
        try:
            with suppress(OSError):
                self._clear()
        finally:
            self._signals.release()

    def _take_back(self) -> None:
        self._published = False
        if self._earlier is None:
            self._path.unlink(missing_ok=True)
        else:
            self._earlier.replace(self._path)

    def _clear(self) -> None:
        for leftover in filter(None, (self._half, self._earlier)):
            leftover.unlink(missing_ok=True)

    def write(self, profile: Mapping[str, str | int]) -> None:
        """Write the profile, whole, to the disk. Raises OSError; once."""
        text = orjson.dumps(profile, option=orjson.OPT_INDENT_2) + b"\n"
        try:
            with self._file as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            self._signals.hold()
            self._publish()
        except FileExistsError:
            raise _exists(self._path) from None
        except OSError as error:
            raise OSError(f"the profile {self._path} cannot be written: {error.strerror}") from None

    def _publish(self) -> None:
        if self._overwrite:
            with suppress(FileNotFoundError):
                earlier = self._half.with_name(f"{self._half.name}.earlier")
                os.link(self._path, earlier)
                self._earlier = earlier
            self._half.replace(self._path)
        else:
            # A link, unlike a renaming, refuses a file that came meanwhile.
            os.link(self._half, self._path)
        self._published = True
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class PrintedProfile:
    """A profile on the standard output, for use in place of a ProfileFile."""

    def __init__(self) -> None:
        self._signals = DeferredSignals()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._signals.release()

    def write(self, profile: Mapping[str, str | int]) -> None:
        """Print the profile. Raises OSError where nobody reads it."""
        sys.stdout.write(json.dumps(profile, indent=2) + "\n")
        # A reader that does not read can be left by SIGINT; afterwards the token is the reader's.
        sys.stdout.flush()
        self._signals.hold()

    def keep(self) -> None:
        """The token counts. A signal that waited comes now."""
        self._signals.release()


def _regular(path: Path) -> Path:
    """The path behind all links, which is that of a regular file or of none. Raises OSError."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as error:
        raise OSError(f"the profile {path} cannot be written: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise OSError(f"the profile {path} cannot be written: it exists and is not a regular file")
    return Path(os.path.realpath(path))


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(f"{path} exists; --overwrite replaces it, and the token in it is then lost")
