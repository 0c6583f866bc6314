"""A request with everything that belongs to it until the end of its answer, and the route that answers it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import chain, product, repeat

from aiohttp import web
from msgspec import Struct, field

from gateway.authentication.oauth_clients import AuthenticatedClient
from gateway.catalog.catalog import Recipient
from gateway.config.networks import Address
from gateway.errors import InvalidClient, Unauthenticated
from gateway.limits.descriptors import FileReaders
from gateway.limits.drain_rate import DrainRate
from gateway.limits.memory import AdmittedStream
from gateway.protocol.cors import FieldLines
from gateway.state import GatewayState
from gateway.telemetry.request_record import IssuedCredential, RequestRecord
from gateway.web.client_address import address_of

Handler = Callable[["RequestContext"], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the route table.

    Attributes:
        method: the HTTP method; a route for GET also answers HEAD.
        path: literal segments and `{names}` of one segment each; `{name:.+}` at the end takes the rest. A
            literal segment that ends with `#` takes whatever follows it in the segment.
        handler: answers the request.
        is_public: answered without a token.
        is_for_clients: answered to OAuth clients, which send their secret.
        may_stream: its answers may be streams.
        may_be_large: its answers are whole, and have texts of a log.
        issues_credentials: its answers are temporary credentials, which have a limit of their own.
        name: of the handler; the label of the route in logs and metrics, a bounded set unlike paths.

    """

    method: str
    path: str
    handler: Handler
    is_public: bool = False
    is_for_clients: bool = False
    may_stream: bool = False
    may_be_large: bool = False
    issues_credentials: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or str(getattr(self.handler, "__name__", "")))


def nothing_revoked() -> None:
    """Return: no stream is running whose access could end."""


def ready() -> None:
    """Return None: nothing keeps the server from answering."""


def no_access() -> tuple[GatewayState, Recipient]:
    """Raise Unauthenticated: the route issues no credentials."""
    raise Unauthenticated


class RequestContext(Struct, eq=False):
    """A request and its state from the head of the request to the end of the answer.

    Attributes:
        id: identifies the request in logs.
        request: as parsed by aiohttp.
        route, names: the route that answers, and the names in its path.
        state: of the configuration that was in force when the request came.
        start_seconds: when the request came, by the monotonic clock.
        file_readers: the clients that read local files.
        not_ready: returns why this server should get no requests; None if it should.
        recipient: known once the token is checked; see `required_recipient`.
        refused_recipient: the recipient whose token or secret is refused because it expired or is forbidden.
        oauth_client: the client of a token request, once it is authenticated; see `required_client`.
        identity: for the audit log, claims of a token about its bearer beside the recipient.
        body: the whole body, for routes that need a token or a client.
        drain_rate: the slowest reader that the answer waits for.
        memory: what is admitted for the answer; None for one that needs no admission.
        first_byte_seconds: when the head of a stream was sent; None for an answer that is sent whole.
        sent_bytes: of the answer that were given to the socket, or are about to be, once the handler is done.
        storage: the name of the storage of the table or volume, once that is found.
        record: facts for the log, metrics, audit and quota.
        issued: the credential of the answer, for the audit log: its location is not for other logs.
        require_access: raises AccessRevoked once the recipient may no longer read the answer.
        current_access: returns the state in force and the recipient in it, for routes that issue credentials.
            Raises AccessRevoked.
        added_headers: for browsers, beside the headers of the answer.

    """

    id: str
    request: web.BaseRequest
    route: Route
    names: Mapping[str, str]
    state: GatewayState
    start_seconds: float
    file_readers: FileReaders
    not_ready: Callable[[], str | None] = ready
    recipient: Recipient | None = None
    refused_recipient: Recipient | None = None
    oauth_client: AuthenticatedClient | None = None
    identity: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    drain_rate: DrainRate = DrainRate()
    memory: AdmittedStream | None = None
    first_byte_seconds: float | None = None
    sent_bytes: int = 0
    storage: str | None = None
    record: RequestRecord = field(default_factory=RequestRecord)
    issued: IssuedCredential | None = None
    require_access: Callable[[], None] = nothing_revoked
    current_access: Callable[[], tuple[GatewayState, Recipient]] = no_access
    added_headers: FieldLines = ()

    @property
    def required_recipient(self) -> Recipient:
        """The authenticated recipient. Raises Unauthenticated where there is none: no route can forget it."""
        if self.recipient is None:
            raise Unauthenticated
        return self.recipient

    @property
    def required_client(self) -> AuthenticatedClient:
        """The authenticated client. Raises InvalidClient where there is none: no route can forget it."""
        if self.oauth_client is None:
            raise InvalidClient
        return self.oauth_client

    async def read_log(self, streams: int = 1) -> None:
        """Take the memory of an answer that reads the log. Raises LimitExceeded if there is none in time."""
        if self.memory is not None:
            await self.memory.read_log(streams)

    @property
    def address(self) -> Address | None:
        """The client's address, read through trusted proxies."""
        return address_of(self.request, self.state.trusted_proxies)


_PAIRS = tuple(f"{number:02x}" for number in range(256))
next_id = chain.from_iterable(
    map("".join, product((secrets.token_hex(4),), *(_PAIRS,) * 4)) for _ in repeat(None)
).__next__
"""Return an id for a request: a process and a number, not formatted. Random bytes need a system call."""
