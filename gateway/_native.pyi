"""The native module: Delta logs as streams of signed NDJSON lines.

All calls release the GIL while they work. Calls marked *blocks* read storage and must run in an executor thread; all
others return immediately and may run on the event loop. Times are integers in milliseconds since the epoch unless the
name has another unit.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, final

ResponseFormat: TypeAlias = Literal["parquet", "delta"]

class LogError(Exception):
    """Base class of the errors of the native module. `str()` may be shown to a recipient.

    `detail` is for the operator's log only, as it may contain hosts and keys. Of a store's answer it has the status,
    `<Code>`, `<Region>`, `<Endpoint>` and the first line of the message, never the body.

    LogError
    ├── TableNotFound            no Delta log there; `detail` says why if the bucket is absent or the root has no key
    ├── VersionNotFound          requested, earliest, latest
    ├── TimestampOutOfRange      requested_ms, earliest_ms, latest_ms
    ├── CorruptLog               file
    │   └── Contradiction        two sources of one version count different files
    ├── UnsupportedFeature       feature
    ├── ChangeDataFeedDisabled   version
    ├── IncompleteRemove         version
    ├── RuleRefused              partition values do not decide the rule of a grant; `detail` has the reason
    ├── ForbiddenPath            a file outside of the allowed roots
    ├── InvalidCursor            a cursor in an order of files that no longer exists
    ├── FileReplaced             a log file that is not the one that was listed
    ├── StorageDenied            the store denies access
    │   └── StorageRefused       for a reason that is not in the credentials
    ├── StorageUnavailable       unreachable, throttled, timed out
    ├── Busy                     no memory left for the log, or no descriptors; `detail` has more
    ├── TooManySignatures        more files than the store may be asked to sign for one answer
    ├── Cancelled
    ├── DeadlineExceeded
    ├── InvalidArgument          an invalid configuration value
    └── NativePanic              a defect of the native code; `detail` has its file and line
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

class Contradiction(CorruptLog):
    """Two sources of one version count different files; `detail` has both."""

class UnsupportedFeature(LogError):
    feature: str

class ChangeDataFeedDisabled(LogError):
    version: int

class IncompleteRemove(LogError):
    version: int

class RuleRefused(LogError): ...
class ForbiddenPath(LogError): ...
class InvalidCursor(LogError): ...

class FileReplaced(LogError):
    file: str

class StorageDenied(LogError): ...
class StorageRefused(StorageDenied): ...
class StorageUnavailable(LogError): ...
class Busy(LogError): ...
class TooManySignatures(LogError): ...
class Cancelled(LogError): ...
class DeadlineExceeded(LogError): ...
class InvalidArgument(LogError): ...
class NativePanic(LogError): ...

@final
class SharedLimits:
    """Limits that hold over all workers of a server: its state is a file that each of them maps.

    No call waits for another process. Keys are hashes of 16 bytes.
    """

    def __new__(cls, descriptor: int, *, workers: int, worker: int) -> SharedLimits:
        """Maps the file of a descriptor, which may be closed then.

        The file has `size_bytes`: 16 random bytes, then zeros. Raises OSError for another file.
        """
    @staticmethod
    def size_bytes(workers: int) -> int:
        """Returns the length of the file."""
    @property
    def seed(self) -> bytes:
        """The first 16 bytes of the file."""
    def bucket(
        self,
        recipient: bytes,
        kind: Literal["requests", "files", "credentials"],
        *,
        rate: float,
        capacity: int,
        now_seconds: float,
    ) -> SharedBucket:
        """Returns a bucket of a recipient with `rate` tokens a second. A balance stays, up to the new capacity."""
    def streams(self, recipient: bytes) -> SharedStreams:
        """Returns the running streams of a recipient."""
    def failures_wait_seconds(
        self, attempt: bytes, *, failures: int, seconds: float, now_seconds: float
    ) -> float:
        """Returns the time until a key may fail again: `failures` at once, one of which is forgiven in `seconds`."""
    def charge_failure(self, attempt: bytes, *, failures: int, seconds: float, now_seconds: float) -> None:
        """Charges a failure to a key. Of too many keys, the next to be forgiven is forgotten."""
    def clear_worker(self, worker: int) -> None:
        """Gives back the streams of a worker whose process has ended. For the supervisor only."""

