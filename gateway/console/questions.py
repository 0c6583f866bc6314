"""What the console asks of the processes that serve, and their answers.

They cross the control socket of a worker as JSON. Answers hold no secret, no signed URL and no storage path
below a bucket or prefix of the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

from gateway.telemetry.activity import LiveStream, RecentQuery

SIZE_BOUNDS = (0x10_0000, 0x100_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x4000_0000)
"""Bounds of the histogram of file sizes: 1, 16, 64, 128 and 256 MiB, and 1 GiB."""


MAX_COLUMNS = MAX_PLACES = 1000

T = TypeVar("T")


class AskTable(Struct, frozen=True, tag=True):
    """Asks for the facts of a table, as its provider sees it.

    `most_files`: up to this number of files also the inventory, for which all of them are read.
    """

    share: str
    schema: str
    table: str
    most_files: int


class Selection(Struct, frozen=True):
    """A page of the rows with a text in their names.

    `only` and `sort`: a filter and an order of the rows, such as a key of `SHARE_FILTERS`.
    """

    text: str
    page: int
    only: str = ""
    sort: str = ""


class AskShares(Struct, frozen=True, tag=True):
    """Asks for shares, and with a text for the tables of all shares."""

    selection: Selection


class AskShare(Struct, frozen=True, tag=True):
    """Asks for the tables of a share."""

    share: str
    selection: Selection


class AskPlaces(Struct, frozen=True, tag=True):
    """Asks for the names of all shares, or of all schemas and tables of a share, up to `MAX_PLACES`."""

    share: str | None = None


class AskSlots(Struct, frozen=True, tag=True):
    """Asks for the numbers of slots by their starts, for a span of `rings.SPANS`.

    Of all requests, of a `recipient` or of a `table`.
    """

    kind: str
    name: str
    span: str


class AskReaders(Struct, frozen=True, tag=True):
    """Asks for the recipients of a share, or of a table of it."""

    share: str
    schema: str | None
    table: str | None
    selection: Selection


class AskActivity(Struct, frozen=True, tag=True):
    """Asks for recent queries and live streams, of a table or a recipient or all."""

    table: str | None = None
    recipient: str | None = None


class AskUses(Struct, frozen=True, tag=True):
    """Asks for the use by recipients; the answer has those with requests."""

    recipients: tuple[str, ...]


class AskRanks(Struct, frozen=True, tag=True):
    """Asks for one figure of `activity.FIGURES`, by recipient where it is not 0."""

    figure: str


class AskStatus(Struct, frozen=True, tag=True):
    """Asks for the storages and the reloads."""


Question = (
    AskShares
    | AskShare
    | AskTable
    | AskPlaces
    | AskReaders
    | AskSlots
    | AskActivity
    | AskUses
    | AskRanks
    | AskStatus
)


class ShareRow(Struct, frozen=True):
    """A share."""

    name: str
    description: str
    schemas: int
    tables: int


class TableRow(Struct, frozen=True):
    """A table, and the part of its history that is shared."""

    share: str
    schema: str
    name: str
    history_shared: bool
    start_version: int
    offers_urls: bool
    offers_directory: bool

    @property
    def full_name(self) -> str:
        """`share.schema.table`."""
        return f"{self.share}.{self.schema}.{self.name}"


class Page(Struct, Generic[T], frozen=True):
    """A page of rows. `total`: the number of all that match."""

    items: tuple[T, ...]
    total: int
    page: int


class SharesAnswer(Struct, frozen=True):
    """Pages of shares and of tables; without a text no tables."""

    shares: Page[ShareRow]
    tables: Page[TableRow] | None


class ShareAnswer(Struct, frozen=True):
    """A share and a page of its tables; None for a share that does not exist."""

    share: ShareRow | None
    tables: Page[TableRow]


class PlacesAnswer(Struct, frozen=True):
    """Shares, or schemas and tables of one: one or two names each. `total`: the number of all."""

    places: tuple[tuple[str, ...], ...]
    total: int

    @property
    def is_whole(self) -> bool:
        """Return whether all places are among them."""
        return self.total == len(self.places)


class ReaderRow(Struct, frozen=True):
    """A recipient of a share or table, and the texts of the grants by which it reads it.

    `has_whole_share`: whether one of them is for the whole share.
    """

    recipient: str
    grants: tuple[str, ...]
    has_whole_share: bool


class ColumnRow(Struct, frozen=True):
    """A column at the top of a table's schema."""

    name: str
    type: str
    comment: str
    is_partition: bool


class Inventory(Struct, frozen=True):
    """What the files of a version amount to."""

    rows: int
    files_without_records: int
    files_with_deletion_vector: int
    files_by_size: tuple[int, ...]
    """One count for each of `SIZE_BOUNDS`, and one for larger files."""


class TableFacts(Struct, frozen=True):
    """The latest version of a table. `inventory_refused`: why a requested inventory is missing."""

    version: int
    committed_ms: int | None
    files: int
    size_bytes: int
    columns: tuple[ColumnRow, ...]
    """At most `MAX_COLUMNS`."""
    column_count: int
    reader_features: tuple[str, ...]
    needs_delta_format: bool
    change_data_feed: bool
    checkpoint_version: int | None
    checkpoint_ms: int | None
    has_bad_hint: bool
    inventory: Inventory | None = None
    inventory_refused: str | None = None


class TableAnswer(Struct, frozen=True):
    """A table with its facts, or why there are none; without the table there is none of this name."""

    table: TableRow | None
    facts: TableFacts | None
    refused: str | None = None


class ActivityAnswer(Struct, frozen=True):
    """Recent queries, the last one first, and live streams."""

    queries: tuple[RecentQuery, ...]
    streams: tuple[LiveStream, ...]


class StorageStatus(Struct, frozen=True):
    """A storage that has been used since the start."""

    name: str
    breaker: str
    credentials_expire_ms: int | None
    last_error: str | None
    last_error_ms: int | None


class ReloadRecord(Struct, frozen=True):
    """A reload of the configuration; `refused` is None if it was accepted."""

    at_ms: int
    refused: str | None


class StatusAnswer(Struct, frozen=True):
    """The storages and the reloads of a process, the last reload first."""

    process_id: int
    start_ms: int
    shares: int
    tables: int
    storages: tuple[StorageStatus, ...]
    reloads: tuple[ReloadRecord, ...]


SHARE_FILTERS: Mapping[str, Callable[[ShareRow], bool]] = {"empty": lambda share: not share.tables}
SHARE_ORDERS: Mapping[str, Callable[[ShareRow], Any]] = {
    "schemas": lambda share: -share.schemas,
    "tables": lambda share: -share.tables,
}
TABLE_FILTERS: Mapping[str, Callable[[TableRow], bool]] = {
    "history": lambda table: table.history_shared,
    "latest": lambda table: not table.history_shared,
    "directory": lambda table: table.offers_directory,
}
TABLE_ORDERS: Mapping[str, Callable[[TableRow], Any]] = {
    "table": lambda table: table.name.casefold(),
    "schema": lambda table: (table.schema.casefold(), table.name.casefold()),
    "history": lambda table: (not table.history_shared, table.start_version),
    "access": lambda table: (not table.offers_directory, table.offers_urls),
}
READER_FILTERS: Mapping[str, Callable[[ReaderRow], bool]] = {
    "whole": lambda reader: reader.has_whole_share,
    "part": lambda reader: not reader.has_whole_share,
}
READER_ORDERS: Mapping[str, Callable[[ReaderRow], Any]] = {"grant": lambda reader: reader.grants}
