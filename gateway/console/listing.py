"""Pages of long lists, with their search, filter and order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from aiohttp import web
from yarl import URL

from gateway.telemetry.activity import LiveStream

PAGE_LENGTH = 50
MAX_QUERY_LENGTH = 255

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request wants to see of a list: names with a text in any case, and a page, counted from 1."""

    path: str
    text: str
    page: int
    prefix: str = ""
    """Of the names in the query string, for the second list of a page."""
    only: str = ""
    sort: str = ""
    """A filter and an order that the page has."""

    @staticmethod
    def by(
        request: web.Request, prefix: str = "", *, only: Sequence[str] = (), sorts: Sequence[str] = ()
    ) -> Wanted:
        """Read the query string; odd values are the defaults.

        `only` and `sorts`: the filters and the orders that the page has.
        """
        page = request.query.get(f"{prefix}page", "")
        number = int(page) if page.isascii() and page.isdigit() and len(page) < 8 else 1  # noqa: PLR2004
        text = request.query.get(f"{prefix}q", "").strip()[:MAX_QUERY_LENGTH]
        chosen = (
            next((choice for choice in known if choice == request.query.get(f"{prefix}{name}")), "")
            for name, known in (("only", only), ("sort", sorts))
        )
        return Wanted(request.path, text, max(1, number), prefix, *chosen)

    @property
    def anchor(self) -> str:
        """Return the name of the place of a second list on its page, to which its addresses lead."""
        return f"{self.prefix}list" if self.prefix else ""

    @property
    def is_narrowed(self) -> bool:
        """Return whether some items are left out."""
        return bool(self.text or self.only)

    def address(self, page: int | None = None, sort: str | None = None) -> str:
        """Return the address of another page of the same list, or of the first one in another order."""
        parameters = {
            "q": self.text,
            "only": self.only,
            "sort": self.sort if sort is None else sort,
            "page": "" if page is None else str(page),
        }
        query = {f"{self.prefix}{name}": text for name, text in parameters.items() if text}
        return str(URL.build(path=self.path, query=query, fragment=self.anchor))


@dataclass(frozen=True)
class Listing(Generic[T]):
    """A page of a list. `total` is the number of all items that match."""

    wanted: Wanted
    items: Sequence[T]
    total: int
    page: int

    @property
    def pages(self) -> int:
        """Return the number of pages, at least one."""
        return max(1, -(-self.total // PAGE_LENGTH))

    @property
    def previous(self) -> str | None:
        """Return the address of the page before; None for the first page."""
        return self.wanted.address(self.page - 1) if self.page > 1 else None

    @property
    def following(self) -> str | None:
        """Return the address of the next page; None for the last page."""
        return self.wanted.address(self.page + 1) if self.page < self.pages else None


def listing(
    wanted: Wanted,
    items: Iterable[T],
    name: Callable[[T], str],
    order: Callable[[T], Any] | None = None,
) -> Listing[T]:
    """Return a page of the items whose name has the wanted text; beyond the last page the last one."""
    return Listing(wanted, *cut(items, name, wanted.text, wanted.page, order))


STREAM_ORDERS: Mapping[str, Callable[[LiveStream], str]] = {
    "recipient": lambda stream: stream.recipient.casefold(),
    "table": lambda stream: stream.table.casefold(),
}
"""Orders of the live streams, besides the order of their starts."""


def stream_listing(request: web.Request, streams: Iterable[LiveStream]) -> Listing[LiveStream]:
    """Return the page of the live streams that a request wants."""
    wanted = Wanted.by(request, "stream-", sorts=[*STREAM_ORDERS])
    return listing(
        wanted, streams, lambda stream: f"{stream.recipient} {stream.table}", STREAM_ORDERS.get(wanted.sort)
    )


def cut(
    items: Iterable[T],
    name: Callable[[T], str],
    text: str,
    page: int,
    order: Callable[[T], Any] | None = None,
) -> tuple[Sequence[T], int, int]:
    """Return a page of the items whose name has a text, the number of all matches, and the page number.

    `order`: the items with the least values come first.
    """
    text = text.casefold()
    matches = [item for item in items if text in name(item).casefold()] if text else list(items)
    if order is not None:
        matches.sort(key=order)
    last = max(1, -(-len(matches) // PAGE_LENGTH))
    page = min(page, last)
    return matches[(page - 1) * PAGE_LENGTH : page * PAGE_LENGTH], len(matches), page
