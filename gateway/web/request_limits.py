"""The limits of requests, as the pipeline applies them.

In: a configuration, the number of workers, and the limits that they share. Out: `RequestLimits`, which a
reload replaces.
The gates are kept over a reload with their current usage. A client over a limit gets TooManyRequests or
Unavailable, with a `Retry-After` that clients wait for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from gateway._native import SharedLimits, bound_logs
from gateway.config import Config
from gateway.errors import GatewayError, TooManyRequests, Unavailable
from gateway.limits.admission import LimitExceeded, LimitKind
from gateway.limits.attempts import FailedAttempts
from gateway.limits.descriptors import FileReaders
from gateway.limits.drain_rate import DrainRate
from gateway.limits.memory import MemoryGate
from gateway.limits.process_memory import cached, machine_bytes, private_bytes, resident_bytes
from gateway.limits.recipient import RecipientGates
from gateway.limits.replica_rank import ALONE, ReplicaRank
from gateway.limits.shared_memory import limits_of_one
from gateway.tables.runtime import release_memory

MEMORY_PROBE_SECONDS = 0.05
MIB = 1024 * 1024
REST_BYTES = 60 * MIB
"""Of a process without requests."""
MEMORY_SHARE = 0.8
"""The part of the machine's memory that streams may use by default."""
UNKNOWN_MACHINE_BYTES = 2**33
CACHE_BYTES = 512 * MIB
"""Of columns and snapshots, by default."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """All limits of one configuration."""

    recipients: RecipientGates
    attempts: FailedAttempts
    memory: MemoryGate
    file_readers: FileReaders
    body_seconds: float
    drain_rate: DrainRate

    @staticmethod
    def of(
        config: Config,
        *,
        workers: int = 1,
        shared: SharedLimits | None = None,
        replica: ReplicaRank = ALONE,
        previous: RequestLimits | None = None,
    ) -> RequestLimits:
        """Return the limits of one of several workers: its part of the memory, and all else together.

        `shared`: the limits that the workers share; without it those of this process. `replica`: the part of
        the recipients' limits for this server. The gates of the `previous` limits are changed in place: call
        it when the configuration takes effect.
        """
        limits = config.gateway.limits
        memory_bytes = memory_of_worker(config, workers)
        of_recipients = [(entry.name, entry.limits) for entry in config.gateway.recipients]
        named = {name: replica.of(limits) for name, limits in of_recipients if limits is not None}
        default = replica.of(limits.recipient)
        bound_logs(memory_bytes)
        if previous is None:
            shared = shared or limits_of_one()
            recipients = RecipientGates(default, named, time.monotonic, shared)
            attempts = FailedAttempts(time.monotonic, shared)
            # Mapped columns can be most of the resident memory, and the system takes their pages back.
            process_bytes = private_bytes if config.gateway.cache.directory else resident_bytes
            memory = MemoryGate(
                memory_bytes,
                stream_bytes=limits.stream_bytes,
                queue_length=limits.queued_streams,
                queue_seconds=limits.queue_seconds,
                resident_bytes=cached(process_bytes, seconds=MEMORY_PROBE_SECONDS, clock=time.monotonic),
                relieve=partial(release_memory, hot=True),
            )
            file_readers = FileReaders(memory_bytes)
        else:
            recipients, attempts, memory = previous.recipients, previous.attempts, previous.memory
            file_readers = previous.file_readers
            file_readers.memory_bytes = memory_bytes
            recipients.configure(default, named)
            memory.configure(
                memory_bytes,
                stream_bytes=limits.stream_bytes,
                queue_length=limits.queued_streams,
                queue_seconds=limits.queue_seconds,
            )
        return RequestLimits(
            recipients=recipients,
            attempts=attempts,
            memory=memory,
            file_readers=file_readers,
            body_seconds=limits.body_seconds,
            drain_rate=DrainRate(limits.minimum_bytes_per_second, limits.slow_reader_seconds),
        )


def memory_of_worker(config: Config, workers: int) -> int:
    """Return the bytes for one of several workers."""
    machine = machine_bytes() or UNKNOWN_MACHINE_BYTES
    return (config.gateway.limits.memory_bytes or int(machine * MEMORY_SHARE)) // workers


def cache_of_worker(config: Config, workers: int) -> int:
    """Return the bytes of the cache of one of several workers.

    By default it leaves half of a small process to streams: with 512 MiB of columns in a container of that
    size, a few first answers of large tables would end the process before anything is freed.
    """
    cache_bytes = config.gateway.cache.memory_bytes
    if cache_bytes is not None:
        return cache_bytes // workers
    left_bytes = max(0, memory_of_worker(config, workers) - REST_BYTES)
    return min(CACHE_BYTES // workers, left_bytes // 2)


def check_memory(config: Config, *, workers: int = 1) -> None:
    """Raise OSError if a worker's part of the memory is less than a worker at rest needs.

    It would refuse every query, and could free nothing.
    """
    own_bytes = memory_of_worker(config, workers)
    if own_bytes < REST_BYTES:
        whose = (
            "gateway.limits.memoryBytes"
            if config.gateway.limits.memory_bytes
            else "the memory of this machine"
        )
        raise OSError(
            f"{whose} leaves {own_bytes // MIB} MiB to each of {workers} processes, and one needs "
            f"{REST_BYTES // MIB} MiB before it answers anything: it would refuse every query"
        )


def limit_error(exceeded: LimitExceeded) -> GatewayError:
    """Return the error for a client over a limit."""
    seconds = exceeded.retry_after_seconds
    if exceeded.limit in (LimitKind.MEMORY, LimitKind.DESCRIPTORS):
        return Unavailable("the server is busy", retry_after_seconds=seconds)
    limit = "readers of one file or at one address" if exceeded.limit is LimitKind.READERS else exceeded.limit
    return TooManyRequests(f"over the limit of {limit}", retry_after_seconds=seconds)
