"""The native runtime of this process: threads, caches and memory."""

from __future__ import annotations

import select

from gateway import _native
from gateway._native import (
    NdjsonChunks,
)
from gateway.limits.process_memory import return_memory


def read_whole(chunks: NdjsonChunks, *, keep_bytes: int | None = None) -> bytes:
    """A whole answer, or its first bytes when only those are kept. Blocks."""
    kept = bytearray()
    while True:
        chunk = chunks.next_chunk()
        if chunk is not None:
            if keep_bytes is None or len(kept) < keep_bytes:
                kept += memoryview(chunk)
        elif chunks.done:
            return bytes(kept)
        else:
            select.select([chunks.fileno()], [], [])


def configure(*, threads: int | None, cache_bytes: int) -> None:
    """Set what the native code of this process may use. Before the first table."""
    _native.configure(threads=threads, cache_bytes=cache_bytes)


def cache_bytes() -> int:
    """What the columns of hot tables and remembered versions take in this process."""
    return _native.cache_used_bytes()


def release_memory(*, hot: bool) -> None:
    """Give back what is kept for the streams to come, with `hot` also half of the hot columns. Blocks."""
    _native.release_spare_buffers()
    if hot:
        _native.shrink_cache(_native.cache_used_bytes() // 2)
    return_memory()
