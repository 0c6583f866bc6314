"""Surveys the health of many Delta tables from their logs, with one Spark task per table.

In: targets. Out: a `TableHealth` per table and ranked advice: the maintenance that each table needs and its
benefit. The native module reads the logs in the executors; no data file is opened.
"""

import json
import math
import os
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from gateway.spark.native_logs import answered_chunks, s3_settings
from gateway.spark.targets import Target
from gateway.times import epoch_ms

SMALL_FILE_BYTES = 16 << 20
GOOD_FILE_BYTES = 128 << 20
# The part of a file's line that a client of the protocol keeps while it plans.
CLIENT_BYTES_PER_FILE = 2000
_DAY_MS = 86_400_000

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:(parquet)|\d{10}\.(\d{10}\.parquet)|([0-9a-f-]{36}\..+))")


@dataclass(frozen=True)
class TableHealth:
    """The health of one table by its log. With an `error`, the other fields are empty."""

    table: str
    error: str | None = None
    version: int = 0
    days_since_commit: float | None = 0.0
    """None if the log has no time for its latest version."""
    files: int = 0
    bytes: int = 0
    small_files: int = 0
    files_without_stats: int = 0
    files_with_vectors: int = 0
    tombstones: int = 0
    checkpoint: str = "none"
    commits_since_checkpoint: int = 0
    earliest_version: int = 0
    start_version: int = 0
    reader_features: tuple[str, ...] = ()
    needs_delta_format: bool = False
    listing_seconds: float = 0.0

    @property
    def client_memory_bytes(self) -> int:
        """Return the estimated memory of a client that plans a read of the whole table."""
        return self.files * CLIENT_BYTES_PER_FILE


@dataclass(frozen=True)
class Advice:
    """One maintenance action. `gain` orders advice: the estimated seconds that a day's listings save."""

    table: str
    action: str
    reason: str
    gain: float


def survey(spark: SparkSession, targets: Sequence[Target]) -> list[TableHealth]:
    """Survey every table, each in a separate task. A table that cannot be read has an `error`."""
    if not targets:
        return []
    return spark.sparkContext.parallelize(list(targets), len(targets)).map(look_at).collect()


def look_at(target: Target) -> TableHealth:
    """Survey one table in this process."""
    try:
        health = _from_log(target)
        return replace(health, **_from_listing(target))
    except Exception as error:  # noqa: BLE001 - one broken table must not end the survey
        return TableHealth(target.table, error=f"{type(error).__name__}: {error}")


def advise(tables: Sequence[TableHealth]) -> list[Advice]:
    """Return the advice, the most useful first."""
    advices = [advice for table in tables if table.error is None for advice in _advice(table)]
    return sorted(advices, key=lambda advice: (-advice.gain, advice.table, advice.action))


