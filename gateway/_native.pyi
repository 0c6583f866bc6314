"""The native leaf: Delta logs as streams of signed NDJSON lines.

Everything here releases the GIL while it works. Calls marked *blocks* read storage and belong in an executor
thread; all others return at once and may be called on the event loop. Times are integers in milliseconds since
the epoch unless a name says otherwise.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias, final

ResponseFormat: TypeAlias = Literal["parquet", "delta"]

class LogError(Exception):
    """Base of all errors of the native code. `str()` may be shown to a recipient.

    `detail` is for the operator's log only (it may name hosts and keys).

    LogError
    ├── TableNotFound            no Delta log there
    ├── VersionNotFound          requested, earliest, latest
    ├── TimestampOutOfRange      requested_ms, earliest_ms, latest_ms
    ├── CorruptLog               file
    ├── UnsupportedFeature       feature
    ├── ChangeDataFeedDisabled   version
    ├── ForbiddenPath            a file outside of the allowed roots
    ├── InvalidCursor            a place in an order of files that is gone
    ├── StorageDenied            the store refused the credentials
    ├── StorageUnavailable       unreachable, throttled, timed out
    ├── Cancelled
    ├── DeadlineExceeded
    └── InvalidArgument          a configuration value the native code cannot work with
    """

    detail: str | None

class TableNotFound(LogError): ...

class VersionNotFound(LogError):
    requested: int
    earliest: int
    latest: int

class TimestampOutOfRange(LogError):
    requested_ms: int
    earliest_ms: int
    latest_ms: int

class CorruptLog(LogError):
    file: str

class UnsupportedFeature(LogError):
    feature: str

class ChangeDataFeedDisabled(LogError):
    version: int

class IncompleteRemove(LogError):
    version: int

class ForbiddenPath(LogError): ...
class InvalidCursor(LogError): ...
class StorageDenied(LogError): ...
class StorageUnavailable(LogError): ...
class Cancelled(LogError): ...
class DeadlineExceeded(LogError): ...
class InvalidArgument(LogError): ...

@final
class Storage:
    """Where table roots are read from: the local file system or one S3-compatible bucket. `repr` shows no secret."""

    @staticmethod
    def local() -> Storage: ...
    @staticmethod
    def s3(
        bucket: str,
        *,
        region: str,
        endpoint: str | None = None,
        path_style: bool = False,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        session_token: str | None = None,
        timeout_seconds: float = 30.0,
        retry_seconds: float = 5.0,
    ) -> Storage:
        """Without keys the default chain of the environment is asked (variables, web identity, instance role)."""
    def replace_credentials(
        self, *, access_key_id: str, secret_access_key: str, session_token: str | None = None
    ) -> None:
        """Requests from now on are signed by these keys. Does nothing to a local storage."""

@final
class Signer:
    """Makes URLs for objects under one root. `repr` shows no secret."""

    @staticmethod
    def s3(
        bucket: str,
        *,
        region: str,
        endpoint: str | None = None,
        path_style: bool = False,
        access_key_id: str,
        secret_access_key: str,
        session_token: str | None = None,
        credentials_expire_ms: int | None = None,
        portable: bool = False,
    ) -> Signer:
        """SigV4 query presigning. `endpoint` is the host of the URLs; `portable` never uses wide lanes."""
    @staticmethod
    def local(base_url: str, *, key: bytes) -> Signer:
        """URLs of the gateway's own files route: `{base_url}/{percent-encoded key}?sp=r&expires={s}&signature={hex}`.

        `base_url` ends in the table's id, so that a URL of one table opens no other. The signature is
        HMAC-SHA256(key, "{path of the URL}\\n{expires}"), of a path that was decoded once and encoded once.
        """
    def sign(self, key: str, *, now_ms: int, lifetime_seconds: int) -> tuple[str, int]:
        """One URL for the object `key` (unencoded), and when it expires."""

def verify_local_url(path: str, expires: str, signature: str, *, key: bytes, now_ms: int) -> bool:
    """Whether the files route may answer this (still percent-encoded, however spelt) URL path. Constant time."""

@final
class Chunk:
    """A piece of an answer, ends on a line. Supports the buffer protocol; its memory is reused once released."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class PruneCounts:
    """What became of the files that an answer was made from."""

    considered: int
    pruned_by_partition: int
    pruned_by_stats: int
    pruned_by_limit: int
    returned: int

@final
class StreamSummary:
    """What a stream did; complete when the stream is done."""

    files: int
    """Lines with a URL."""
    file_bytes: int
    """The sizes of these files, as the log says them."""
    next_place: str | None
    """Where the next page goes on; None when everything was answered."""
    min_url_expiration_ms: int | None
    pruning: PruneCounts

