"""Frees memory without requests, and names the largest tables while the process stays above its limit."""

from __future__ import annotations

import logging

from gateway.limits.memory import MemoryGate
from gateway.tables.registry import Tables
from gateway.telemetry.metrics import Metrics

log = logging.getLogger("gateway.memory")

NAMED_TABLES = 3
MIB = 1024 * 1024


class MemoryWatch:
    """Looks at the memory of the process at each probe."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._largest, self._largest_bytes = "", 0
        """The tables that held most since the process came above its limit, and how much."""
        self._was_exhausted = False

    def look(self, memory: MemoryGate, tables: Tables) -> None:
        """Begin to free caches above the limit, and log once when nothing is left to free."""
        if memory.is_above:
            # Caches are freed in several steps: the rest of them at the end names the wrong tables.
            held = tables.largest(NAMED_TABLES)
            held_bytes = sum(size for _, size in held)
            if held_bytes > self._largest_bytes:
                self._largest = ", ".join(f"{table.full_name} {size // MIB} MiB" for table, size in held)
                self._largest_bytes = held_bytes
        else:
            self._largest, self._largest_bytes = "", 0
        memory.free()
        is_exhausted = memory.is_exhausted
        self._metrics.memory_exhausted.set(int(is_exhausted))
        if is_exhausted and not self._was_exhausted:
            log.warning(
                "the process is above its part of gateway.limits.memoryBytes, %d MiB, and no cache is left "
                "to free: queries run one at a time, and this server is not ready; largest tables before: %s",
                memory.limit_bytes // MIB,
                self._largest or "none",
            )
        elif self._was_exhausted and not is_exhausted:
            log.info("the process is below its memory limit again")
        self._was_exhausted = is_exhausted
