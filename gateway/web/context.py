"""One request on its way through the house, the route that answers it, and what the rooms have found out."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from gateway.config.networks import Address
from gateway.errors import Unauthenticated
from gateway.limits.drain_rate import DrainRate
from gateway.web.client_address import client_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web

    from gateway.access.catalog import Recipient
    from gateway.protocol.cors import FieldLines
    from gateway.state import Sharing

    Handler = Callable[["Exchange"], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the route table.

    Attributes:
        method: the HTTP method; what answers GET answers HEAD, too.
        path: words and `{names}` of one segment each; `{name:.+}` at the end takes all that follows.
        handler: answers.
        is_open: answered without a token.
        is_long: its answers may be streams.
        name: that of the handler, by which logs and metrics call the route: a bounded set, unlike paths.

    """

    method: str
    path: str
    handler: Handler
    is_open: bool = False
    is_long: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or str(getattr(self.handler, "__name__", "")))


def _always() -> None:
    """Nothing can be revoked."""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and what belongs to it from its head to the end of its answer.

    Attributes:
        id: by which it stands in the logs.
        request: as aiohttp has parsed it.
        route, names: what answers it, and what its path names.
        sharing: what the configuration made that was in force when it came.
        begun_seconds: when it came, by the clock that only goes forward.
        draining: the server is about to end.
        asking: the recipient, once a token has told it; see `recipient`.
        body: the whole of it, for routes that are not open.
        drain_rate: the slowest reader that its answer bears.
        first_byte_seconds: when the head of a stream left; None for an answer that leaves whole.
        facts: what is told of it in the log, by name.
        require_access: raises AccessRevoked once the recipient may not read any more what is being sent.
        added_headers: what its answer carries beside its own, for browsers.

    """

    id: str
    request: web.BaseRequest
    route: Route
    names: Mapping[str, str]
    sharing: Sharing
    begun_seconds: float
    draining: bool = False
    asking: Recipient | None = None
    body: bytes = b""
    drain_rate: DrainRate = DrainRate()  # noqa: RUF009 - it is frozen
    first_byte_seconds: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    require_access: Callable[[], None] = _always
    added_headers: FieldLines = ()

    @property
    def recipient(self) -> Recipient:
        """Who asks. Raises Unauthenticated where nobody was made out: no route can forget it."""
        if self.asking is None:
            raise Unauthenticated
        return self.asking

    @property
    def address(self) -> Address | None:
        """Where it really comes from, as far as proxies are believed."""
        forwarded_for = self.request.headers.getall("X-Forwarded-For", [])
        return client_address(self.request.remote, forwarded_for, self.sharing.trusted_proxies)

    def sent_bytes(self, response: web.StreamResponse | None) -> int:
        """Of its answer, what was handed to the socket so far, or is about to leave whole."""
        return self.request.writer.output_size or (0 if response is None else response.body_length)


def next_id() -> str:
    """An id for a request: its process and its number. No secret: random bytes are a call to the system."""
    return f"{_PROCESS}{next(_NUMBERS):08x}"


_PROCESS = secrets.token_hex(4)
_NUMBERS = count()
