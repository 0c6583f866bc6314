"""What the process holds in memory: seen, bounded, given back.

The C library (glibc) keeps what was freed, for each of its heaps, until it is told otherwise. Elsewhere these
calls do nothing.
"""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE_BYTES = 4096
M_ARENA_MAX = -8


def resident_bytes() -> int:
    """What the process holds in memory; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def remembered(look: Callable[[], int], *, seconds: float, clock: Callable[[], float]) -> Callable[[], int]:
    """The same look, taken anew only when the last one is older: it costs more than a small request."""
    seen, looked_at = 0, -math.inf

    def remember() -> int:
        nonlocal seen, looked_at
        now = clock()
        if now - looked_at >= seconds:
            seen, looked_at = look(), now
        return seen

    return remember


def return_memory() -> None:
    """Give memory that nobody holds back to the system, where the C library can (glibc)."""
    _of_the_c_library("malloc_trim")(0)


def bound_heaps(heaps: int) -> None:
    """Let all threads share so many heaps of the C library (glibc). Before the first thread.

    It makes eight for each CPU where nothing is said, and each stays as large as what its threads once held.
    """
    _of_the_c_library("mallopt")(M_ARENA_MAX, heaps)


def _of_the_c_library(name: str) -> Callable[..., object]:
    return getattr(ctypes.CDLL(None), name, lambda *_: None)


def machine_bytes() -> int | None:
    """What the container, else the machine, has; None where neither says."""
    for path, parse in (
        ("/sys/fs/cgroup/memory.max", int),
        ("/proc/meminfo", lambda text: int(text.split()[1]) * 1024),
    ):
        try:
            return parse(Path(path).read_text(encoding="ascii"))
        except (OSError, ValueError, IndexError):
            continue
    return None
