"""One request of the admin API, as its handler sees it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from aiohttp import web

from gateway.admin.administration import ADMINISTRATION, Administration
from gateway.database.schema import name_key, recipient_key
from gateway.errors import InvalidParameter
from gateway.governance.recipient_store import RecipientDatabase
from gateway.governance.recorded_database import LastChange, RecordedDatabase
from gateway.governance.share_store import ShareDatabase

T = TypeVar("T")
D = TypeVar("D", bound=RecordedDatabase)

WAIT_SECONDS = 30.0
"""Of a change for those of earlier requests, and of a reading for many."""
ANY = "*"
"""What a client sends to change a record in any state."""
_TAG = re.compile(r'"([0-9]{1,18})"')


def seen_by(sent: Mapping[str, str], name: str) -> int | None:
    """Return the number of the last change that a client has seen, of a header or of a field of a form.

    None: any. Raises InvalidParameter.
    """
    tag = sent.get(name, ANY).strip()
    if tag == ANY:
        return None
    known = _TAG.fullmatch(tag)
    if known is None:
        raise InvalidParameter('If-Match: expected one ETag of this API, such as "17"')
    return int(known[1])


@dataclass(frozen=True, slots=True)
class Call:
    """A request with a valid token, or of a signed-in user of the console.

    `actor`: who makes its changes, for the history and the audit log. `names`: those that its path lacks.
    `seen`: the number of the last change on which a change is based; None: any. `headers`: of the answer.
    """

    request: web.Request
    actor: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    seen: int | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def administration(self) -> Administration:
        """Return the state and operations of the server."""
        return self.request.app[ADMINISTRATION]

    @property
    def name(self) -> str:
        """Return the recipient's name in the path."""
        return self._named("name")

    @property
    def share(self) -> str:
        """Return the share's name in the path."""
        return self._named("share")

    @property
    def policy(self) -> str:
        """Return the policy's name in the path."""
        return self._named("policy")

    @property
    def client(self) -> str:
        """Return the OAuth client's id in the path."""
        return self._named("client")

    async def with_database(
        self, work: Callable[[RecipientDatabase], T], *, create: bool = False, read_only: bool = False
    ) -> T:
        """Return the result of `work` on a new connection to the database, in a thread.

        Changes run one after the other, and few readings at once. Raises TimeoutError if earlier ones take
        too long.
        """
        opener = partial(self.administration.open_database, self.acting, create=create, read_only=read_only)
        return await self._run(opener, work, read_only=read_only)

    async def with_shares(
        self, work: Callable[[ShareDatabase], T], *, create: bool = False, read_only: bool = False
    ) -> T:
        """Return the result of `work` on the shares of the database, as `with_database`."""
        opener = partial(self.administration.open_shares, self.acting, create=create, read_only=read_only)
        return await self._run(opener, work, read_only=read_only)

    @property
    def subject(self) -> tuple[str, str]:
        """Return the kind and the key of what the path names: a recipient, else a share."""
        if "name" in self.request.match_info:
            return "recipient", recipient_key(self.name)
        return "share", name_key(self.request.match_info.get("share", ""))

    def tag(self, database: RecordedDatabase) -> str:
        """Return the number of the subject's last change as `seen_by` reads it; an answer has it as its ETag.

        Call it before the record is read: a change that is based on an older record is then refused.
        """
        tag = self.headers["ETag"] = f'"{database.last_change(*self.subject).number}"'
        return tag

    @property
    def acting(self) -> str:
        """Return who acts, for the history and the audit log."""
        return self.actor or f"admin:{self.administration.client_address(self.request)}"

    async def _run(self, opener: Callable[[], D], work: Callable[[D], T], *, read_only: bool) -> T:
        def run() -> T:
            with closing(opener()) as database:
                if self.seen is None:
                    return work(database)
                return work(database.based_on(LastChange(*self.subject, self.seen)))

        turn = self.administration.reads if read_only else self.administration.changes
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await turn.acquire()
        except TimeoutError:
            raise TimeoutError("earlier requests did not end") from None
        try:
            return await asyncio.to_thread(run)
        finally:
            turn.release()

    def _named(self, part: str) -> str:
        return self.names[part] if part in self.names else self.request.match_info[part]
