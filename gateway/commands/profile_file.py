"""A profile as a file: its owner's alone, whole or not at all, and gone again when what follows fails.

In: a path and a profile. Out: the file. It holds a token that is kept nowhere else, so it is written before
the token counts, and an older file is written over only where that is asked for.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType


class ProfileFile:
    """A place for a profile, as a context: on an error inside it, the file is as it was before."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        """Raises OSError where no file can be written, and FileExistsError unless it is to be overwritten."""
        self._path = path
        self._overwrite = overwrite
        self._earlier: Path | None = None
        self._published = False
        if path.exists() and not overwrite:
            raise _exists(path)
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
        if error is not None and self._published:
            if self._earlier is None:
                self._path.unlink(missing_ok=True)
            else:
                self._earlier.replace(self._path)
        for leftover in filter(None, (self._half, self._earlier)):
            leftover.unlink(missing_ok=True)
        self._file.close()

    def write(self, profile: Mapping[str, str | int]) -> None:
        """Write the profile, whole, to the disk. Raises OSError; once."""
        text = orjson.dumps(profile, option=orjson.OPT_INDENT_2) + b"\n"
        try:
            with self._file as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
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


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(f"{path} exists; --overwrite replaces it, and the token in it is then lost")
