"""CPU and memory of a server by the files of its tables and its requests.

In: tables and a load. Out: the need of each replica. The constants are measured figures: `docs/sizing.md`
lists them, and `docs/performance.md` says how they were measured. Reads nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

HOT_FILE_SECONDS = 0.78e-6
"""CPU of a file in an answer from columns in memory."""
COLD_FILE_SECONDS = 1.92e-6
"""CPU of a file in an answer that reads the log of an object store."""
GZIP_FILE_SECONDS = 1.2e-6
"""CPU of a file in gzip, which most clients accept."""
GZIP_RATIO = 3.6
S3_REQUEST_SECONDS = 0.98e-3
"""CPU of a lone request that looks for a newer version in an object store."""
FRESH_REQUEST_SECONDS = 0.26e-3
"""CPU of a query that shares this look with others, or needs none."""
LOCAL_REQUEST_SECONDS = 0.13e-3
"""CPU of a query of a local table."""

RESTING_BYTES = 60_000_000
"""Memory of a process without requests."""
COLUMN_FACTOR = 1.13
"""Memory of columns against the bytes of paths, statistics and `COLUMN_FILE_BYTES`."""
COLUMN_FILE_BYTES = 64
COLD_ANSWER_BYTES = 52_000_000
"""Memory above rest of reading a log."""
STREAM_BYTES = 1_520_000
"""Memory of an answer that waits for a slow client, with its socket buffer."""

UTILISATION = 0.5
"""The part of the CPU that the busiest hour may need on average: bursts need the rest."""
ADMITTED_SHARE = 0.8
"""The part of a container's memory that answers share by default (`gateway.limits.memoryBytes`)."""
SECONDS_OF_AN_HOUR = 3600
CPU_STEP, MEMORY_STEP = 0.5, 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TableSize:
    """What decides the cost of a table. The bytes of a file are means."""

    name: str
    files: int
    path_and_stats_bytes: float
    line_bytes: float
    is_local: bool

    @property
    def column_bytes(self) -> float:
        """Return the memory of the table's columns."""
        return COLUMN_FACTOR * (self.path_and_stats_bytes + COLUMN_FILE_BYTES) * self.files

    @property
    def answer_bytes(self) -> float:
        """Return the size of an answer with all files, without compression."""
        return self.line_bytes * self.files


@dataclass(frozen=True, slots=True)
class Load:
    """Requests and the servers that answer them.

    Attributes:
        requests_per_day: queries of all tables together, spread evenly over them.
        busiest_hour: part of the day's requests in its busiest hour.
        selected: part of a table's files that an answer has.
        client_bytes_per_second: rate at which a client reads an answer.
        replicas: servers behind a load balancer.
        workers: processes of each server.
        cache_bytes: `gateway.cache.memoryBytes`.
        has_cache_directory: whether workers share columns by `gateway.cache.directory`.
        stream_bytes: `gateway.limits.streamBytes`.
        max_staleness_seconds: `gateway.maxStalenessSeconds`.
        compressed: whether answers are compressed (`gateway.compression.enabled`).

    """

    requests_per_day: float
    busiest_hour: float
    selected: float
    client_bytes_per_second: float
    replicas: int
    workers: int
    cache_bytes: int
    has_cache_directory: bool
    stream_bytes: int
    max_staleness_seconds: float
    compressed: bool

    @property
    def compression_seconds(self) -> float:
        """Return the CPU of a file's compression."""
        return GZIP_FILE_SECONDS if self.compressed else 0.0

    @property
    def requests_per_second(self) -> float:
        """Return the rate of the busiest hour."""
        return self.requests_per_day * self.busiest_hour / SECONDS_OF_AN_HOUR


@dataclass(frozen=True, slots=True)
class Need:
    """The need of all servers in the busiest hour, and of each replica."""

    cores: float
    streams: int
    network_bytes_per_second: float
    column_bytes: float
    columns_fit: bool
    replica_cores: float
    replica_bytes: int


def need(tables: Sequence[TableSize], load: Load) -> Need:
    """Return the need of tables under a load."""
    columns = sum(table.column_bytes for table in tables)
    held = columns * (1 if load.has_cache_directory else load.workers)
    fit = load.has_cache_directory or held <= load.cache_bytes
    seconds, answer_bytes = _mean_answer(tables, load, hot=fit)
    rate = load.requests_per_second
    cores = rate * seconds
    # Little's law; at least two, because a client may read two tables at a time.
    streams = max(2, math.ceil(rate * (seconds + answer_bytes / load.client_bytes_per_second)))
    # The others carry the load of one that is away.
    carrying = max(1, load.replicas - 1)
    own_streams = math.ceil(streams / carrying)
    processes = load.workers if load.workers == 1 else load.workers + 1
    used = (
        processes * RESTING_BYTES
        + min(held, load.cache_bytes if not load.has_cache_directory else held)
        + load.workers * COLD_ANSWER_BYTES
        + own_streams * STREAM_BYTES
    )
    admitted = own_streams * load.stream_bytes
    return Need(
        cores=cores,
        streams=streams,
        network_bytes_per_second=rate * answer_bytes,
        column_bytes=columns,
        columns_fit=fit,
        replica_cores=_up(cores / carrying / UTILISATION, CPU_STEP),
        replica_bytes=int(_up(max(used, admitted) / ADMITTED_SHARE, MEMORY_STEP)),
    )


def answer_seconds(table: TableSize, load: Load, *, hot: bool) -> float:
    """Return the CPU of one answer."""
    if table.is_local:
        request = LOCAL_REQUEST_SECONDS
    else:
        request = FRESH_REQUEST_SECONDS if load.max_staleness_seconds else S3_REQUEST_SECONDS
    file = (HOT_FILE_SECONDS if hot else COLD_FILE_SECONDS) + load.compression_seconds
    return request + file * table.files * load.selected


def sent_bytes(table: TableSize, load: Load) -> float:
    """Return the size of one answer as it is sent."""
    return table.answer_bytes * load.selected / (GZIP_RATIO if load.compressed else 1)


def _mean_answer(tables: Sequence[TableSize], load: Load, *, hot: bool) -> tuple[float, float]:
    """Return the mean CPU and bytes of an answer."""
    if not tables:
        return 0.0, 0.0
    seconds = sum(answer_seconds(table, load, hot=hot) for table in tables)
    answer_bytes = sum(sent_bytes(table, load) for table in tables)
    return seconds / len(tables), answer_bytes / len(tables)


def _up(value: float, step: float) -> float:
    """Return the next multiple of a step, at least one."""
    return max(1, math.ceil(value / step)) * step