@final
class SharedBucket:
    """A token bucket of a recipient. Its balance may become negative. A clock that goes backwards adds nothing."""

    def wait_seconds(self, tokens: int, now_seconds: float) -> float:
        """Returns the time until that many tokens are available."""
    def take(self, tokens: int, now_seconds: float, *, patience_seconds: float) -> tuple[bool, float]:
        """Takes tokens that are available within the patience. Returns whether, and the time until they are."""
    def charge(self, tokens: int, now_seconds: float) -> None:
        """Takes tokens, also when they are not available."""

@final
class SharedStreams:
    """The running streams of a recipient."""

    def enter(self, limit: int) -> bool:
        """Counts a stream of this worker. False: as many run in all workers, and nothing is counted."""
    def leave(self) -> None:
        """Counts the end of a stream of this worker."""
    def set(self, streams: int) -> None:
        """Sets the number of streams that run in this worker."""

@final
class Storage:
    """The storage of tables: the local file system, or one bucket or container. `repr` shows no secret.

    Requests of `azure` and `gcs` raise StorageDenied until credentials are set. Credentials of another kind of storage
    raise InvalidArgument; they have no effect on local storage.
    """

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
        listing_seconds: float = 300.0,
        requester_pays: bool = False,
    ) -> Storage:
        """Without keys uses the default chain of the environment (variables, web identity, instance role)."""
    @staticmethod
    def azure(
        account: str,
        container: str,
        *,
        endpoint: str | None = None,
        timeout_seconds: float = 30.0,
        retry_seconds: float = 5.0,
        listing_seconds: float = 300.0,
    ) -> Storage:
        """A container of Azure Blob Storage.

        `endpoint` is `http(s)://host[:port][/path]` of the account's blobs, `https://{account}.blob.core.windows.net` by
        default.
        """
    @staticmethod
    def gcs(
        bucket: str,
        *,
        endpoint: str | None = None,
        user_project: str | None = None,
        timeout_seconds: float = 30.0,
        retry_seconds: float = 5.0,
        listing_seconds: float = 300.0,
    ) -> Storage:
        """A bucket of Google Cloud Storage, read with a bearer token. `user_project` pays for the requests."""
    def replace_credentials(
        self, *, access_key_id: str, secret_access_key: str, session_token: str | None = None
    ) -> None:
        """Signs later requests of `s3` with these keys."""
    def replace_account_key(self, key: str) -> None:
        """Signs later requests of `azure` with an account's key, in Base64."""
    def replace_bearer_token(self, token: str) -> None:
        """Authorizes later requests of `azure` and `gcs` by a token."""
    def list_directories(self, root: str) -> tuple[list[str], bool]:
        """Returns the names of the directories directly below a root, and whether there may be more. *Blocks*.

        A missing root is empty.
        """

@final
class DelegationKey:
    """A user delegation key of Azure, each field as the service returns it. `repr` shows no secret."""

    def __new__(
        cls,
        *,
        object_id: str,
        tenant_id: str,
        start: str,
        expiry: str,
        service: str,
        version: str,
        value: str,
    ) -> DelegationKey: ...
    @property
    def expiry(self) -> str: ...

@final
class Signer:
    """Signs URLs of objects under one root. `repr` shows no secret."""

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
        requester_pays: bool = False,
    ) -> Signer:
        """Presigns URLs with SigV4. `endpoint` is the host of the URLs; `portable` disables wide vector instructions."""
    @staticmethod
    def azure(
        account: str,
        container: str,
        *,
        endpoint: str | None = None,
        account_key: str | None = None,
        delegation_key: DelegationKey | None = None,
        credentials_expire_ms: int | None = None,
        portable: bool = False,
    ) -> Signer:
        """Shared access signatures of one blob, by the account's key (in Base64) or by a user delegation key.

        URLs expire before the delegation key and before `credentials_expire_ms`.
        """
    @staticmethod
    def gcs(
        bucket: str,
        *,
        endpoint: str | None = None,
        access_id: str | None = None,
        secret: str | None = None,
        email: str | None = None,
        private_key: str | None = None,
        access_token: str | None = None,
        iam_endpoint: str | None = None,
        user_project: str | None = None,
        max_remote_signatures: int | None = None,
        credentials_expire_ms: int | None = None,
        portable: bool = False,
    ) -> Signer:
        """Signatures of version 4 of Google, by exactly one key: an HMAC key, a service account's key, or a service.

        An HMAC key is `access_id` and `secret`. A key of the service account `email` is `private_key` in PEM form. With
        `access_token`, IAM signs as `email`: one request for each URL, so that `Signer.sign` *blocks*, URLs live twelve
        hours at most, and answers with more than `max_remote_signatures` files raise TooManySignatures.
        """
    @staticmethod
    def local(base_url: str, *, key: bytes) -> Signer:
        """URLs of the gateway's own files route: `{base_url}/{percent-encoded key}?sp=r&expires={s}&signature={hex}`.

        `base_url` ends in the table's id, so a URL is valid for one table only. The signature is
        HMAC-SHA256(key, "{path of the URL}\\n{expires}"), of the path decoded once and encoded once.
        """
    def sign(self, key: str, *, now_ms: int, lifetime_seconds: int) -> tuple[str, int]:
        """Returns a URL for the object `key` (not encoded) and its expiration."""

