"""The sections of `gateway:` that say how the server is run: limits, storage faults, audit, administration.

Each is a frozen dataclass as in `sections`; a key left out is without the limit or at its default.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.config.errors import Invalid

CLIENT_PATIENCE_SECONDS = 6.0
"""Spark's client gives up a request after about 7 s of refusals, so no wait is longer than this."""

_ORIGIN = re.compile(r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def setting(
    default: Any = dataclasses.MISSING,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    protects: bool = False,
) -> Any:
    """Declare a key with a default and limits, both inclusive.

    `protects`: the server is more open without the key, so a misspelt one stops the start.
    """
    metadata = {"minimum": minimum, "maximum": maximum, "protects": protects}
    return dataclasses.field(default=default, metadata=metadata)


PROTECTS = {"protects": True}
"""The metadata of a section whose keys protect."""


@dataclass(frozen=True, slots=True)
class RecipientLimits:
    """What one recipient may do. None: without a limit."""

    requests_per_second: float | None = setting(None, minimum=0.01, protects=True)
    burst_requests: int = setting(50, minimum=1, protects=True)
    concurrent_streams: int | None = setting(None, minimum=1, protects=True)
    files_per_minute: int | None = setting(None, minimum=1, protects=True)
    queue_seconds: float = setting(3.0, minimum=0, maximum=CLIENT_PATIENCE_SECONDS)
    queue_length: int = setting(64, minimum=0)


@dataclass(frozen=True, slots=True)
class Limits:
    """What protects everyone from everyone."""

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
    """When a storage is given up for a while, and how old a snapshot may then be served."""

    failures: int = setting(5, minimum=1)
    open_seconds: float = setting(5.0, minimum=0.1)
    concurrent_calls: int = setting(16, minimum=1, maximum=256)
    queued_calls: int = setting(256, minimum=0)
    queue_seconds: float = setting(10.0, minimum=0)
    stale_seconds: float = setting(0.0, minimum=0)


@dataclass(frozen=True, slots=True)
class Audit:
    """Where the audit log goes.

    `failClosed`: without its record no request is answered and no recipient is changed.
    """

    file: Path = setting(protects=True)
    fail_closed: bool = setting(False, protects=True)
    queue_records: int = setting(10_000, minimum=1)


@dataclass(frozen=True, slots=True)
class Ssl:
    """TLS by certificate files, or by a certificate made at start."""

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
class Admin:
    """The admin API and metrics, on a listener of their own."""

    token_sha256: str
    metrics_token_sha256: str | None = setting(None, protects=True)
    host: str = "127.0.0.1"
    port: int = setting(8081, minimum=0, maximum=65535)
    ssl: Ssl | None = setting(None, protects=True)

    def __post_init__(self) -> None:
        for name in ("token_sha256", "metrics_token_sha256"):
            value = getattr(self, name)
            if value is not None and not _SHA256.fullmatch(value):
                raise Invalid(name, "expected 64 hexadecimal digits: the SHA-256 of a token")


@dataclass(frozen=True, slots=True)
class Cors:
    """The origins whose web pages may read answers; `*` is every one."""

    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for origin in self.origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise Invalid(
                    "origins", f"'{origin}' is no origin; accepted: https://host, http://host:port, '*'"
                )


@dataclass(frozen=True, slots=True)
class Tracing:
    """OpenTelemetry traces, sent by OTLP over HTTP; needs the extra `tracing`."""

    endpoint: str
    sample_ratio: float = setting(0.01, minimum=0, maximum=1)
