"""Pages of shares, their tables, and one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from aiohttp import web

from gateway.console import questions
from gateway.console.charts import plots_of
from gateway.console.listing import Listing, Wanted, listing, stream_listing
from gateway.console.rendering import respond
from gateway.console.site import SITE
from gateway.errors import NotFound
from gateway.protocol.client_features import CLIENTS, readers
from gateway.protocol.snippets import snippets

EAGER_FILES = 100_000
"""The files of a larger table are read only by those who ask for it."""
EVERY_FILE = 2**62
SHOWN_QUERIES = 20
COLUMN_ORDERS: Mapping[str, Callable[[questions.ColumnRow], str]] = {
    "name": lambda column: column.name.casefold(),
    "type": lambda column: column.type,
}
T = TypeVar("T")
PROFILE = "profile.share"
"""The name of the recipient's file in examples."""


@dataclass(frozen=True, slots=True)
class Client:
    """Whether a kind of client can read a table."""

    name: str
    able: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of the histogram; `width` is a part of 100."""

    name: str
    files: int
    width: float


async def shares(request: web.Request) -> web.Response:
    """List the shares; with a search also the tables of all shares."""
    wanted = Wanted.by(request, only=[*questions.SHARE_FILTERS], sorts=[*questions.SHARE_ORDERS])
    answer = await request.app[SITE].one(questions.AskShares(_selection(wanted)), questions.SharesAnswer)
    tables = None if answer.tables is None else _listing(wanted, answer.tables)
    return await respond(request, "shares.html", found=_listing(wanted, answer.shares), tables=tables)


def _selection(wanted: Wanted) -> questions.Selection:
    return questions.Selection(wanted.text, wanted.page, wanted.only, wanted.sort)


def _listing(wanted: Wanted, page: questions.Page[T]) -> Listing[T]:
    return Listing(wanted, page.items, page.total, page.page)


async def share(request: web.Request) -> web.Response:
    """List the tables of a share."""
    wanted = Wanted.by(request, only=[*questions.TABLE_FILTERS], sorts=[*questions.TABLE_ORDERS])
    question = questions.AskShare(request.match_info["share"], _selection(wanted))
    answer = await request.app[SITE].one(question, questions.ShareAnswer)
    if answer.share is None:
        raise NotFound("There is no share of this name.")
    tables, readers = _listing(wanted, answer.tables), await _readers(request)
    return await respond(request, "share.html", share=answer.share, tables=tables, readers=readers)


async def _readers(request: web.Request) -> Listing[questions.ReaderRow]:
    """Return a page of the recipients of the share or table of a request."""
    wanted = Wanted.by(request, "reader-", only=[*questions.READER_FILTERS], sorts=[*questions.READER_ORDERS])
    names = request.match_info
    question = questions.AskReaders(
        names["share"], names.get("schema"), names.get("table"), _selection(wanted)
    )
    return _listing(wanted, await request.app[SITE].one(question, questions.Page[questions.ReaderRow]))


async def table(request: web.Request) -> web.Response:
    """Show the facts of a table."""
    site, names = request.app[SITE], request.match_info
    most_files = EVERY_FILE if "files" in request.query else EAGER_FILES
    answer = await site.table(questions.AskTable(names["share"], names["schema"], names["table"], most_files))
    if answer.table is None:
        raise NotFound("There is no table of this name.")
    facts = answer.facts
    queries, streams = await site.activity(table=answer.table.full_name)
    return await respond(
        request,
        "table.html",
        table=answer.table,
        facts=facts,
        columns=_columns(request, facts.columns if facts is not None else ()),
        refused=answer.refused,
        clients=clients_of(facts) if facts is not None else [],
        readers=await _readers(request),
        plots=await plots_of(request, "table", answer.table.full_name),
        snippets=snippets(
            PROFILE, site.config().endpoint_url, answer.table.share, answer.table.full_name, has_token=True
        ),
        bars=bars_of(facts.inventory.files_by_size) if facts and facts.inventory else [],
        queries=queries[:SHOWN_QUERIES],
        streams=stream_listing(request, streams),
        workers=site.workers,
    )


def _columns(request: web.Request, columns: Sequence[questions.ColumnRow]) -> Listing[questions.ColumnRow]:
    """Return a page of the columns of a table, by default in the order of its schema."""
    wanted = Wanted.by(request, "column-", only=["partition"], sorts=[*COLUMN_ORDERS])
    accepted = [column for column in columns if not wanted.only or column.is_partition]
    return listing(
        wanted, accepted, lambda column: f"{column.name} {column.comment}", COLUMN_ORDERS.get(wanted.sort)
    )


def clients_of(facts: questions.TableFacts) -> list[Client]:
    """Return the kinds of clients, and which of them can read a table."""
    if not facts.needs_delta_format:
        return [Client("Every client, by the parquet format", able=True, reason="")]
    needed = {feature.lower() for feature in facts.reader_features}
    able = readers(needed)
    rows = [Client(name, name in able, ", ".join(sorted(needed - known))) for name, known in CLIENTS.items()]
    return [*rows, Client("Clients of the parquet format alone", able=False, reason="the delta format")]


def bars_of(counts: Sequence[int]) -> list[Bar]:
    """Return the bars of the histogram of file sizes."""
    names = [f"below {_size(questions.SIZE_BOUNDS[0])}"]
    names += [f"{_size(low)} to {_size(high)}" for low, high in pairwise(questions.SIZE_BOUNDS)]
    names.append(f"{_size(questions.SIZE_BOUNDS[-1])} and more")
    largest = max(counts, default=0) or 1
    return [
        Bar(name, count, round(100 * count / largest, 1)) for name, count in zip(names, counts, strict=True)
    ]


def _size(size: int) -> str:
    return f"{size >> 30} GiB" if size >= 1 << 30 else f"{size >> 20} MiB"
