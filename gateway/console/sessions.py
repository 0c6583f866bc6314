"""The sessions of the console: who is signed in, in which role, and until when.

In: the value of the session's cookie. Out: the session, or None. Sessions are in the memory of the process
that serves the admin listener, and end with it. Their number is bounded: of the user with most of them, the
one that is unused longest ends first.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from gateway.config import ConsoleOidc
from gateway.console.sent_forms import SentForms
from gateway.times import HOUR_SECONDS

COOKIE = "delta_gateway_console"
MAX_SESSIONS = 1000
IDLE_SECONDS = 30 * 60
LIFETIME_SECONDS = 8 * HOUR_SECONDS
_BYTES = 32


class Role(IntEnum):
    """What a user may do; a higher role may do more."""

    VIEWER = 1
    OPERATOR = 2


@dataclass(frozen=True, slots=True)
class ProviderUser:
    """What a session keeps of a sign-in by an identity provider.

    Attributes:
        settings: the configuration by which it began. The session ends when another one is in force.
        name: the user's name, as the console shows it.
        hint: the ID token, which the provider gets back at the sign-out; None for one that is too long.

    """

    settings: ConsoleOidc
    name: str
    hint: str | None = field(repr=False)


@dataclass(slots=True)
class Session:
    """A signed-in user. `actor` names the user in the history and in the audit log."""

    actor: str
    role: Role
    start_seconds: float
    last_seconds: float
    user: ProviderUser | None = None
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(_BYTES), repr=False)
    """Every form of the session has it, and no other site can read it."""
    forms: SentForms = field(default_factory=lambda: SentForms(time.monotonic), repr=False)

    @property
    def owner(self) -> tuple[Role, str | None]:
        """Identify the user; all who sign in by one token are one, at whatever addresses."""
        return self.role, None if self.user is None else self.user.name

    @property
    def may_change(self) -> bool:
        """Return whether the user may change anything."""
        return self.role >= Role.OPERATOR


class Sessions:
    """The sessions of a process, by the hash of their cookies."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        """`now_seconds` returns the time of a monotonic clock."""
        self._now_seconds = now_seconds
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def begin(self, actor: str, role: Role, user: ProviderUser | None = None) -> str:
        """Begin a session, and return the value of its cookie."""
        now_seconds = self._now_seconds()
        value = secrets.token_urlsafe(_BYTES)
        self._sessions[_hash(value)] = Session(actor, role, now_seconds, now_seconds, user)
        if len(self._sessions) > MAX_SESSIONS:
            self._end_one()
        return value

    def _end_one(self) -> None:
        """End the session that is unused longest, of the user with most of them: others lose none by it."""
        ((user, _),) = Counter(session.owner for session in self._sessions.values()).most_common(1)
        del self._sessions[next(key for key, session in self._sessions.items() if session.owner == user)]

    def find(self, value: str) -> Session | None:
        """Return the session of a cookie, which is used by this; None if there is none or it has ended."""
        key = _hash(value)
        session = self._sessions.get(key)
        if session is None:
            return None
        now_seconds = self._now_seconds()
        is_idle = now_seconds - session.last_seconds > IDLE_SECONDS
        if is_idle or now_seconds - session.start_seconds > LIFETIME_SECONDS:
            del self._sessions[key]
            return None
        session.last_seconds = now_seconds
        self._sessions.move_to_end(key)
        return session

    def end(self, value: str) -> None:
        self._sessions.pop(_hash(value), None)


def _hash(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