def whole_variants(stream: bytes) -> tuple[bytes, bytes]:
    """Returns the whole values of shredded variants, the first column of a batch in an Arrow IPC stream.

    The result is the offsets (little-endian, 32 bits, one more than rows) and the bytes of a binary array, in which a
    null row is empty. Raises InvalidArgument for a value that is not a variant.
    """

def verify_local_url(path: str, expires: str, signature: str, *, key: bytes, now_ms: int) -> bool:
    """Returns whether a URL of the files route is valid. `path` is percent-encoded in any form. Constant time."""

@final
class Chunk:
    """A chunk of whole lines. Supports the buffer protocol; its memory is reused once released."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class PruneCounts:
    """The number of files of an answer, before and after pruning."""

    considered: int
    pruned_by_partition: int
    pruned_by_stats: int
    pruned_by_limit: int
    returned: int

@final
class StreamSummary:
    """The result of a stream; complete when the stream is done."""

    files: int
    """Number of lines with a URL."""
    file_bytes: int
    """Total size of these files, by the log."""
    next_cursor: str | None
    """Start of the next page; None at the end."""
    min_url_expiration_ms: int | None
    pruning: PruneCounts

@final
class NdjsonChunks:
    """The body of an answer, produced ahead by native threads into a bounded queue."""

    def fileno(self) -> int:
        """Returns a file descriptor that becomes readable when `next_chunk` can make progress.

        Valid only after `next_chunk` returned None and the stream is not done: an answer that was complete at the
        start has no descriptor (ValueError).
        """
    def next_chunk(self) -> Chunk | None:
        """Returns the next chunk. None means the end if `done`, otherwise wait for `fileno`. Raises LogError."""
    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, after which `next_chunk` raises DeadlineExceeded."""
    @property
    def done(self) -> bool: ...
    @property
    def summary(self) -> StreamSummary: ...
    @property
    def precount(self) -> PruneCounts | None:
        """The final `summary.pruning`, if known with the first chunk.

        Known for queries without conditions, and for files in memory that are evaluated within a short time.
        """
    def finish(self, last_line: bytes) -> bytes:
        """Encodes `last_line` (may be empty) and the end of the content coding. Valid only when `done`."""
    def cancel(self) -> None:
        """Stops the native work. Dropping the object does the same."""

