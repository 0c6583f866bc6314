"""The storages of `delta-gateway check`: their identities, and what these may do.

In: the state of a configuration, and the findings of its tables. Out: a row for each storage, and advice in
words. Nothing secret is in either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum

from gateway.cli.storage_errors import explain_error
from gateway.config import Location, StorageEntry
from gateway.state import GatewayState
from gateway.storage.credentials import Credentials
from gateway.storage.gcs.credentials import GcsCredentials
from gateway.storage.stores import DEFAULT_REMOTE_SIGNATURES
from gateway.tables.native import LogError

RSA_SECONDS = 0.5e-3
"""The CPU time of one signature by a service account's key."""
WAY_OUT = "give an HMAC key (accessKeyId and secretAccessKey), or directory access"
CHAINED_SECONDS = 3600
"""The longest session of a role that another role's session assumes."""


class Stage(IntEnum):
    """How far a table was checked."""

    NOTHING = 0
    LISTED = 1
    READ = 2
    SIGNED = 3
    FETCHED = 4


@dataclass(frozen=True, slots=True)
class StorageFinding:
    """A row of the result; `advice` is printed below the rows."""

    storage: str
    identity: str
    ends: str
    list: str
    read: str
    sign: str
    url: str
    problem: str = ""
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableStage:
    """How far a table of a storage was checked, and its number of files if it was read."""

    location: Location
    stage: Stage
    files: int = 0
    name: str = ""


def check_storages(state: GatewayState, tables: Iterable[TableStage]) -> Iterator[StorageFinding]:
    """Check each storage that tables or other roots use, but directories. Blocks."""
    stages: dict[tuple[str, str], list[TableStage]] = {}
    roots = (TableStage(root, Stage.NOTHING) for root in state.config.gateway.allowed_roots)
    for table in (*tables, *roots):
        if table.location.kind != "file":
            entry = state.config.gateway.storage(table.location)
            key = (table.location.bucket_url, entry.prefix.url if entry else "")
            stages.setdefault(key, []).append(table)
    for known in stages.values():
        yield _storage(state, known)


def _storage(state: GatewayState, tables: list[TableStage]) -> StorageFinding:
    location = tables[0].location
    entry = state.config.gateway.storage(location)
    try:
        store = state.tables.storages.store(location)
        store.renew()
    except LogError as error:
        return StorageFinding(
            entry.prefix.url if entry else f"{location.bucket_url}/",
            *("none found", "", "unknown", "unknown", "unknown", "unknown"),
            problem=explain_error(location.kind, error),
        )
    credentials = store.keys.current if store.keys else None
    best = max(table.stage for table in tables)
    problem, may_list = "", "yes"
    try:
        store.native.list_directories(location.key)
    except LogError as error:
        may_list, problem = "no", explain_error(location.kind, error)
    may_sign = "yes"
    try:
        store.signer(location, "check")
    except LogError as error:
        may_sign, problem = "no", problem or explain_error(location.kind, error)
    is_read = best >= Stage.READ
    has_files = any(table.files for table in tables)
    if is_read and has_files and best < Stage.SIGNED:
        may_sign = "no"
    return StorageFinding(
        entry.prefix.url if entry else f"{location.bucket_url}/",
        credentials.source if credentials else "",
        _ends(credentials),
        may_list,
        _word(is_read, known=any(table.name for table in tables)),
        may_sign,
        _word(best >= Stage.FETCHED, known=is_read and has_files),
        problem,
        tuple(_advice(state, entry, credentials, tables)),
    )


def _word(holds: bool, *, known: bool) -> str:
    if not known:
        return "unknown"
    return "yes" if holds else "no"


def _ends(credentials: Credentials | None) -> str:
    if credentials is None or credentials.expires is None:
        return "never"
    return credentials.expires.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _advice(
    state: GatewayState,
    entry: StorageEntry | None,
    credentials: Credentials | None,
    tables: list[TableStage],
) -> Iterator[str]:
    config = state.config
    lifetime = config.pre_signed_url_timeout_seconds
    if entry is not None and entry.role_arn is not None and (entry.session_seconds or 0) > CHAINED_SECONDS:
        yield (
            f"sessionSeconds is {entry.session_seconds}: AWS allows {CHAINED_SECONDS} where the role is "
            "assumed by the session of another role, as on EKS, ECS and EC2"
        )
    if isinstance(credentials, GcsCredentials):
        yield from _google_advice(state, entry, credentials, tables)
    elif tables[0].location.kind == "s3" and credentials is not None and credentials.expires is not None:
        left = (credentials.expires - datetime.now(UTC)).total_seconds()
        if left < lifetime:
            yield (
                f"the identity's session ends in {left:.0f} s, and its URLs with it: shorter than "
                f"preSignedUrlTimeoutSeconds, {lifetime} s"
            )


def _google_advice(
    state: GatewayState, entry: StorageEntry | None, credentials: GcsCredentials, tables: list[TableStage]
) -> Iterator[str]:
    limit_seconds = state.config.request_timeout_seconds
    if credentials.private_key is not None and limit_seconds:
        for table in tables:
            seconds = table.files * RSA_SECONDS
            if seconds > limit_seconds:
                yield (
                    f"{table.name}: signing its {table.files} files by the service account's key takes "
                    f"{seconds:.0f} s of CPU, more than requestTimeoutSeconds, {limit_seconds} s; {WAY_OUT}"
                )
    elif credentials.private_key is None and credentials.email is not None:
        most = entry.max_remote_signatures if entry else DEFAULT_REMOTE_SIGNATURES
        for table in tables:
            if table.files > most:
                yield (
                    f"{table.name}: no key is on this machine, and its {table.files} files are more than "
                    f"maxRemoteSignatures, {most}; {WAY_OUT}"
                )
