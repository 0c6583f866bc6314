"""The memory and the CPUs that the control groups of this process leave it, of versions 1 and 2.

A limit of any level above the process holds: that of a container, of a service's unit or of its slice. Files
below the roots of the mounted hierarchies are read; where there are none, nothing is limited.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PROCESS = Path("/proc/self")
UNLIMITED_BYTES = 2**60
"""Version 1 writes a number above this one for no limit."""
UNIFIED = ""
"""The controller of version 2, which has one hierarchy for all."""


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mounted hierarchy: the group that its mount point shows, and its controllers."""

    root: PurePosixPath
    point: Path
    controllers: frozenset[str]


def memory_limit_bytes(process: Path = PROCESS) -> int | None:
    """Return the smallest memory limit of all groups of a process; None without one."""
    limits = [
        *(_number(directory / "memory.max") for directory in _directories(process, UNIFIED)),
        *(_number(directory / "memory.limit_in_bytes") for directory in _directories(process, "memory")),
    ]
    return min((limit for limit in limits if limit is not None and limit < UNLIMITED_BYTES), default=None)


def cpus(process: Path = PROCESS) -> int:
    """Return the number of CPUs that this process may use at a time, by its affinity and all its groups."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *(math.ceil(quota) for quota in _quotas(process))]))


def _quotas(process: Path) -> Iterator[float]:
    for directory in _directories(process, UNIFIED):
        quota, _, period = _text(directory / "cpu.max").strip().partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period):
            yield int(quota) / int(period)
    for directory in _directories(process, "cpu"):
        quota_us, period_us = (
            _number(directory / "cpu.cfs_quota_us"),
            _number(directory / "cpu.cfs_period_us"),
        )
        if quota_us is not None and period_us:
            yield quota_us / period_us


def _directories(process: Path, controller: str) -> Iterator[Path]:
    """Iterate over the directories of the groups of a process, from its own up to the root."""
    for line in _text(process / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if controller not in controllers.split(","):
            continue
        group = PurePosixPath("/", name.removesuffix(" (deleted)"))
        for mount in _mounts(process):
            if controller in mount.controllers:
                # The mount of a container may begin at a group that the process knows by a longer name.
                below = group.relative_to(mount.root) if group.is_relative_to(mount.root) else PurePosixPath()
                directory = mount.point / below
                yield from (
                    ancestor
                    for ancestor in (directory, *directory.parents)
                    if ancestor.is_relative_to(mount.point)
                )


def _mounts(process: Path) -> Iterator[_Mount]:
    for line in _text(process / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) > 4 and len(kinds) > 2 and kinds[0] in ("cgroup", "cgroup2"):  # noqa: PLR2004 - proc(5)
            controllers = {UNIFIED} if kinds[0] == "cgroup2" else set(kinds[2].split(","))
            yield _Mount(PurePosixPath(fields[3]), Path(fields[4]), frozenset(controllers))


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdecimal() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