@final
class NdjsonChunks:
    """The body of an answer, made ahead by native threads into a bounded queue."""

    def fileno(self) -> int:
        """A file descriptor that becomes readable when `next_chunk` has something new to say.

        Ask only after None from a stream that is not done: an answer that was ready at once has none (ValueError).
        """
    def next_chunk(self) -> Chunk | None:
        """The next piece, or None: then `done` tells the end from "not yet" (wait for `fileno`). Raises LogError."""
    @property
    def seconds_left(self) -> float | None:
        """Until the deadline, after which `next_chunk` raises DeadlineExceeded whatever the work waits for."""
    @property
    def done(self) -> bool: ...
    @property
    def summary(self) -> StreamSummary: ...
    @property
    def foreseen(self) -> PruneCounts | None:
        """What `summary.pruning` will say in the end. Known with the first chunk, or not before the end.

        Known of all files without conditions, and of files in memory unless choosing among them takes long.
        """
    def finish(self, last_line: bytes) -> bytes:
        """`last_line` (may be empty) and whatever the content coding still owes. Only when `done`."""
    def cancel(self) -> None:
        """Stops the native work at once. Also done when the object is dropped."""

@final
class Snapshot:
    """One version of a table: protocol and metadata known, files not read."""

    version: int
    timestamp_ms: int | None
    """The commit's timestamp in milliseconds since the epoch: in-commit where the table has that, then None where the
    commit lacks it. May read the commit, so it *blocks*."""
    table_id: str
    """metaData.id"""
    min_reader_version: int
    client_reader_features: list[str]
    """Reader features that a client must announce to read the table (log-only ones are taken away)."""
    needs_delta_format: bool
    change_data_feed: bool
    partition_columns: list[str]
    schema_string: str | None
    is_in_memory: bool
    """Whether `totals` and `files` read nothing, so that they may be called on the event loop."""
    has_totals: bool
    """Whether `totals` and `header` read nothing."""
    has_bad_hint: bool
    """Whether `_last_checkpoint` led to nothing, so that the whole log had to be listed."""
    identity: str
    """Names the checkpoint and version that fix the order of files; part of page tokens."""

    def header(
        self,
        response_format: ResponseFormat,
        *,
        with_version: bool,
        history_shared: bool = False,
        stop: Stop | None = None,
    ) -> bytes:
        """The protocol and metaData lines, with size and numFiles. *Blocks* when those are not known yet.

        Without shared history the parquet format does not say that the change data feed can be read.
        """
    def totals(self, stop: Stop | None = None) -> tuple[int, int]:
        """(numFiles, size in bytes). *Blocks* when not known yet, until `stop`."""
    def files(
        self, options: AnswerOptions, *, limit_hint: int | None = None, with_version: bool = False
    ) -> NdjsonChunks:
        """The whole answer of /query but for the endStreamAction: header lines, then a line a file."""
    def hint_problems(
        self, predicate_hints: Sequence[str], json_predicate_hint: str | None
    ) -> list[tuple[str, str]]:
        """(hint, why it prunes nothing) for each hint that is ignored in whole or part."""

    def explain(self, predicate_hints: Sequence[str], json_predicate_hint: str | None) -> Explanation:
        """What each condition drops by itself and what all keep together; looks at every file. *Blocks*."""

@final
class Conjunct:
    """One of the conditions that must all hold."""

    text: str
    """It as SQL."""
    columns: list[str]
    """The columns that it asks about, with their types."""
    scope: str
    """What decides it: constant, partition, statistics, both, or undecidable."""
    drops: int
    """Files that it would drop if it stood alone."""
    dropped_examples: list[str]
    """Some of them, by their paths in the log."""

@final
class Explanation:
    """What becomes of the files of a version."""

    considered: int
    kept: int
    kept_examples: list[str]
    conjuncts: list[Conjunct]
    problems: list[tuple[str, str]]
    """(hint, why it prunes less than it says)."""

@final
class Signers:
    """The signer of the table's own root, and those of other roots that absolute paths may point to."""

    def __new__(cls, root: str, signer: Signer, others: Sequence[tuple[str, Signer]] = ...) -> Signers:
        """`root` and the first of each of `others`: `s3://bucket/prefix`, `file:///directory` or `/directory`.

        An S3 signer must be that of the location's bucket; the keys of a local one are relative to the location.
        """

