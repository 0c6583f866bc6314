"""The sections of `gateway:` for the server's operation: limits, storage faults, audit, TLS, tracing.

Each is a frozen dataclass as in `sections`; a key left out is without the limit or at its default.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.config.checks import check_url
from gateway.config.errors import Invalid, shown

CLIENT_PATIENCE_SECONDS = 6.0
"""Maximum wait: Spark's client fails a request after about 7 s of refusals."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_ORIGIN = re.compile(r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")


def setting(
    default: Any = dataclasses.MISSING,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    protects: bool = False,
    identifies: bool = True,
) -> Any:
    """Declare a key with a default and limits, both inclusive.

    `protects`: the server is more open without the key, so a misspelt one stops the start.
    `identifies`: of a storage, the key decides about the credentials.
    """
    metadata = {"minimum": minimum, "maximum": maximum, "protects": protects, "identifies": identifies}
    return dataclasses.field(default=default, metadata=metadata)


PROTECTS = {"protects": True}
"""The metadata of a section whose keys protect."""


@dataclass(frozen=True, slots=True)
class RecipientLimits:
    """Limits of one recipient. A key without a value sets no limit.

    Attributes:
        requests_per_second: sustained rate of requests. Faster requests wait in a queue, then get 429.
        burst_requests: number of requests above the rate that are answered at once.
        concurrent_streams: number of streamed answers at a time. More wait in order.
        files_per_minute: number of signed files per minute, charged after each answer.
        credentials_per_minute: number of requests for temporary credentials per minute.
        queue_seconds: time that a request waits before it gets 429.
        queue_length: number of requests that wait.

    """

    requests_per_second: float | None = setting(None, minimum=0.01, protects=True)
    burst_requests: int = setting(50, minimum=1, protects=True)
    concurrent_streams: int | None = setting(None, minimum=1, protects=True)
    files_per_minute: int | None = setting(None, minimum=1, protects=True)
    credentials_per_minute: int | None = setting(None, minimum=1, protects=True)
    queue_seconds: float = setting(3.0, minimum=0, maximum=CLIENT_PATIENCE_SECONDS)
    queue_length: int = setting(64, minimum=0)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that protect recipients from each other and the process from all of them.

    Attributes:
        recipient: limits of each recipient.
        memory_bytes: memory of the process that streams may fill together. Without it 80% of the container's
            or machine's memory. A query that does not fit waits, then gets 503.
        stream_bytes: memory that one stream is expected to need.
        queued_streams: number of streams that wait for memory.
        queue_seconds: time that a stream waits for memory before it gets 503.
        minimum_bytes_per_second: rate below which a client that reads an answer is disconnected.
        slow_reader_seconds: time after which a client below that rate is disconnected.
        idle_connection_seconds: time that a connection may stay open without a whole request head.
        body_seconds: time in which the body of a request must arrive.

    """

    recipient: RecipientLimits = dataclasses.field(default_factory=RecipientLimits, metadata=PROTECTS)
    memory_bytes: int | None = setting(None, minimum=64 * 1024 * 1024, protects=True)
    stream_bytes: int = setting(32 * 1024 * 1024, minimum=1)
    queued_streams: int = setting(256, minimum=0)
    queue_seconds: float = setting(3.0, minimum=0, maximum=CLIENT_PATIENCE_SECONDS)
    minimum_bytes_per_second: int = setting(1024, minimum=0)
    slow_reader_seconds: float = setting(30.0, minimum=1)
    idle_connection_seconds: float = setting(65.0, minimum=1)
    body_seconds: float = setting(20.0, minimum=1)


@dataclass(frozen=True, slots=True)
class StorageFaults:
    """When the server stops calling a failing storage, and how old a snapshot it may serve meanwhile.

    Attributes:
        failures: number of consecutive failures after which the storage is not called.
        open_seconds: time for which it is not called. One call then probes it.
        concurrent_calls: number of threads for calls to one storage. One recipient
            leaves a quarter to others.
        queued_calls: number of calls of a recipient that wait for a thread.
        queue_seconds: time that a call waits for a thread.
        stale_seconds: age up to which the last snapshot in memory is served while its storage fails; 0 for
            never.

    """

    failures: int = setting(5, minimum=1)
    open_seconds: float = setting(5.0, minimum=0.1)
    concurrent_calls: int = setting(16, minimum=1, maximum=256)
    queued_calls: int = setting(256, minimum=0)
    queue_seconds: float = setting(10.0, minimum=0)
    stale_seconds: float = setting(0.0, minimum=0)


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit log.

    Attributes:
        file: file that records are appended to.
        fail_closed: without its record in the file no request is answered and no recipient is changed.
        queue_records: number of records that wait to be written, of 2 KiB each on average at most.

    """

    file: Path = setting(protects=True)
    fail_closed: bool = setting(False, protects=True)
    queue_records: int = setting(10_000, minimum=1)


@dataclass(frozen=True, slots=True)
class Ssl:
    """TLS by certificate files, or by a certificate made at start.

    Attributes:
        self_signed: uses a certificate made at start, for tests.
        certificate_file: PEM file with the certificate chain.
        certificate_key_file: PEM file with the private key.
        certificate_password_file: file with the password of the private key.

    """

    self_signed: bool = False
    certificate_file: Path | None = None
    certificate_key_file: Path | None = None
    certificate_password_file: Path | None = None

    def __post_init__(self) -> None:
        if not self.self_signed:
            for name in ("certificate_file", "certificate_key_file"):
                if getattr(self, name) is None:
                    raise Invalid(name, "must be given, or selfSigned: true")


@dataclass(frozen=True, slots=True)
class Cors:
    """Access from web pages.

    Attributes:
        origins: origins such as `https://app.example` whose pages may read answers in a browser; `'*'` for
            every origin.
        request_headers: headers that these pages may send beside those of the protocol; `'*'` for all.

    """

    origins: tuple[str, ...] = ()
    request_headers: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        for name in self.request_headers:
            if not _TOKEN.fullmatch(name):
                raise Invalid("request_headers", f"{shown(name)} is not the name of a header")
        for origin in self.origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise Invalid(
                    "origins",
                    f"{shown(origin)} is not an origin; accepted: https://host, http://host:port, '*'",
                )


@dataclass(frozen=True, slots=True)
class Tracing:
    """OpenTelemetry traces, sent by OTLP over HTTP; needs the extra `tracing`.

    Attributes:
        endpoint: URL of the collector.
        sample_ratio: share of requests that are traced, when a trusted proxy's `traceparent` does not decide.

    """

    endpoint: str
    sample_ratio: float = setting(0.01, minimum=0, maximum=1)

    def __post_init__(self) -> None:
        # Collectors may take a query, unlike other hosts.
        check_url("endpoint", self.endpoint.partition("?")[0])
