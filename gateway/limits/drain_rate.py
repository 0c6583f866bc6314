"""The slowest reader that a stream waits for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DrainRate:
    """The slowest reader that a stream waits for."""

    minimum_bytes_per_second: int = 1024
    grace_seconds: float = 30.0

    def write_seconds(self, chunk_bytes: int) -> float | None:
        """Return the time that writing a chunk may take before its reader is cut off; None for ever."""
        if self.minimum_bytes_per_second <= 0:
            return None
        return self.grace_seconds + chunk_bytes / self.minimum_bytes_per_second
