"""A remote Parquet file, of which chosen ranges are fetched in parallel.

In: a function that reads a range, and the size of the file. Out: a file for Parquet readers. The footer and
whatever was not fetched before are read when the reader asks for them.
"""

import io
from bisect import bisect_right
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache

import pyarrow.parquet as pq

CONNECTIONS = 4
# A gap this small costs less to fetch than another request.
_LARGEST_GAP_BYTES = 256 << 10
# A longer range is cut, so that its parts are fetched in parallel.
_LONGEST_RANGE_BYTES = 8 << 20

Range = tuple[int, int]
"""The first byte, and the byte after the last one."""


@cache
def connections() -> ThreadPoolExecutor:
    """Return the threads of this process that fetch beside the one that decodes."""
    return ThreadPoolExecutor(CONNECTIONS, "share-fetch")


class ColumnChunkFile(io.RawIOBase):
    """A read-only, seekable file that holds the ranges of the last call of `fetch` in memory."""

    def __init__(
        self, read_range: Callable[[int, int], bytes], size_bytes: int, connections: Executor
    ) -> None:
        super().__init__()
        self._read_range = read_range
        self._size_bytes = size_bytes
        self._connections = connections
        self._position = 0
        self._fetched: list[tuple[int, bytes]] = []

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position of the next read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """Read `size` bytes, fewer only at the end of the file."""
        left = max(self._size_bytes - self._position, 0)
        length = left if size < 0 else min(size, left)
        if length == 0:
            return b""
        data = self._read(self._position, length)
        self._position += length
        return data

    def fetch(self, ranges: Iterable[Range]) -> None:
        """Fetch ranges in parallel, instead of those that are held."""
        self._fetched = []
        wanted = _cut(_merged(ranges))
        if len(wanted) > 1:
            self._fetched = list(self._connections.map(self._fetch, wanted))
        else:
            self._fetched = [self._fetch(chunk) for chunk in wanted]

    def _fetch(self, wanted: Range) -> tuple[int, bytes]:
        start, end = wanted
        return start, self._read_range(start, end - start)

    def _read(self, start: int, length: int) -> bytes:
        parts = []
        position = start
        index = max(bisect_right(self._fetched, start, key=lambda held: held[0]) - 1, 0)
        for first, data in self._fetched[index:]:
            if not first <= position < first + len(data):
                break
            parts.append(data[position - first : start + length - first])
            position += len(parts[-1])
            if position == start + length:
                return parts[0] if len(parts) == 1 else b"".join(parts)
        return self._read_range(start, length)


def chunk_ranges(group: pq.RowGroupMetaData, is_wanted: Callable[[str], bool]) -> list[Range]:
    """Return the ranges of the column chunks of a row group whose paths are wanted."""
    chunks = (group.column(index) for index in range(group.num_columns))
    return [_range_of(chunk) for chunk in chunks if is_wanted(chunk.path_in_schema)]


def _range_of(chunk: pq.ColumnChunkMetaData) -> Range:
    start = chunk.data_page_offset
    # Some writers set the offset of a dictionary that the chunk does not have to 0.
    if chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def _merged(ranges: Iterable[Range]) -> list[Range]:
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1] + _LARGEST_GAP_BYTES:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _cut(ranges: Iterable[Range]) -> list[Range]:
    return [
        (first, min(first + _LONGEST_RANGE_BYTES, end))
        for start, end in ranges
        for first in range(start, end, _LONGEST_RANGE_BYTES)
    ]
