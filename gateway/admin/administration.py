"""The state and the operations of the server that the admin API works on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from aiohttp import web

from gateway.config import Config
from gateway.config.networks import Address, parse_networks
from gateway.web.client_address import address_of

if TYPE_CHECKING:
    # The supervisor has results of reloads also where there is no database.
    from gateway.catalog.grants import Grant
    from gateway.catalog.stored_shares import StoredShares
    from gateway.governance.recipient_store import RecipientDatabase
    from gateway.governance.share_store import ShareDatabase

    GrantWarnings = Callable[[StoredShares, Sequence[Grant], tuple[tuple[str, str], ...]], Sequence[str]]

T_co = TypeVar("T_co", covariant=True)

READS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class WorkerReload:
    """The result of a reload in one worker; `refused` is None if it applied the configuration."""

    index: int
    process_id: int | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """The result of a reload: the reason of a refusal as a whole, else the result of each worker."""

    refused: str | None
    workers: Sequence[WorkerReload] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether every process applied the configuration."""
        return self.refused is None and all(worker.refused is None for worker in self.workers)


class Opens(Protocol[T_co]):
    """Opens the database for operations on recipients, or on shares."""

    def __call__(self, actor: str, *, create: bool = False, read_only: bool = False) -> T_co:
        """Return a new connection for the calling thread, whose changes are recorded with `actor`.

        `create`: create the database where there is none. `read_only`: do not change it.
        """


@dataclass(frozen=True)
class Administration:
    """The state and operations behind the admin API."""

    def client_address(self, request: web.BaseRequest) -> Address | None:
        """Return the address of the client that sent a request, as far as proxies are trusted."""
        return address_of(request, parse_networks(self.config().gateway.trusted_proxies))

    open_database: Opens[RecipientDatabase]
    open_shares: Opens[ShareDatabase]
    config: Callable[[], Config]
    """Returns the configuration in force."""
    metrics_page: Callable[[], bytes]
    reload: Callable[[], Awaitable[ReloadResult]]
    token_sha256: str = field(repr=False)
    count_refused: Callable[[], None] = lambda: None
    """Called for each request without a valid token."""
    audited: Callable[[str, str, Address | None, int], None] = lambda *_: None
    """Records an action in the audit log, if there is one: who takes it, from where, and the status."""
    metrics_token_sha256: str | None = field(default=None, repr=False)
    grant_warnings: GrantWarnings = lambda *_: ()
    """Returns what is wrong with grants to a recipient with these properties. Blocks.

    The shares of the database are an argument; the configuration has the others.
    """
    changes: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    """Held by the request that changes the database. SQLite polls for its own lock, which starves writers."""
    reads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_AT_ONCE), repr=False)
    """Held by requests that read it: while it hangs, they leave threads to the metrics and to reloads."""


ADMINISTRATION = web.AppKey("administration", Administration)
