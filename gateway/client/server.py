"""Requests of a recipient to a server, and the server's lists.

In: a profile. Out: responses, and the items of lists over all pages.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from gateway.client.profile import Profile
from gateway.client.table_name import TableName
from gateway.client.transport import HttpError, Response, Transport, body_of

Item = Mapping[str, Any]
JSON = "application/json; charset=utf-8"


class Server:
    """A server and its recipient. Not thread-safe."""

    def __init__(self, profile: Profile, transport: Transport | None = None) -> None:
        self._profile = profile
        self.transport = transport or Transport()

    def open(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Response:
        """Send one request, which must be read before the next one. Raises HttpError."""
        sent = {"Authorization": f"Bearer {self._profile.bearer_token}", **(headers or {})}
        if body is not None:
            sent["Content-Type"] = JSON
        return self.transport.open(method, f"{self._profile.endpoint}{path}", headers=sent, body=body)

    def product(self) -> str:
        """Return the server's name, perhaps with its release; empty without one. Raises HttpError."""

        def attempt() -> str:
            response = self.open("GET", "/shares?maxResults=1")
            body_of(response)
            return response.headers.get("Server", "")

        return self.transport.retries.run(attempt)

    def tables(self) -> Iterator[TableName]:
        """Yield every table of every share. Raises HttpError."""
        for share in self.items("/shares"):
            for table in self.items(f"/shares/{quote(share['name'], safe='')}/all-tables"):
                yield TableName(share["name"], table.get("schema", ""), table["name"])

    def items(self, path: str) -> Iterator[Item]:
        """Yield the items of a list, over all pages. Raises HttpError."""
        page, token = self._page(path)
        yield from page
        seen = set[str]()
        while token:
            check_new(token, seen)
            page, token = self._page(page_path(path, token))
            yield from page

    def _page(self, path: str) -> tuple[list[Item], str]:
        body = self.transport.retries.run(lambda: body_of(self.open("GET", path)))
        try:
            return page_of(json.loads(body))
        except ValueError:
            raise HttpError("the answer is not a list of Delta Sharing", 0) from None


def check_new(token: str, seen: set[str]) -> None:
    """Add the token of a page to those before it. Raises HttpError for one of them: pages would not end."""
    if token in seen:
        raise HttpError("the server answers a page with the token of an earlier one", 0)
    seen.add(token)


def page_path(path: str, token: str) -> str:
    """Return the path of a list's next page."""
    return f"{path}?pageToken={quote(token, safe='')}"


def page_of(document: Any) -> tuple[list[Item], str]:
    """Return the items of a page and the token of the next one. Absent items are none.

    Raises ValueError for a document that is not a page of named items.
    """
    items = document.get("items") if isinstance(document, dict) else [None]
    items = [] if items is None else items
    if not isinstance(items, list) or not all(
        isinstance(item, dict) and isinstance(item.get("name"), str) for item in items
    ):
        raise ValueError("not a page of named items")
    token = document.get("nextPageToken") or ""
    if not isinstance(token, str):
        # Without the next page the list would look complete.
        raise ValueError("not a page with a token")  # noqa: TRY004 - as of every other document
    return items, token
