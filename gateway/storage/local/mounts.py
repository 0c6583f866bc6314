"""Finds the mount of a directory by its name.

In: a directory and the system's list of mounts. Out: the mount point. The directory itself is not touched,
since its mount may hang; so links in its name are not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
ROOT = "/"

_MOUNT_POINT = 4
_ESCAPE = re.compile(r"\\([0-7]{3})")


def mount_of(directory: str, mount_points: Iterable[str]) -> str:
    """Return the innermost mount point that contains a directory."""
    holding = (point for point in mount_points if f"{directory}/".startswith(f"{point.rstrip('/')}/"))
    return max(holding, key=len, default=ROOT)


def mount_points() -> list[str]:
    """Return the mount points of this machine; none on systems other than Linux."""
    try:
        rows = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    return parse(rows)


def parse(rows: Iterable[str]) -> list[str]:
    """Read the mount points of a mountinfo (proc_pid_mountinfo(5)), where blanks are written in octal."""
    points = (fields[_MOUNT_POINT] for row in rows if len(fields := row.split()) > _MOUNT_POINT)
    return [_ESCAPE.sub(lambda escape: chr(int(escape[1], 8)), point) for point in points]