@final
class Snapshot:
    """One version of a table: protocol and metadata are known, files are not read."""

    version: int
    timestamp_ms: int | None
    """The commit timestamp in milliseconds since the epoch: in-commit if the table has it, and then None if the commit
    lacks it. May read the commit, so it *blocks*."""
    table_id: str
    """metaData.id"""
    min_reader_version: int
    client_reader_features: list[str]
    """Reader features that a client must announce to read the table, without log-only ones."""
    needs_delta_format: bool
    change_data_feed: bool
    partition_columns: list[str]
    schema_string: str | None
    is_in_memory: bool
    """Whether `totals` and `files` read nothing, so they may be called on the event loop."""
    has_totals: bool
    """Whether `totals` and `header` read nothing."""
    has_bad_hint: bool
    """Whether `_last_checkpoint` is unusable, so that the whole log was listed."""
    left_out: list[tuple[str, str]]
    """Damaged checkpoints up to this version that other files replace: a file of each, and the reason."""
    is_lost: bool
    """Whether a log file of this version is missing or damaged, so that the version is loaded again."""
    commit_mark: str | None
    """Distinguishes the commit from one that was written in its place; None if cleanup deleted it, or a catalog ratifies
    commits."""
    identity: str
    """Identifies the checkpoint and version that fix the order of files; part of page tokens."""

    def header(
        self,
        response_format: ResponseFormat,
        *,
        with_version: bool,
        history_shared: bool = False,
        access: str = "",
        rule: Rule | None = None,
        stop: Stop | None = None,
    ) -> bytes:
        """Returns the protocol and metaData lines, with size and numFiles. *Blocks* if these are not known.

        Without shared history the parquet format does not announce the change data feed. `access` has members of
        the metadata in JSON, without braces, about access to the table's directory.
        """
    def totals(self, stop: Stop | None = None, *, rule: Rule | None = None) -> tuple[int, int]:
        """Returns (numFiles, size in bytes) of the rule's files. *Blocks* if these are not known, until `stop`."""
    def has_totals_within(self, rule: Rule | None) -> bool:
        """As `has_totals`, for the files of a rule."""
    def is_in_memory_within(self, rule: Rule | None) -> bool:
        """As `is_in_memory`, for the files of a rule."""
    def check_rule(self, rule: Rule) -> None:
        """Raises RuleRefused if the table's partition columns do not decide the rule."""
    def files(
        self, options: AnswerOptions, *, limit_hint: int | None = None, with_version: bool = False
    ) -> NdjsonChunks:
        """Returns the answer of /query without the endStreamAction: header lines, then one line per file."""
    def hint_problems(
        self, predicate_hints: Sequence[str], json_predicate_hint: str | None
    ) -> list[tuple[str, str]]:
        """Returns (hint, reason) for each hint that is ignored in whole or part."""

    def explain(
        self,
        predicate_hints: Sequence[str],
        json_predicate_hint: str | None,
        *,
        rule: Rule | None = None,
    ) -> Explanation:
        """Counts the rule's files that each condition drops alone and that all keep together. *Blocks*."""

    def inventory(self, bounds: Sequence[int], *, stop: Stop | None = None) -> Inventory:
        """Reads every file of the version, until `stop`. `bounds` are file sizes in bytes, ascending. *Blocks*."""

@final
class Inventory:
    """What the files of a version amount to."""

    files: int
    files_with_deletion_vector: int
    files_without_records: int
    """Files whose statistics have no `numRecords`; their rows are not in `rows`."""
    rows: int
    """Rows by the statistics, without deleted ones."""
    files_by_size: list[int]
    """One count for each bound, of sizes below it that no earlier bound counts, and a last one for all others."""

@final
class Conjunct:
    """One condition of a conjunction."""

    text: str
    """The condition as SQL."""
    columns: list[str]
    """The columns of the condition, with their types."""
    scope: str
    """The values that decide it: constant, partition, statistics, both, or undecidable."""
    drops: int
    """Number of files that the condition alone drops."""
    dropped_examples: list[str]
    """Examples of them, by their paths in the log."""

@final
class Explanation:
    """The effect of conditions on the files of a version."""

    considered: int
    kept: int
    conjuncts: list[Conjunct]
    problems: list[tuple[str, str]]
    """(hint, why it is ignored in whole or part)."""

@final
class Signers:
    """The signer of the table's root, and the signers of other locations of absolute paths."""

    def __new__(cls, root: str, signer: Signer, others: Sequence[tuple[str, Signer]] = ...) -> Signers:
        """`root` and the locations in `others`: `s3://`, `gs://` or `file://`, a location of Azure, or a directory.

        A location of Azure names its account, such as `abfss://container@account.dfs.core.windows.net/prefix`. A signer must belong to the location's bucket or container; keys of a local signer are relative to the location.
        """

@final
class Rule:
    """Conditions over partition columns: a file belongs to the rule if one of them is true."""

    key: bytes
    """Equal for equal conditions and properties that they use, and for no others."""
    text: str
    """SQL with the properties in place of their names."""

    def __new__(cls, conditions: Sequence[str], properties: Mapping[str, str]) -> Rule:
        """`properties` are the values of `recipient.NAME`. Raises ValueError for a condition that cannot be a rule."""

