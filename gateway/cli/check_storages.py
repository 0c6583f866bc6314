"""The storages of `delta-gateway check`: their identities, and what these may do.

In: the state of a configuration, and the findings of its tables. Out: a row for each storage, and advice in
words. Nothing secret is in either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC
from enum import IntEnum

from gateway.cli.storage_errors import explain_error
from gateway.config import Location
from gateway.state import GatewayState
from gateway.storage.credentials import Credentials
from gateway.storage.stores import Store
from gateway.tables.native import LogError


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
    storage: str = ""
    """As `StorageFinding.storage`."""


def check_storages(state: GatewayState, tables: Iterable[TableStage]) -> Iterator[StorageFinding]:
    """Check each storage that tables or other roots use, but directories. Blocks."""
    stages: dict[Store, list[TableStage]] = {}
    roots = (TableStage(root, Stage.NOTHING) for root in state.config.gateway.allowed_roots)
    for table in (*tables, *roots):
        if table.location.kind != "file":
            stages.setdefault(state.tables.storages.store(table.location), []).append(table)
    for store, known in stages.items():
        yield _storage(state, store, known)


def _storage(state: GatewayState, store: Store, tables: list[TableStage]) -> StorageFinding:
    location = tables[0].location
    entry = state.config.gateway.storage(location)
    try:
        store.renew()
    except LogError as error:
        return StorageFinding(
            entry.prefix.url,
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
        entry.prefix.url,
        credentials.source if credentials else "",
        _ends(credentials),
        may_list,
        _word(is_read, known=any(table.name for table in tables)),
        may_sign,
        _word(best >= Stage.FETCHED, known=is_read and has_files),
        problem,
        tuple(store.advice(state.config, [(table.name, table.files) for table in tables])),
    )


def _word(holds: bool, *, known: bool) -> str:
    if not known:
        return "unknown"
    return "yes" if holds else "no"


def _ends(credentials: Credentials | None) -> str:
    if credentials is None or credentials.expires is None:
        return "never"
    return credentials.expires.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
