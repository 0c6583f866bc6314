"""Answers the console's questions in a process that serves.

In: a question. Out: its answer, as values that JSON has. A table is read on the threads of its storage, a few
tables at a time, and within a time; further requests wait.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from gateway.authentication.credential_table import CredentialTable
from gateway.catalog.catalog import PROVIDER, Catalog, Names, Share, SharedTable
from gateway.catalog.grants import grant_text
from gateway.console import questions
from gateway.console.listing import cut
from gateway.errors import GatewayError, NotFound
from gateway.state import GatewayState
from gateway.tables.native import LogError, Snapshot, Stop
from gateway.tables.open_table import NotCached, OpenTable
from gateway.telemetry.activity import Activity

TABLES_AT_ONCE = 2
TABLE_SECONDS = 20.0
"""Of the reading of a table; an inventory has its own, in which it stops."""
INVENTORY_SECONDS = 15.0
MAX_RELOADS = 20
MAX_DESCRIPTION_LENGTH = 200
T = TypeVar("T")
_CHECKPOINT = re.compile(r"\d+@(\d+)")


class Inspector:
    """Answers questions about this process."""

    def __init__(
        self, state: Callable[[], GatewayState], activity: Activity, *, now_ms: Callable[[], int]
    ) -> None:
        """`state` returns the state in force."""
        self._state = state
        self._activity = activity
        self._now_ms = now_ms
        self._start_ms = now_ms()
        self._reloads: deque[questions.ReloadRecord] = deque(maxlen=MAX_RELOADS)
        self._reading = asyncio.Semaphore(TABLES_AT_ONCE)

    def reloaded(self, refused: str | None) -> None:
        self._reloads.appendleft(questions.ReloadRecord(self._now_ms(), refused))

    async def answer(self, value: Any) -> Any:
        """Return the answer to a question. Raises msgspec.ValidationError for one that is none."""
        return msgspec.to_builtins(await self._answer(msgspec.convert(value, questions.Question)))

    async def _answer(self, question: questions.Question) -> object:
        if isinstance(question, questions.AskShares):
            return await asyncio.to_thread(shares_of, self._state().catalog, question)
        if isinstance(question, questions.AskShare):
            return await asyncio.to_thread(tables_of, self._state().catalog, question)
        if isinstance(question, questions.AskTable):
            return await self._table(question)
        if isinstance(question, questions.AskSlots):
            key = (question.kind, question.name)
            return tuple(self._activity.rings.slots(key, question.span, self._now_ms()).items())
        if isinstance(question, questions.AskPlaces):
            return await asyncio.to_thread(places_of, self._state().catalog, question)
        if isinstance(question, questions.AskReaders):
            state = self._state()
            return await asyncio.to_thread(readers_of, state.catalog, state.credentials, question)
        if isinstance(question, questions.AskActivity):
            queries = self._activity.queries(table=question.table, recipient=question.recipient)
            streams = [
                stream
                for stream in self._activity.streams()
                if question.table in {None, stream.table} and question.recipient in {None, stream.recipient}
            ]
            return questions.ActivityAnswer(tuple(queries), tuple(streams))
        if isinstance(question, questions.AskUses):
            uses = {name: self._activity.use(name) for name in question.recipients}
            return {name: use for name, use in uses.items() if use is not None}
        if isinstance(question, questions.AskRanks):
            return self._activity.figures(question.figure)
        return self._status(question)

    async def _table(self, question: questions.AskTable) -> questions.TableAnswer:
        tables, catalog = self._state().tables, self._state().catalog
        try:
            shared = catalog.table(PROVIDER, question.share, question.schema, question.table)
        except GatewayError:
            return questions.TableAnswer(None, None)
        row = row_of(shared)
        try:
            async with asyncio.timeout(TABLE_SECONDS), self._reading:
                read = tables.read(PROVIDER.name, shared, facts_of, question.most_files)
                return questions.TableAnswer(row, await read)
        except TimeoutError:
            return questions.TableAnswer(row, None, f"the table was not read within {TABLE_SECONDS:g} s")
        except (GatewayError, LogError) as error:
            # Their texts are those that recipients get.
            return questions.TableAnswer(row, None, str(error))

    def _status(self, _question: questions.AskStatus) -> questions.StatusAnswer:
        shares, now_ms = self._state().catalog.shares_of(PROVIDER), self._now_ms()
        storages = self._state().tables.storages
        expiries = [(name, round(expires.timestamp() * 1000)) for name, expires in storages.expiries()]
        statuses = []
        for calls in storages.used():
            ends = [expires_ms for name, expires_ms in expiries if is_within(name, calls.name)]
            failed = calls.last_failure
            age_ms = 0 if failed is None else round((calls.now_seconds() - failed[0]) * 1000)
            statuses.append(
                questions.StorageStatus(
                    calls.name,
                    calls.breaker.state.value,
                    min(ends, default=None),
                    None if failed is None else failed[1],
                    None if failed is None else now_ms - age_ms,
                )
            )
        return questions.StatusAnswer(
            os.getpid(),
            self._start_ms,
            len(shares),
            sum(len(schema.tables) for share in shares for schema in share.schemas),
            tuple(statuses),
            tuple(self._reloads),
        )


def is_within(prefix: str, storage: str) -> bool:
    """Return whether a prefix of the configuration belongs to a storage: a bucket, an account or a mount."""
    return f"{prefix}/".startswith(f"{storage.rstrip('/')}/")


def shares_of(catalog: Catalog, question: questions.AskShares) -> questions.SharesAnswer:
    """Return a page of shares and of tables."""
    rows = map(share_row, catalog.shares_of(PROVIDER))
    selection = question.selection
    shares = _page(rows, lambda share: share.name, selection, questions.SHARE_FILTERS, questions.SHARE_ORDERS)
    tables = None
    if selection.text:
        items, *numbers = cut(catalog.tables(), lambda table: table.full_name, selection.text, selection.page)
        tables = questions.Page(tuple(map(row_of, items)), *numbers)
    return questions.SharesAnswer(shares, tables)


def tables_of(catalog: Catalog, question: questions.AskShare) -> questions.ShareAnswer:
    """Return a share and a page of its tables."""
    try:
        share = catalog.share(PROVIDER, question.share)
    except NotFound:
        return questions.ShareAnswer(None, questions.Page((), 0, 1))
    rows = map(row_of, share.tables())
    page = _page(
        rows,
        lambda row: f"{row.schema}.{row.name}",
        question.selection,
        questions.TABLE_FILTERS,
        questions.TABLE_ORDERS,
    )
    return questions.ShareAnswer(share_row(share), page)


def _page(
    rows: Iterable[T],
    name: Callable[[T], str],
    selection: questions.Selection,
    filters: Mapping[str, Callable[[T], bool]],
    orders: Mapping[str, Callable[[T], Any]],
) -> questions.Page[T]:
    accepted = filter(filters.get(selection.only), rows) if selection.only in filters else rows
    items, total, page = cut(accepted, name, selection.text, selection.page, orders.get(selection.sort))
    return questions.Page(tuple(items), total, page)


def places_of(catalog: Catalog, question: questions.AskPlaces) -> questions.PlacesAnswer:
    """Return the shares, or the schemas and tables of a share."""
    places: list[tuple[str, ...]]
    if question.share is None:
        places = [(share.name,) for share in catalog.shares_of(PROVIDER)]
    else:
        try:
            schemas = catalog.share(PROVIDER, question.share).schemas
        except NotFound:
            schemas = Names(())
        places = [
            place
            for schema in schemas
            for place in ((schema.name,), *((schema.name, table.name) for table in schema.tables))
        ]
    return questions.PlacesAnswer(tuple(places[: questions.MAX_PLACES]), len(places))


def readers_of(
    catalog: Catalog, credentials: CredentialTable, question: questions.AskReaders
) -> questions.Page[questions.ReaderRow]:
    """Return a page of the recipients that can have a token and read a table, or see a share."""
    readers = (
        questions.ReaderRow(
            name, tuple(map(grant_text, grants)), any(grant.is_whole_share for grant in grants)
        )
        for name, recipient in sorted(credentials.recipients.items())
        if (grants := catalog.grants(recipient, question.share, question.schema, question.table))
    )
    return _page(
        readers,
        lambda row: row.recipient,
        question.selection,
        questions.READER_FILTERS,
        questions.READER_ORDERS,
    )


def share_row(share: Share) -> questions.ShareRow:
    description = (share.display_name or share.comment or "")[:MAX_DESCRIPTION_LENGTH]
    return questions.ShareRow(share.name, description, len(share.schemas), len(share.tables()))


def row_of(table: SharedTable) -> questions.TableRow:
    return questions.TableRow(
        table.share,
        table.schema,
        table.name,
        table.history_shared,
        table.start_version,
        table.offers_urls,
        table.offers_directory,
    )


def facts_of(opened: OpenTable, most_files: int) -> questions.TableFacts:
    """Read the facts of a table's latest version, as `AskTable` says. Blocks. Raises LogError.

    Raises NotCached while the storage is down: a cached snapshot has no files, and reading them could hang.
    """
    if opened.stale:
        raise NotCached
    snapshot = opened.snapshot()
    files, size_bytes = snapshot.totals(Stop(seconds=INVENTORY_SECONDS))
    inventory, refused = _inventory(snapshot) if files <= most_files else (None, None)
    checkpoint = _CHECKPOINT.match(snapshot.identity)
    checkpoint_version = None if checkpoint is None else int(checkpoint[1])
    return questions.TableFacts(
        snapshot.version,
        snapshot.timestamp_ms,
        files,
        size_bytes,
        *_columns(snapshot.schema_string, frozenset(snapshot.partition_columns)),
        tuple(snapshot.client_reader_features),
        snapshot.needs_delta_format,
        snapshot.change_data_feed,
        checkpoint_version,
        None if checkpoint_version is None else _committed_ms(opened, checkpoint_version),
        snapshot.has_bad_hint,
        inventory,
        refused,
    )


def _inventory(snapshot: Snapshot) -> tuple[questions.Inventory | None, str | None]:
    try:
        sizes = snapshot.inventory(questions.SIZE_BOUNDS, stop=Stop(seconds=INVENTORY_SECONDS))
    except LogError as error:
        return None, str(error)
    return (
        questions.Inventory(
            sizes.rows,
            sizes.files_without_records,
            sizes.files_with_deletion_vector,
            tuple(sizes.files_by_size),
        ),
        None,
    )


def _committed_ms(opened: OpenTable, version: int) -> int | None:
    """Return the time of a version's commit; None if its log file is cleaned up."""
    try:
        return opened.native.snapshot(version=version).timestamp_ms
    except LogError:
        return None


def _columns(
    schema_string: str | None, partition: frozenset[str]
) -> tuple[tuple[questions.ColumnRow, ...], int]:
    """Return the columns at the top of a schema, the first `MAX_COLUMNS`, and the number of all."""
    try:
        fields = json.loads(schema_string or "{}").get("fields", ())
        rows = tuple(
            questions.ColumnRow(
                str(field["name"])[:MAX_DESCRIPTION_LENGTH],
                _type_text(field["type"])[:MAX_DESCRIPTION_LENGTH],
                str(field.get("metadata", {}).get("comment", ""))[:MAX_DESCRIPTION_LENGTH],
                field["name"] in partition,
            )
            for field in fields[: questions.MAX_COLUMNS]
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return (), 0
    return rows, len(fields)


def _type_text(kind: Any) -> str:
    """Return a type of a schema as Spark's SQL spells it."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{_type_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_type_text(kind['keyType'])}, {_type_text(kind['valueType'])}>"
    fields = (f"{field['name']}: {_type_text(field['type'])}" for field in kind["fields"])
    return f"struct<{', '.join(fields)}>"