def _advice(table: TableHealth) -> Iterator[Advice]:
    # Large files stay. The bytes of the small ones are not known: they are at most either of these.
    small_bytes = min(table.bytes, table.small_files * SMALL_FILE_BYTES)
    merged = table.small_files - math.ceil(small_bytes / GOOD_FILE_BYTES)
    if table.small_files > max(10, table.files // 2):
        yield Advice(
            table.table,
            "optimize",
            f"{table.small_files:,} of {table.files:,} files are under {SMALL_FILE_BYTES >> 20} MiB: "
            f"OPTIMIZE would leave about {table.files - merged:,}",
            table.listing_seconds * merged / max(table.files, 1) + merged * 1e-3,
        )
    if table.commits_since_checkpoint > 20:  # noqa: PLR2004 - twice Delta's own interval
        yield Advice(
            table.table,
            "checkpoint",
            f"{table.commits_since_checkpoint:,} commits are read one by one after the last checkpoint",
            table.commits_since_checkpoint * 1e-2,
        )
    if table.files_without_stats:
        yield Advice(
            table.table,
            "statistics",
            f"{table.files_without_stats:,} of {table.files:,} files have no statistics: predicates and "
            "limits prune none of them (ANALYZE TABLE .. COMPUTE DELTA STATISTICS)",
            table.files_without_stats * 1e-4,
        )
    if table.tombstones > max(1000, table.files):
        yield Advice(
            table.table,
            "tombstones",
            f"{table.tombstones:,} removed files are carried in the log: shorten "
            "delta.deletedFileRetentionDuration and checkpoint",
            table.tombstones * 1e-6,
        )
    if table.earliest_version > table.start_version:
        yield Advice(
            table.table,
            "history",
            f"shared from version {table.start_version}, but the log begins at {table.earliest_version}: "
            "raise startVersion, or keep the log longer (delta.logRetentionDuration)",
            0.0,
        )
    if table.needs_delta_format:
        yield Advice(
            table.table,
            "clients",
            f"needs clients that read {', '.join(table.reader_features) or 'the delta format'}",
            0.0,
        )


def _from_listing(target: Target) -> dict[str, Any]:
    """List all files as for a recipient's query, and count them."""
    from gateway import _native as native  # noqa: PLC0415 - the driver may do without it

    storage, root = _storage(native, target.location)
    snapshot = native.Table(storage, root).snapshot()
    # The URLs are not used, so their base URL does not exist.
    signers = native.Signers(_root_url(target.location), native.Signer.local("http://survey/", key=bytes(32)))
    now_ms = epoch_ms()
    options = native.AnswerOptions(signers, response_format="delta", now_ms=now_ms, lifetime_seconds=3600)
    committed_ms = snapshot.timestamp_ms
    started = time.perf_counter()
    answer = snapshot.files(options)
    deque(answered_chunks(answer), maxlen=0)
    seconds = time.perf_counter() - started
    inventory = snapshot.inventory([SMALL_FILE_BYTES])
    return {
        "version": snapshot.version,
        "days_since_commit": None if committed_ms is None else (now_ms - committed_ms) / _DAY_MS,
        "reader_features": tuple(snapshot.client_reader_features),
        "needs_delta_format": snapshot.needs_delta_format,
        "listing_seconds": seconds,
        "files": inventory.files,
        "bytes": answer.summary.file_bytes,
        "small_files": inventory.files_by_size[0],
        "files_without_stats": inventory.files_without_records,
        "files_with_vectors": inventory.files_with_deletion_vector,
    }


def _from_log(target: Target) -> TableHealth:
    """Return the facts of the log's file names, and the removed files of its newest checkpoint."""
    files, root = pafs.FileSystem.from_uri(_arrow_location(target.location))
    log = f"{root.rstrip('/')}/_delta_log"
    names = [info.base_name for info in files.get_file_info(pafs.FileSelector(log))]
    commits = sorted(int(match[1]) for match in map(_COMMIT.fullmatch, names) if match)
    checkpoints = sorted((int(match[1]), match[0]) for match in map(_CHECKPOINT.fullmatch, names) if match)
    newest = checkpoints[-1][0] if checkpoints else -1
    parts = _of_one([name for version, name in checkpoints if version == newest])
    latest = max([newest, *commits])
    return TableHealth(
        table=target.table,
        version=latest,
        tombstones=sum(_removed(files, log, name) for name in parts),
        checkpoint=_kind(parts),
        commits_since_checkpoint=sum(version > newest for version in commits),
        earliest_version=_earliest(commits, [version for version, _ in checkpoints]),
        start_version=target.start_version,
    )


def _of_one(names: Sequence[str]) -> Sequence[str]:
    """Return the files of the last of a version's checkpoints, each of which has all actions."""
    match = _CHECKPOINT.fullmatch(names[-1]) if names else None
    if match is None or not match[3]:
        return names[-1:]
    # Parts of one checkpoint end with their number.
    return [name for name in names if name.endswith(match[3])]


def _kind(parts: Sequence[str]) -> str:
    if not parts:
        return "none"
    match = _CHECKPOINT.fullmatch(parts[0])
    if match is None or match[2]:
        return "classic"
    return f"{len(parts)} parts" if match[3] else "v2"


def _earliest(commits: Sequence[int], checkpoints: Sequence[int]) -> int:
    """Return the oldest version that can still be read, from version 0 or from a checkpoint."""
    if commits and commits[0] == 0:
        return 0
    return min(checkpoints, default=0)


def _removed(files: pafs.FileSystem, log: str, name: str) -> int:
    """Count the removed files in a checkpoint, with its sidecars."""
    with files.open_input_file(f"{log}/{name}") as source:
        if name.endswith(".json"):
            actions = [json.loads(line) for line in source.read().splitlines() if line.strip()]
            sidecars = [action["sidecar"]["path"] for action in actions if "sidecar" in action]
            removed = sum("remove" in action for action in actions)
        else:
            removed, sidecars = _removed_in_parquet(source)
    for sidecar in sidecars:
        with files.open_input_file(f"{log}/_sidecars/{sidecar}") as source:
            removed += _removed_in_parquet(source)[0]
    return removed


def _removed_in_parquet(source: Any) -> tuple[int, list[str]]:
    """Return the number of removed files, and the names of sidecars to read next."""
    with pq.ParquetFile(source) as checkpoint:
        names = checkpoint.schema_arrow.names
        columns = [f"{name}.path" for name in ("remove", "sidecar") if name in names]
        rows = checkpoint.read(columns=columns).to_pydict() if columns else {}
    removed = sum(action is not None for action in rows.get("remove", []))
    return removed, [action["path"] for action in rows.get("sidecar", []) if action is not None]


def _storage(native: Any, location: str) -> tuple[Any, str]:
    if "://" not in location:
        return native.Storage.local(), location
    parts = urlsplit(location)
    if parts.scheme not in ("s3", "s3a"):
        raise ValueError(f"logs of {parts.scheme}:// are not listed by this command, only those of s3://")
    return native.Storage.s3(parts.netloc, **s3_settings(os.environ)), parts.path.strip("/")


def _root_url(location: str) -> str:
    return location.replace("s3a://", "s3://", 1)


def _arrow_location(location: str) -> str:
    location = _root_url(location)
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if not location.startswith("s3://") or endpoint is None:
        return location
    parts = urlsplit(endpoint)
    return f"{location}?endpoint_override={parts.netloc}&scheme={parts.scheme}"
