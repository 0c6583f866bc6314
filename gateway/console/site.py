"""What the pages of the console work on, and the answers of the processes that serve."""

from __future__ import annotations

import asyncio
import operator
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

import msgspec
from aiohttp import web

from gateway.admin.administration import Administration
from gateway.authentication.sealed_tokens import SECRET_BYTES, Sealer
from gateway.config import Config, ConsoleOidc
from gateway.console import questions
from gateway.console.sessions import Session, Sessions
from gateway.errors import Unavailable
from gateway.limits.attempts import FailedAttempts
from gateway.oidc.provider_holder import ProviderHolder
from gateway.telemetry.activity import LiveStream, RecentQuery, RecipientUse, add_uses
from gateway.telemetry.rings import Slots, added

A = TypeVar("A")

MEMORY_SECONDS = 5.0
"""The time for an answer from the memory of a process. One that takes longer hangs."""
TABLE_SECONDS = 25.0
"""The time for the facts of a table, longer than the time limit of the reading itself."""
SILENT: ContextVar[int] = ContextVar("silent", default=0)
"""The number of processes whose part is missing in the page of the present request."""


class Ask(Protocol):
    """Asks the processes that serve."""

    def __call__(self, question: Any, *, one: bool = False, seconds: float) -> Awaitable[Sequence[Any]]:
        """Return the answers of all processes that answer in time; with `one` of a single process.

        `seconds`: the time that each process has.
        """


@dataclass(frozen=True)
class Site:
    """The state and operations behind the console."""

    administration: Administration
    config: Callable[[], Config]
    ask: Ask
    workers: int
    viewer_token_sha256: str | None
    now_ms: Callable[[], int]
    sessions: Sessions = field(default_factory=lambda: Sessions(time.monotonic))
    attempts: FailedAttempts = field(default_factory=lambda: FailedAttempts(time.monotonic))
    sealing_secret: bytes = field(default_factory=lambda: os.urandom(SECRET_BYTES), repr=False)
    """Seals begun sign-ins where the configuration has no keys for tokens."""
    _tables: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4), repr=False)

    @cached_property
    def provider(self) -> ProviderHolder:
        """Return what holds the identity provider."""
        return ProviderHolder(self.now_ms)

    @property
    def oidc(self) -> ConsoleOidc | None:
        """Return how people sign in by an identity provider; None without one."""
        admin = self.config().gateway.admin
        return None if admin is None else admin.oidc

    @property
    def sealer(self) -> Sealer:
        """Return what seals begun sign-ins: any replica with the same keys can open them."""
        return Sealer(self.config().gateway.token_keys, self.sealing_secret)

    async def table(self, question: questions.AskTable) -> questions.TableAnswer:
        """Return the facts of a table. Raises Unavailable."""
        async with self._tables:
            return await self.one(question, questions.TableAnswer, seconds=TABLE_SECONDS)

    async def places(self, share: str | None = None) -> questions.PlacesAnswer:
        """Return all shares, or all schemas and tables of a share. Raises Unavailable."""
        return await self.one(questions.AskPlaces(share), questions.PlacesAnswer)

    async def slots(self, kind: str, name: str, span: str) -> Slots:
        """Return the slots of a span, of all processes together."""
        answers = await self._answers(
            questions.AskSlots(kind, name, span), tuple[tuple[int, tuple[int, ...]], ...]
        )
        return added(map(dict, answers))

    async def activity(
        self, *, table: str | None = None, recipient: str | None = None
    ) -> tuple[list[RecentQuery], list[LiveStream]]:
        """Return the recent queries of all processes, the last one first, and their live streams."""
        answers = await self._answers(questions.AskActivity(table, recipient), questions.ActivityAnswer)
        queries = [query for answer in answers for query in answer.queries]
        streams = [stream for answer in answers for stream in answer.streams]
        return sorted(queries, key=lambda query: -query.at_ms), sorted(
            streams, key=lambda stream: stream.start_ms
        )

    async def uses(self, recipients: Sequence[str]) -> dict[str, RecipientUse]:
        """Return the use by recipients, of all processes."""
        answers = await self._answers(questions.AskUses(tuple(recipients)), dict[str, RecipientUse])
        by_recipient = {name: [answer[name] for answer in answers if name in answer] for name in recipients}
        return {name: add_uses(uses) for name, uses in by_recipient.items() if uses}

    async def ranks(self, figure: str) -> dict[str, int]:
        """Return a figure of all recipients with requests: the sum over the processes, of times the last."""
        add = max if figure == "used" else operator.add
        ranks: dict[str, int] = {}
        for answer in await self._answers(questions.AskRanks(figure), dict[str, int]):
            for name, number in answer.items():
                ranks[name] = add(ranks.get(name, 0), number)
        return ranks

    async def statuses(self) -> list[questions.StatusAnswer]:
        """Return the storages and the reloads of each process."""
        return await self._answers(questions.AskStatus(), questions.StatusAnswer)

    async def one(self, question: questions.Question, kind: type[A], *, seconds: float = MEMORY_SECONDS) -> A:
        """Return the answer of one process. Raises Unavailable."""
        answers = await self._answers(question, kind, one=True, seconds=seconds)
        if not answers:
            raise Unavailable("No process of the server answers in time.")
        return answers[0]

    async def _answers(
        self,
        question: questions.Question,
        kind: type[A],
        *,
        one: bool = False,
        seconds: float = MEMORY_SECONDS,
    ) -> list[A]:
        answers = await self.ask(msgspec.to_builtins(question), one=one, seconds=seconds)
        if not one:
            SILENT.set(max(SILENT.get(), self.workers - len(answers)))
        return [msgspec.convert(answer, kind) for answer in answers]


SITE = web.AppKey("site", Site)
SESSION = web.RequestKey("console session", Session)


def session_of(request: web.Request) -> Session:
    """Return the session of a request for a page that needs one, as `require_session` has checked."""
    return request[SESSION]
