"""The native runtime of this process: threads, caches and memory."""

from __future__ import annotations

import select
from pathlib import Path

from gateway import _native
from gateway._native import NdjsonChunks
from gateway.limits.process_memory import return_memory

LEAST_CACHE_BYTES = 1024 * 1024
"""Less than this is freed at once: halves of it would end late."""


def read_whole(chunks: NdjsonChunks, *, keep_bytes: int | None = None) -> bytes:
    """Return a whole answer, or at least its first `keep_bytes`. Blocks until the end of the answer."""
    body = bytearray()
    while True:
        chunk = chunks.next_chunk()
        if chunk is not None:
            if keep_bytes is None or len(body) < keep_bytes:
                body += memoryview(chunk)
        elif chunks.done:
            return bytes(body)
        else:
            select.select([chunks.fileno()], [], [])


def configure_cache_directory(directory: Path | None, *, disk_bytes: int) -> None:
    """Keep columns in files of a directory, or in memory only. Raises OSError if it cannot be used."""
    try:
        _native.configure_cache_directory(
            None if directory is None else str(directory), disk_bytes=disk_bytes
        )
    except _native.InvalidArgument as reason:
        raise OSError(f"gateway.cache.directory {directory}: {reason}") from None


def release_memory(*, hot: bool) -> bool:
    """Return spare buffers to the system, with `hot` also half of the cache; False if the cache was empty.

    Blocks.
    """
    _native.release_spare_buffers()
    used_bytes = _native.cache_used_bytes()
    if hot:
        _native.shrink_cache(used_bytes // 2 if used_bytes > LEAST_CACHE_BYTES else 0)
    return_memory()
    return used_bytes > 0
