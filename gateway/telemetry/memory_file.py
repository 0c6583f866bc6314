"""Files in memory without a name, which processes hand on by their descriptors."""

from __future__ import annotations

import os
import tempfile


def memory_file(name: str) -> int:
    """Return the descriptor of a new file that no other program can fill or truncate. `name` is for `/proc`.

    A system without such files has one in its temporary directory. Raises OSError.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"delta-gateway-{name}")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