@final
class RowGroupFilter:
    """The conditions of hints, for row groups of data files."""

    def __new__(
        cls,
        schema_string: str,
        *,
        partition_columns: Sequence[str],
        column_mapping_mode: str,
        predicate_hints: Sequence[str],
        json_predicate_hint: str | None = None,
    ) -> RowGroupFilter:
        """A hint or a part of one that cannot be decided keeps every row group, as does a schema that is not valid."""
    @property
    def columns(self) -> list[list[str]]:
        """Physical paths of the columns whose statistics decide."""
    def may_match(self, stats: str) -> bool:
        """Returns whether rows with these statistics, in the form of the log's `stats`, may match.

        Absent members are unknown. Partition values are unknown, too.
        """

@final
class AnswerOptions:
    """The format, signers, filters and page of an answer."""

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
        cursor: str | None = None,
        content_coding: Literal["identity", "gzip", "zstd"] = "identity",
        deadline_ms: int | None = None,
        history_shared: bool = False,
        access: str = "",
        rule: Rule | None = None,
        stop: Stop | None = None,
    ) -> AnswerOptions:
        """`now_ms` is the time of all URLs and of the deadline. `file_id_scheme` defaults to the scheme of the format.

        `cursor` is the `next_cursor` of an earlier stream of the same `identity`; a stream raises InvalidCursor
        otherwise. `access` is as in `Snapshot.header`. `stop` ends the work before the stream.
        """

@final
class Completions:
    """Probes of one event loop, and their results."""

    def __new__(cls) -> Completions:
        """Opens a descriptor."""
    def fileno(self) -> int:
        """Returns a descriptor that is readable while `take` has something to receive or to return."""
    def sent_by_loop(self) -> int:
        """Returns the number of probes whose requests the event loop's thread has sent itself."""
    def take(self) -> list[tuple[int, Snapshot | LogError | None]]:
        """Receives what has arrived, and returns all results with their numbers. Never blocks."""

@final
class Table:
    """One Delta table: finds versions and caches snapshots. Thread-safe; one per shared table."""

    def __new__(cls, storage: Storage, root: str, *, has_catalog: bool = False) -> Table:
        """`root`: a directory of local storage, or a key prefix in the bucket. Reads nothing.

        A table with a catalog is read after the catalog's answer, which `ratify` takes.
        """
    def ratify(
        self,
        latest: int | None,
        staged: list[tuple[int, str, int, int]],
        inline: list[tuple[int, bytes, int]],
        *,
        age_ms: int,
    ) -> None:
        """Takes an answer of the table's catalog that was requested `age_ms` ago. Later calls use it.

        `latest` is the latest ratified version; None if the catalog does not manage the table. `staged` are its
        unpublished commits: version, file name, size and modification time in milliseconds. `inline` are those whose
        content the catalog has: version, content and modification time. Raises InvalidArgument for other commits than
        a table can have.
        """
    def is_ratified(self, *, max_age_ms: int) -> bool:
        """Returns whether the catalog was asked at most `max_age_ms` ago, and its answer has shown the latest version."""
    @property
    def has_answer(self) -> bool:
        """Whether the catalog has answered."""
    @property
    def number(self) -> int:
        """The number of the table in this process."""
    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp_ms: int | None = None,
        identity: str | None = None,
        max_staleness_ms: int = 0,
    ) -> Snapshot:
        """Returns the latest version (as of a refresh at most `max_staleness_ms` ago), or one by version or timestamp.

        With `identity`, returns the same order of files as an earlier `Snapshot.identity`, for later pages. Raises
        VersionNotFound if log cleanup deleted its files, and InvalidCursor if other files rebuild the version in
        another order. *Blocks*.
        """
    def latest_if_fresh(self, *, max_staleness_ms: int) -> Snapshot | None:
        """As `snapshot`, but never reads: returns None if the last refresh is too old. May run on the event loop."""
    def start_probe(self, number: int, completions: Completions) -> bool:
        """Starts a refresh without a thread, and adds its result to `completions` under a number.

        The result is the latest version, None if the log has to be listed (which `snapshot` does), or an exception.
        Returns False if nothing was started: no version is known, or a listing is due. May run on the event loop.
        """
    def latest_known(self, *, max_age_ms: int) -> Snapshot | None:
        """Returns the latest version of a refresh at most `max_age_ms` ago. Never reads."""
    def known_metadata_bytes(self) -> int | None:
        """Returns the size in memory of the latest known version's metadata, however old; None without one."""
    def version_at_or_after(self, timestamp_ms: int) -> int:
        """Returns the first version committed at or after a timestamp. Raises TimestampOutOfRange after the last. *Blocks*."""
    def version_at_or_before(self, timestamp_ms: int) -> int:
        """Returns the last version committed at or before a timestamp. Raises TimestampOutOfRange before the first. *Blocks*."""
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
        """Returns a range of versions. `change_data_feed` requires it to be enabled in every version (for /changes).

        `heading` selects the version whose metadata precedes the changes: the first of the range (the default), the
        latest of the table, or a version of an earlier page. The latest version must be readable: an unsupported
        feature raises UnsupportedFeature, also for a range of earlier versions without the feature. The latest
        version is refreshed if its last refresh is `max_staleness_ms` old or older than the range. *Blocks*.
        """

