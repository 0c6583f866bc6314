"""Measures commands and servers by the operating system's own accounts.

CPU seconds are user + system of the whole process, memory is the peak of its resident set. Two things are
compared by interleaved pairs (A B A B ..), quoted as the median of the ratios: a shared machine drifts.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

PACKAGES = (
    "delta-sharing-gateway",
    "aiohttp",
    "uvloop",
    "deltalake",
    "polars",
    "pyarrow",
    "boto3",
)
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """What one run took."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    answer: Any

    def as_json(self) -> dict[str, Any]:
        """For the kept results."""
        return asdict(self)


def run(command: Sequence[str], **environment: str) -> Usage:
    """Runs a command that prints its answer as one line of JSON on its last line."""
    before = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **environment})
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return Usage(
        time.perf_counter() - before,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024,
        json.loads(output.splitlines()[-1]),
    )


def cpu_seconds(pid: int) -> float:
    """User + system seconds of a running process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def bytes_read(pid: int) -> int:
    """By a process since its start, from files, as the kernel counts them."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(lines[0].removeprefix("rchar: "))


def resident_bytes(pid: int) -> int:
    """The resident set of a running process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class PeakWatch:
    """The highest resident set of a process while it is watched; its own high-water mark is never reset."""

    def __init__(self, pid: int, every_seconds: float = 0.005) -> None:
        self.pid = pid
        self.peak_bytes = 0
        self._every = every_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._recorder, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _recorder(self) -> None:
        while not self._stop.wait(self._every):
            self.peak_bytes = max(self.peak_bytes, resident_bytes(self.pid))


def paired(first: Callable[[], float], second: Callable[[], float], pairs: int) -> dict[str, float]:
    """Medians of both and of their ratios over interleaved pairs."""
    measured = [(first(), second()) for _ in range(pairs)]
    return {
        "first": statistics.median(one for one, _ in measured),
        "second": statistics.median(other for _, other in measured),
        "ratio": statistics.median(one / other for one, other in measured),
        "pairs": pairs,
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    cpu = "unknown"
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        names = [line for line in cpu_info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "versions": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    }


def version(package: str) -> str:
    """Of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of the checkout"


def python(script: str, *arguments: str) -> list[str]:
    """The command that runs a script of this folder."""
    return [sys.executable, str(Path(__file__).parent / script), *arguments]
