"""A profile as a file, or on the standard output.

It holds a token that is kept nowhere else, so it is written before the token counts, and it is gone again
when the token does not count: file and database always agree.
"""

from __future__ import annotations

import sys
from typing import Self

from gateway.cli.new_file import NewFile
from gateway.protocol.profile import Profile, profile_text
from gateway.server.deferred_signals import DeferredSignals


class ProfileFile(NewFile):
    """A profile file, as a context: on an error before `keep`, the file is as it was before."""

    what = "the profile"
    if_exists = "--overwrite replaces it, and the token in it is then lost"

    def write(self, profile: Profile) -> None:
        """Write the complete profile to the disk, once. Raises OSError."""
        self.write_text(profile_text(profile))


class PrintedProfile:
    """A profile on the standard output, with the interface of ProfileFile."""

    def __init__(self) -> None:
        self._signals = DeferredSignals()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._signals.release()

    def write(self, profile: Profile) -> None:
        """Print the profile. Raises OSError for a closed pipe."""
        sys.stdout.write(profile_text(profile))
        # SIGINT ends a blocked write; after the write the reader has the token.
        sys.stdout.flush()
        self._signals.hold()

    def keep(self) -> None:
        """The token has taken effect. Deferred signals are sent now."""
        self._signals.release()
