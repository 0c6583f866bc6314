"""The file in which the workers of a server share the limits of recipients.

In: the number of workers. Out: a file without a name, which the supervisor makes and each worker maps. Its
memory is used as recipients come: about 150 bytes for each with a limit.
"""

from __future__ import annotations

import os

from gateway import _native
from gateway.telemetry.memory_file import memory_file

SEED_BYTES = 16
SharedLimits = _native.SharedLimits


class LimitsFile:
    """The file, open for as long as workers are started. Its memory lives until no process maps it."""

    def __init__(self, workers: int) -> None:
        self.descriptor = memory_file("limits")
        os.write(self.descriptor, os.urandom(SEED_BYTES))
        os.ftruncate(self.descriptor, SharedLimits.size_bytes(workers))
        self.limits = SharedLimits(self.descriptor, workers=workers, worker=0)
        """The limits as the first worker sees them."""

    def clear_worker(self, worker: int) -> None:
        """Give back the streams of a worker whose process has ended, before the next one starts."""
        self.limits.clear_worker(worker)

    def close(self) -> None:
        """Close the descriptor; the map stays."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def limits_of_one() -> SharedLimits:
    """Return limits that one process has for itself."""
    file = LimitsFile(1)
    file.close()
    return file.limits
