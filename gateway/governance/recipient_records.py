"""Records of the recipients' database, and its errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, cast

from gateway.authentication.policies import TokenPolicy
from gateway.catalog.grants import Grant, still_readable
from gateway.protocol.profile import TOKEN_ENDPOINT, Profile, oauth_profile, profile
from gateway.times import DAY_SECONDS, MILLISECONDS, utc_text


class RecipientError(ValueError):
    """Base of errors of operations on recipients, whose text may be shown to the operator.

    RecipientError
    ├── RecipientNotFound    also: no such policy or client
    ├── RecipientUnreadable
    ├── ChangedMeanwhile
    ├── RecipientExists
    └── LinkInvalid
    """


class RecipientNotFound(RecipientError):
    """Raised when no recipient has the name, or the recipient has no such policy or client."""


class RecipientUnreadable(RecipientError):
    """Raised when another program has written rows of the recipient that are invalid."""


class ChangedMeanwhile(RecipientError):
    """Raised for a change that is based on another state than the stored one."""

    def __init__(self) -> None:
        super().__init__(
            "it was changed meanwhile, which this change would overwrite; look at it again first"
        )


class RecipientExists(RecipientError):
    """Raised when the name is taken in the database or in the configuration file."""


LINK_DAYS = 30
DEFAULT_LINK_SECONDS, MAX_LINK_SECONDS = 3 * DAY_SECONDS, LINK_DAYS * DAY_SECONDS
"""Maximum life of an activation link: it waits in a mailbox."""
MAX_LIFE_SECONDS = 10 * 365 * DAY_SECONDS
"""Of a token or secret."""
DEFAULT_LIFE_SECONDS = 90 * DAY_SECONDS
"""Of a token or secret whose life is not given: by the command line, the console and the admin API."""


class LinkInvalid(RecipientError):
    """Raised for an activation link that is unknown, was used or has ended: one text for all."""

    def __init__(self) -> None:
        super().__init__("this link does not exist, was used already, or has ended")


LinkKind = Literal["token", "client"]
"""What an activation link gives."""

TEXTS: Mapping[str, str] = {"comment": "a text that `show` and `list` print"}
"""The texts that operators describe a recipient by, each with a sentence for the command line's help.

Each is a field of `NewRecipient` and of `RecipientRecord`, a column of the database, an option of
`recipient add`, a key of `apply` and `export`, a field of the console's form, and a field of the admin API's
messages, which a test compares.
"""


class NewRecipient(TypedDict, total=False):
    """What every kind of new recipient is described by: also the fields of a request to add one.

    Attributes:
        shares, networks: the granted shares; the source networks, without which any is allowed.
        comment: for operators.
        allow_absent: shares, and issuers of policies, may be granted before the configuration has them.

    """

    shares: Sequence[str]
    networks: Sequence[str]
    comment: str
    allow_absent: bool


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A stored token. Without `expires_ms` it is valid until it is rotated or revoked."""

    sha256: str = field(repr=False)
    created_ms: int
    expires_ms: int | None

    def live(self, now_ms: int) -> bool:
        """Return whether the token is valid at that time."""
        return self.expires_ms is None or now_ms < self.expires_ms


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """A stored federation policy, by its name."""

    name: str
    policy: TokenPolicy
    created_ms: int


@dataclass(frozen=True, slots=True)
class ClientRecord:
    """A stored OAuth client with its secrets, the oldest first."""

    id: str
    created_ms: int
    secrets: tuple[TokenRecord, ...]


@dataclass(frozen=True, slots=True)
class RecipientRecord:
    """A stored recipient.

    Attributes:
        shares: names of shares that are granted as a whole, case-folded; `*` is every share.
        networks: without any, every address is allowed.
        forbids_bearer_tokens: its `tokens` are refused.
        grants: for parts of shares, or with a condition.
        properties: texts by name, for conditions.

    """

    name: str
    comment: str
    created_ms: int
    tokens: tuple[TokenRecord, ...]
    shares: tuple[str, ...]
    networks: tuple[str, ...]
    policies: tuple[PolicyRecord, ...] = ()
    clients: tuple[ClientRecord, ...] = ()
    forbids_bearer_tokens: bool = False
    grants: tuple[Grant, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def texts(self) -> dict[str, str]:
        """Return the texts by which operators describe it."""
        return {name: getattr(self, name) for name in TEXTS}

    def still_readable(self, taken: Iterable[Grant]) -> tuple[str, ...]:
        """Return the grants by which something of places that were taken back may still be read, as texts."""
        return still_readable((*map(Grant, self.shares), *self.grants), taken)

    def not_granted(self, name: str, place: Grant) -> RecipientError:
        """Return the error for a place without a grant, which other grants may give nevertheless."""
        others = ", ".join(self.still_readable([place]))
        readable = f", and something of it may be read by the grant {others}" if others else ""
        return RecipientError(f"{name} is not granted to {self.name!r}{readable}")


@dataclass(frozen=True, slots=True)
class Permission:
    """A change of one recipient's grant for a share: it is given, or taken back."""

    recipient: str
    is_granted: bool


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token, with its plain text, which is not stored."""

    recipient: str
    token: str = field(repr=False)
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class IssuedSecret:
    """A new secret of an OAuth client, with its plain text, which is not stored."""

    recipient: str
    client_id: str
    secret: str = field(repr=False)
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class IssuedLink:
    """A new activation link, with the plain text of its code, which is not stored."""

    recipient: str
    code: str = field(repr=False)
    expires_ms: int


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """A change, as the history and the audit log record it."""

    at_ms: int
    actor: str
    action: str
    recipient: str
    detail: Mapping[str, str]

    @property
    def shown_detail(self) -> Mapping[str, str]:
        """The detail for people: ends are times."""
        return {
            name.removesuffix("Ms"): utc_text(int(text)) if name.endswith("Ms") and text.isdecimal() else text
            for name, text in self.detail.items()
        }


@dataclass(frozen=True, slots=True)
class PurgedRows:
    """The counts of deleted rows."""

    tokens: int
    changes: int


def end_ms(now_ms: int, expires_in_seconds: int | None, what: str) -> int | None:
    """Return the end of a new token or secret, at the end of a second, as clients show it.

    Raises RecipientError.
    """
    if expires_in_seconds is None:
        return None
    if not 0 < expires_in_seconds <= MAX_LIFE_SECONDS:
        days = MAX_LIFE_SECONDS // DAY_SECONDS
        raise RecipientError(f"a {what}'s life: expected 1 to {MAX_LIFE_SECONDS} seconds ({days} days)")
    return (-(-now_ms // MILLISECONDS) + expires_in_seconds) * MILLISECONDS


def text_of(described: NewRecipient, name: str) -> str:
    """Return one of the `TEXTS` of a new recipient; an empty one by default."""
    texts: Any = described
    return str(texts.get(name, ""))


def described_by(given: object) -> NewRecipient:
    """Return the description of a new recipient: what a request or the command line gives by these names."""
    described: Any = {name: getattr(given, name) for name in NewRecipient.__annotations__}
    return cast("NewRecipient", described)


def profile_of(endpoint: str, issued: IssuedToken | IssuedSecret) -> Profile:
    """Return the profile of a new token, or of a new secret of an OAuth client."""
    if isinstance(issued, IssuedSecret):
        return oauth_profile(
            endpoint,
            token_endpoint=endpoint + TOKEN_ENDPOINT,
            client_id=issued.client_id,
            client_secret=issued.secret,
        )
    if issued.expires_ms is None:
        return profile(endpoint, issued.token)
    return profile(endpoint, issued.token, utc_text(issued.expires_ms, timespec="milliseconds"))
