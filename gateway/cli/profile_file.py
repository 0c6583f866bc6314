"""A profile as a file, or on the standard output.

It holds a token that is kept nowhere else, so it is written before the token counts, and it is gone again
when the token does not count: file and database always agree.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Self

from gateway.cli.new_file import NewFile
from gateway.config import Config
from gateway.server.deferred_signals import DeferredSignals


def profile_file(path: Path, *, overwrite: bool, option: str = "--overwrite") -> NewFile:
    """Return a new file for a profile; `option` is the one that replaces an existing file."""
    lost = f"{option} replaces it, and the token in it is then lost"
    return NewFile(path, "the profile", if_exists=lost, overwrite=overwrite)


def warn_of_host(config: Config, what: str, command: str = "recipient") -> None:
    """Warn that a profile or link names a host that other machines resolve to themselves."""
    host = config.local_host
    if host is not None:
        sys.stderr.write(
            f"delta-gateway {command}: warning: the {what} names the host '{host}', by which no other "
            "machine reaches this server; gateway.publicUrl sets the address for recipients\n"
        )


class PrintedProfile:
    """A profile on the standard output, with the interface of NewFile."""

    def __init__(self) -> None:
        self._signals = DeferredSignals()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._signals.release()

    def write_text(self, text: str) -> None:
        """Print the profile. Raises OSError for a closed pipe."""
        sys.stdout.write(text)
        # SIGINT ends a blocked write; after the write the reader has the token.
        sys.stdout.flush()
        self._signals.hold()

    def keep(self) -> None:
        """The token has taken effect. Deferred signals are sent now."""
        self._signals.release()
