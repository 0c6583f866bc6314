"""The routes of a server of the protocol, as clients call them.

In: a profile's endpoint and an authorization. Out: answers, lists and lines. Lists are bounded in pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson

from gateway.client.server import JSON, Item, page_of, page_path
from gateway.doctor import server_errors
from gateway.doctor.connection_errors import SERVER
from gateway.doctor.findings import Owner, Problem
from gateway.doctor.tokens import Authorization
from gateway.doctor.transport import Answer, Transport

MAX_PAGES = 10
CAPABILITIES = "delta-sharing-capabilities"
# Prefixes of known servers, which are tried if the list of shares is not found.
PREFIXES = ("/delta-sharing", "/api/2.1/opensharing", "/api/v1/delta-sharing", "/api/v1/open-sharing")


@dataclass(frozen=True, slots=True)
class Listing:
    """The items of a list; `is_whole` is false if there are more pages."""

    items: tuple[Item, ...]
    is_whole: bool

    @property
    def count(self) -> str:
        """Return the number of items as text."""
        return f"{len(self.items)}{'' if self.is_whole else ' or more'}"

    def find(self, name: str) -> Item | None:
        """Return the item of a name; names ignore case."""
        return next((item for item in self.items if str(item["name"]).lower() == name.lower()), None)


@dataclass(frozen=True, slots=True)
class Server:
    """A server and the authorization of its recipient."""

    endpoint: str
    authorization: Authorization
    transport: Transport

    def get(self, path: str, request: str, capabilities: str | None = None) -> Answer:
        """Return a successful answer to a GET. Raises Problem."""
        answer = self.send("GET", f"{self.endpoint}{path}", capabilities=capabilities)
        self.check(answer, request)
        return answer

    def check(self, answer: Answer, request: str) -> None:
        """Raise Problem for a refusal; `request` names what was requested."""
        if answer.status != 200:  # noqa: PLR2004 - OK
            raise server_errors.explain(answer, request, self.authorization.hint)

    def send(
        self,
        method: str,
        url: str,
        *,
        capabilities: str | None = None,
        body: Mapping[str, object] | None = None,
        max_lines: int | None = None,
    ) -> Answer:
        """Send a request of the protocol. Raises Problem without an answer."""
        headers = {"Authorization": self.authorization.header}
        if capabilities is not None:
            headers[CAPABILITIES] = capabilities
        if body is not None:
            headers["Content-Type"] = JSON
        content = None if body is None else orjson.dumps(body)
        return self.transport.send(SERVER, method, url, headers=headers, body=content, max_lines=max_lines)

    def list(self, path: str, request: str, first: Answer | None = None) -> Listing:
        """Return the items of a list; `first` is its first page. Raises Problem."""
        items, token = _page(first or self.get(path, request), request)
        for _ in range(MAX_PAGES - 1):
            if not token:
                break
            page, token = _page(self.get(page_path(path, token), request), request)
            items += page
        return Listing(tuple(items), is_whole=not token)

    def endpoint_elsewhere(self) -> str | None:
        """Return the endpoint of the same host that has a list of shares, if there is one."""
        parts = urlsplit(self.endpoint)
        origin = f"{parts.scheme}://{parts.netloc}"
        for prefix in PREFIXES:
            if f"{origin}{prefix}" == self.endpoint:
                continue
            try:
                answer = self.send("GET", f"{origin}{prefix}/shares")
                _page(answer, server_errors.LIST_OF_SHARES)
            except Problem:
                continue
            if answer.status == 200:  # noqa: PLR2004 - OK
                return f"{origin}{prefix}"
        return None


def _page(answer: Answer, request: str) -> tuple[list[Item], str]:
    """Return the items of a page and the token of the next one."""
    try:
        return page_of(answer.json())
    except ValueError:
        raise _not_of_protocol(request) from None


def _not_of_protocol(request: str) -> Problem:
    return Problem(
        f"{SERVER.name} answers {request} with a body that does not follow Delta Sharing",
        Owner.RECIPIENT,
        "compare the endpoint with the profile that the provider sent; a proxy may also have answered",
    )
