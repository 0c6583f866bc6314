"""The memory of the process: measured, bounded and returned to the system.

The C library (glibc) keeps freed memory in each of its heaps. On other systems the calls that change this do
nothing.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

from gateway.limits.control_groups import memory_limit_bytes

PAGE_BYTES = 4096
M_ARENA_MAX = -8


def resident_bytes() -> int:
    """Return the resident memory of the process; 0 where the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def private_bytes() -> int:
    """Return the resident memory without pages of files; 0 where the system does not report it.

    The system takes pages of files back when it needs memory, and all processes share them.
    """
    try:
        resident, of_files = Path("/proc/self/statm").read_bytes().split()[1:3]
        return (int(resident) - int(of_files)) * PAGE_BYTES
    except (OSError, ValueError):
        return 0


def cached(measure: Callable[[], int], *, seconds: float, clock: Callable[[], float]) -> Callable[[], int]:
    """Return a measurement that is repeated at most every `seconds`: it costs more than a small request."""
    value, measured_at = 0, -math.inf

    def measure_again() -> int:
        nonlocal value, measured_at
        now = clock()
        if now - measured_at >= seconds:
            value, measured_at = measure(), now
        return value

    return measure_again


def return_memory() -> None:
    """Return freed memory to the system, where the C library can (glibc)."""
    _of_the_c_library("malloc_trim")(0)


def bound_heaps(heaps: int) -> None:
    """Limit the number of glibc heaps for all threads together. Call it before the first thread.

    By default there are eight for each CPU, and each keeps the memory that its threads once used.
    """
    _of_the_c_library("mallopt")(M_ARENA_MAX, heaps)


def _of_the_c_library(name: str) -> Callable[..., object]:
    return getattr(ctypes.CDLL(None), name, lambda *_: None)


def machine_bytes() -> int | None:
    """Return the memory of the container, the service or the machine; None where none reports it."""
    try:
        machine = int(Path("/proc/meminfo").read_text(encoding="ascii").split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        machine = None
    return min((limit for limit in (machine, memory_limit_bytes()) if limit is not None), default=None)
