"""CPU, memory and time of commands and servers, from the accounts of the operating system.

CPU is user and system time of all threads of a process. Memory is what a process has allocated; pages of
mapped files, which the kernel can drop, are counted apart. Two things are compared in interleaved rounds
(A B A B ..) and reported as the median of the ratios, because the speed of a shared machine drifts.
"""

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

PACKAGES = ("delta-sharing-gateway", "aiohttp", "uvloop", "deltalake", "pyarrow")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CPUCLOCK_SCHED = 2


@dataclass(frozen=True)
class Usage:
    """Time, CPU, peak memory and the printed answer of one command."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    answer: Any


def run(command: Sequence[str], **environment: str) -> Usage:
    """Run a command that prints its answer as JSON on its last line."""
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
    """Return the CPU time of a running process, with its ended threads, in nanosecond steps."""
    # The id of another process's CPU clock, as clock_getcpuclockid(3) computes it.
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def bytes_read(pid: int) -> int:
    """Return the bytes that a process has read from files and sockets."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(lines[0].removeprefix("rchar: "))


def allocated_bytes(pid: int) -> int:
    """Return the resident memory of a process without the pages of mapped files."""
    _, resident, of_files, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(resident) - int(of_files)) * PAGE_BYTES


def mapped_bytes(pid: int) -> int:
    """Return the resident pages of mapped files of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[2]) * PAGE_BYTES


def peak_mb(pid: int | str = "self") -> int:
    """Return the most memory that a process has had."""
    # The peak that getrusage knows may be that of the process which started this one.
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def shared_out_bytes(pids: Iterable[int]) -> int:
    """Return the memory of several processes together; a page that several of them map counts once."""
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in pids]
    return sum(
        int(line.split()[1]) * 1024 for rollup in rollups for line in rollup if line.startswith("Pss:")
    )


class PeakWatch:
    """The highest allocated memory of a process while it is watched. The kernel's own mark is never reset."""

    def __init__(self, pid: int, every_seconds: float = 0.005) -> None:
        self.pid = pid
        self.peak_bytes = allocated_bytes(pid)
        self._every = every_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._record, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _record(self) -> None:
        while not self._stop.wait(self._every):
            self.peak_bytes = max(self.peak_bytes, allocated_bytes(self.pid))


def interleaved(first: Callable[[], float], second: Callable[[], float], rounds: int) -> dict[str, float]:
    """Return the medians of two measurements and of their ratio over interleaved rounds."""
    measured = [(first(), second()) for _ in range(rounds)]
    return {
        "first": statistics.median(one for one, _ in measured),
        "second": statistics.median(other for _, other in measured),
        "ratio": statistics.median(one / other for one, other in measured),
    }


def medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of each quantity over rounds."""
    return {name: statistics.median(found[name] for found in rounds) for name in rounds[0]}


def machine() -> dict[str, Any]:
    """Describe the machine and the versions of the measured packages."""
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
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of the checkout"


def script(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a script of this directory."""
    return [sys.executable, str(Path(__file__).parent / name), *arguments]