@final
class AnswerOptions:
    """How an answer is written and which page of it, whatever it is an answer to."""

    def __new__(
        cls,
        signers: Signers,
        *,
        response_format: ResponseFormat,
        now_ms: int,
        lifetime_seconds: int,
        file_id_scheme: ResponseFormat | None = None,
        predicate_hints: Sequence[str] = ...,
        json_predicate_hint: str | None = None,
        max_files: int | None = None,
        place: str | None = None,
        content_coding: Literal["identity", "gzip", "zstd"] = "identity",
        deadline_ms: int | None = None,
        history_shared: bool = False,
        stop: Stop | None = None,
    ) -> AnswerOptions:
        """`now_ms` is the clock of all URLs and of the deadline. Without a scheme the format chooses that of ids.

        `place` is a `next_place` of an earlier stream of the same `identity`; a stream raises InvalidCursor otherwise.
        `stop` ends the work before the stream.
        """

@final
class Table:
    """One Delta table: finds versions, keeps snapshots. Thread-safe; one per shared table."""

    def __new__(cls, storage: Storage, root: str) -> Table:
        """`root`: a directory for local storage, else the key prefix in the bucket. Nothing is read yet."""
    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp_ms: int | None = None,
        identity: str | None = None,
        max_staleness_ms: int = 0,
    ) -> Snapshot:
        """The latest version (as of a look at most `max_staleness_ms` ago), or that of a version or timestamp.

        With `identity`, the very order of files that an earlier `Snapshot.identity` names, for its next pages:
        VersionNotFound when log cleanup took what it was read from, or InvalidCursor where other files still
        rebuild the version, in another order. *Blocks*.
        """
    def latest_if_fresh(self, *, max_staleness_ms: int) -> Snapshot | None:
        """As `snapshot`, but never reads: None when the last look is too old. May be called on the event loop."""
    def kept(self, *, max_age_ms: int) -> Snapshot | None:
        """The latest version of a look at most `max_age_ms` ago. Neither reads nor begins to: the storage may hang."""
    def version_at_or_after(self, timestamp_ms: int) -> int:
        """The earliest version committed at or after a timestamp. Raises TimestampOutOfRange after the last. *Blocks*."""
    def version_at_or_before(self, timestamp_ms: int) -> int:
        """The latest version committed at or before a timestamp. Raises TimestampOutOfRange before the first. *Blocks*."""
    def changes(
        self,
        *,
        starting_version: int,
        ending_version: int | None = None,
        change_data_feed: bool,
        heading: Literal["start", "latest"] | int | None = None,
        max_staleness_ms: int = 0,
        stop: Stop | None = None,
    ) -> Changes:
        """A range of versions. `change_data_feed`: every version must have it enabled (for /changes). *Blocks*.

        `heading` chooses the version whose metadata stands before the changes: the first of the range (the default),
        the latest of the table, or that of an earlier page by its number. The latest version must be readable: a
        feature that is not supported raises, also for a range of earlier versions without it. A look at the latest
        version that is `max_staleness_ms` old or older, or older than the range, is done again.
        """

@final
class Stop:
    """A deadline for blocking calls, and a way to end those that nobody waits for. Thread-safe."""

    def __new__(cls, *, seconds: float | None = None) -> Stop:
        """`seconds` from now calls raise DeadlineExceeded; None: never."""
    def cancel(self) -> None:
        """From here on calls raise Cancelled."""

@final
class Changes:
    """A range of versions, inclusive; the log's commits are not read yet but for protocol and metadata."""

    starting_version: int
    ending_version: int
    heading_version: int
    """The version whose metadata heads the answer."""
    snapshot: Snapshot
    """That of `starting_version`."""
    client_reader_features: list[str]
    """Those needed for the heading and for any version in the range."""
    needs_delta_format: bool
    identity: str

    def files(
        self,
        options: AnswerOptions,
        *,
        include_historical_metadata: bool = False,
        include_historical_protocol: bool = False,
    ) -> NdjsonChunks:
        """The whole answer but for the endStreamAction: header lines, then what each version changed."""

def configure(*, threads: int | None = None, cache_bytes: int | None = None) -> None:
    """Sets the size of the native pool (before the first stream) and the budget of hot columns and remembered versions."""

def cache_used_bytes() -> int:
    """Bytes of hot columns and remembered versions held."""

def shrink_cache(bytes: int) -> None:  # noqa: A002
    """Drops the least recently used hot columns and versions until at most `bytes` are held; running streams finish."""

def release_spare_buffers() -> None:
    """Frees the memory that is kept for the chunks to come."""

def is_debug_build() -> bool:
    """Whether this module was built without optimisation; benches refuse it."""

def deletion_vector_rows(data: bytes, *, offset: int, size_in_bytes: int) -> list[int]:
    """Row indexes of a vector stored in a deletion vector file, checked by its checksum. Raises CorruptLog."""

def inline_deletion_vector_rows(z85: str) -> list[int]:
    """Row indexes of an inline vector. Raises CorruptLog."""

def encode_deletion_vector(rows: Sequence[int]) -> bytes:
    """A deletion vector file holding one vector at offset 1, as Delta writes it (for demo tables and tests)."""