@final
class Stop:
    """A deadline and cancellation of blocking calls. Thread-safe."""

    def __new__(cls, *, seconds: float | None = None) -> Stop:
        """Calls raise DeadlineExceeded after `seconds`; None sets no deadline."""
    def cancel(self) -> None:
        """Makes all calls raise Cancelled."""

@final
class Changes:
    """A range of versions, inclusive. Only the protocols and metadata of its commits are read."""

    starting_version: int
    ending_version: int
    heading_version: int
    """The version whose metadata heads the answer."""
    is_lost: bool
    """As `Snapshot.is_lost`, of the versions that head the answer."""
    snapshot: Snapshot
    """The snapshot of `starting_version`."""
    client_reader_features: list[str]
    """Reader features that a client must announce, for the heading and for all versions of the range."""
    needs_delta_format: bool
    identity: str

    def files(
        self,
        options: AnswerOptions,
        *,
        include_historical_metadata: bool = False,
        include_historical_protocol: bool = False,
    ) -> NdjsonChunks:
        """Returns the answer without the endStreamAction: header lines, then the changes of each version."""

def configure(*, threads: int | None = None, cache_bytes: int | None = None) -> None:
    """Sets the size of the native pool (before the first stream) and the budget of the cache."""

def bound_logs(bytes: int) -> None:  # noqa: A002
    """Limits what the log files of all tables take in memory together. A read beyond it waits, then raises Busy."""

def configure_cache_directory(directory: str | None, *, disk_bytes: int) -> None:
    """Keeps columns in files of a directory, of at most `disk_bytes` together; None keeps them in memory.

    Makes the directory if it is absent. Raises InvalidArgument if it belongs to another user, if others can write to
    it, or if it cannot be written. *Blocks*.
    """

def log_faults() -> list[tuple[str, int]]:
    """Returns the number of contradictions, and of checkpoints, checksums and hints that were left out, by name."""

def cache_directory_counts() -> list[tuple[str, int]]:
    """Returns the number of hits, misses, invalid, written, failed, too large and evicted files, by name."""

def wait_for_cache_directory() -> None:
    """Waits until the columns of all answers so far are in files. *Blocks*."""

def cache_used_bytes() -> int:
    """Returns the bytes of cached columns, snapshots and sums of rules."""

def cache_bytes_by_table() -> dict[int, int]:
    """Returns the bytes of cached columns and snapshots of each table, by `Table.number`."""

def shrink_cache(bytes: int) -> None:  # noqa: A002
    """Evicts the least recently used entries of the cache down to `bytes`, and all sums of rules. Running streams finish."""

def release_spare_buffers() -> None:
    """Frees the spare buffers of chunks."""

def build() -> tuple[str, str, str]:
    """Returns the version, the commit (`unknown` outside of a clone) and the vector instructions that signing uses."""

def is_debug_build() -> bool:
    """Returns whether this is a build without optimisation, which benches reject."""

def deletion_vector_rows(data: bytes, *, offset: int, size_in_bytes: int) -> list[int]:
    """Returns the row indices of a vector in a deletion vector file, after a check of its checksum. Raises CorruptLog."""

def inline_deletion_vector_rows(z85: str) -> list[int]:
    """Returns the row indices of an inline vector. Raises CorruptLog."""

def encode_deletion_vector(rows: Sequence[int]) -> bytes:
    """Returns a deletion vector file with one vector at offset 1, for demo tables and tests."""
