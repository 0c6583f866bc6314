"""The kinds of credentials of a recipient: how the first one is given, and a further one.

In: the transaction of a change, as `Issuing`. Out: what is given, with its plain text; of tokens, secrets and
links only the SHA-256 is stored. A recipient has at most two valid tokens, and so has a client of secrets.
"""

from __future__ import annotations

import secrets
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import Connection, Table, delete, or_, update

from gateway.authentication.credential_table import token_hash
from gateway.authentication.policies import TokenPolicy
from gateway.database.schema import ACTIVATION_LINKS, CLIENT_SECRETS, CLIENTS, TOKENS, recipient_key
from gateway.governance import rows
from gateway.governance.recipient_records import (
    LINK_DAYS,
    MAX_LIFE_SECONDS,
    MAX_LINK_SECONDS,
    ClientRecord,
    IssuedLink,
    IssuedSecret,
    IssuedToken,
    LinkKind,
    RecipientError,
    RecipientNotFound,
    RecipientRecord,
    TokenRecord,
    end_ms,
)

TOKEN_BYTES = 32
MAX_CLIENTS = 20

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Issuing:
    """The change by which a recipient gets a credential.

    Attributes:
        record: the recipient, without any credential where it is new.
        detail: of the change, to fill.
        now_ms: the time by the clock of this machine.
        earliest_ms: returns the time from which an old token's remaining life counts.
        policies: rows to insert, for all recipients of the change at once.

    """

    connection: Connection
    record: RecipientRecord
    detail: dict[str, str]
    now_ms: int
    earliest_ms: Callable[[], int]
    policies: list[dict[str, Any]]

    def token(self, life_seconds: int | None, token: str | None = None) -> IssuedToken:
        """Issue a token; None: a random one."""
        token, expires_ms = self._insert(TOKENS, life_seconds, "token", token)
        self.detail["tokenExpiresMs"] = _end_text(expires_ms)
        return IssuedToken(self.record.name, token, expires_ms)

    def secret(self, client_id: str, life_seconds: int | None, secret: str | None = None) -> IssuedSecret:
        """Issue a secret of a client; None: a random one."""
        secret, expires_ms = self._insert(CLIENT_SECRETS, life_seconds, "secret", secret, client=client_id)
        self.detail.update(client=client_id, secretExpiresMs=_end_text(expires_ms))
        return IssuedSecret(self.record.name, client_id, secret, expires_ms)

    def client(self, life_seconds: int | None, secret: str | None = None) -> IssuedSecret:
        """Add a client with its first secret. Raises RecipientError for too many."""
        if len(self.record.clients) >= MAX_CLIENTS:
            raise RecipientError(
                f"recipient {self.record.name!r} has {MAX_CLIENTS} clients, remove one first"
            )
        client_id = str(uuid.uuid4())
        row = {"id": client_id, "recipient": recipient_key(self.record.name), "created_ms": self.now_ms}
        rows.insert(self.connection, {CLIENTS: [row]})
        return self.secret(client_id, life_seconds, secret)

    def link(self, valid_for_seconds: int, kind: LinkKind, life_seconds: int | None) -> IssuedLink:
        """Add an activation link."""
        if not 0 < valid_for_seconds <= MAX_LINK_SECONDS:
            raise RecipientError(
                f"a link's life: expected 1 to {MAX_LINK_SECONDS} seconds ({LINK_DAYS} days)"
            )
        end_ms(self.now_ms, life_seconds, "token")
        code, expires_ms = secrets.token_urlsafe(TOKEN_BYTES), self.now_ms + valid_for_seconds * 1000
        sha256 = token_hash(code).hex()
        row = {
            "sha256": sha256,
            "recipient": recipient_key(self.record.name),
            "created_ms": self.now_ms,
            "expires_ms": expires_ms,
            "kind": kind,
            "lifetime_seconds": life_seconds,
        }
        rows.insert(self.connection, {ACTIVATION_LINKS: [row]})
        self.detail.update(link=sha256[: rows.LINK_ID_LENGTH], linkExpiresMs=str(expires_ms))
        return IssuedLink(self.record.name, code, expires_ms)

    def forbid_bearer_tokens(self) -> None:
        """Refuse the bearer tokens of a new recipient, which uses clients."""
        forbid_bearer_tokens(self.connection, self.record.name, self.detail, forbidden=True)

    def end_old(self, table: Table, old: Sequence[TokenRecord], life_seconds: int) -> None:
        """End the youngest live one in that time, and the others at once."""
        now_ms = self.earliest_ms()
        live = [token for token in old if token.live(now_ms)]
        youngest = max(live, key=lambda token: token.created_ms, default=None) if life_seconds else None
        ended = [token.sha256 for token in old if token is not youngest]
        # What ends at once is deleted: a time would be to come by the clock of a server that is behind.
        self.connection.execute(delete(table).where(table.c.sha256.in_(ended)))
        if youngest is not None:
            expires_ms = now_ms + life_seconds * 1000
            lives_longer = or_(table.c.expires_ms.is_(None), table.c.expires_ms > expires_ms)
            shorter = update(table).where(table.c.sha256 == youngest.sha256, lives_longer)
            self.connection.execute(shorter.values(expires_ms=expires_ms))

    def _insert(
        self, table: Table, life_seconds: int | None, what: str, text: str | None, **client: str
    ) -> tuple[str, int | None]:
        text = text or secrets.token_urlsafe(TOKEN_BYTES)
        expires_ms = end_ms(self.now_ms, life_seconds, what)
        of_clients = (secret for client in self.record.clients for secret in client.secrets)
        # The youngest one is known by its time, also where an earlier clock was ahead.
        earlier_ms = (known.created_ms for known in (*self.record.tokens, *of_clients))
        created_ms = max(self.now_ms, 1 + max(earlier_ms, default=0))
        stored = TokenRecord(token_hash(text).hex(), created_ms, expires_ms)
        row = {"recipient": recipient_key(self.record.name), **asdict(stored), **client}
        rows.insert(self.connection, {table: [row]})
        return text, expires_ms


class FirstCredential(ABC, Generic[T_co]):
    """A credential that a recipient can be added with."""

    @abstractmethod
    def first(self, issuing: Issuing) -> T_co:
        """Give it to a new recipient."""


class FurtherCredential(ABC, Generic[T_co]):
    """A credential that a known recipient can be given."""

    action: ClassVar[str]
    """Of the change, in the history and in the audit log."""

    @abstractmethod
    def further(self, issuing: Issuing) -> T_co:
        """Give it to a recipient with others."""


@dataclass(frozen=True)
class NewToken(FirstCredential[IssuedToken], FurtherCredential[IssuedToken]):
    """A bearer token. Of older ones only the youngest stays valid, for at most `old_expires_in_seconds`."""

    expires_in_seconds: int | None = None
    old_expires_in_seconds: int = 0
    action = "rotateRecipientToken"

    def __post_init__(self) -> None:
        _check_old_life(self.old_expires_in_seconds, "token")

    def first(self, issuing: Issuing) -> IssuedToken:
        return issuing.token(self.expires_in_seconds)

    def further(self, issuing: Issuing) -> IssuedToken:
        """Issue the token, and end older ones."""
        record = issuing.record
        if record.forbids_bearer_tokens:
            raise RecipientError(
                f"bearer tokens are forbidden to {record.name!r}: rotate the secret of its client instead"
            )
        issuing.end_old(TOKENS, record.tokens, self.old_expires_in_seconds)
        issuing.detail["oldTokenExpiresInSeconds"] = str(self.old_expires_in_seconds)
        return issuing.token(self.expires_in_seconds)


@dataclass(frozen=True)
class NewClient(FirstCredential[IssuedSecret], FurtherCredential[IssuedSecret]):
    """An OAuth client with a secret. A recipient that is added with it may use no bearer tokens."""

    expires_in_seconds: int | None = None
    action = "createClient"

    def first(self, issuing: Issuing) -> IssuedSecret:
        """Add the client, and forbid bearer tokens."""
        issuing.forbid_bearer_tokens()
        return issuing.client(self.expires_in_seconds)

    def further(self, issuing: Issuing) -> IssuedSecret:
        return issuing.client(self.expires_in_seconds)


@dataclass(frozen=True)
class NewSecret(FurtherCredential[IssuedSecret]):
    """Another secret of an OAuth client, of which older ones end as for `NewToken`.

    Without `client_id` the recipient must have one client.
    """

    client_id: str | None = None
    expires_in_seconds: int | None = None
    old_expires_in_seconds: int = 0
    action = "rotateClientSecret"

    def __post_init__(self) -> None:
        _check_old_life(self.old_expires_in_seconds, "secret")

    def further(self, issuing: Issuing) -> IssuedSecret:
        """Issue the secret, and end older ones."""
        client = find_client(issuing.record, self.client_id)
        issuing.end_old(CLIENT_SECRETS, client.secrets, self.old_expires_in_seconds)
        issuing.detail["oldSecretExpiresInSeconds"] = str(self.old_expires_in_seconds)
        return issuing.secret(client.id, self.expires_in_seconds)


@dataclass(frozen=True)
class NewLink(FirstCredential[IssuedLink], FurtherCredential[IssuedLink]):
    """An activation link, which gives a token or, where bearer tokens are forbidden, a client.

    `link_expires_in_seconds` is the life of the link, `expires_in_seconds` that of what it gives. `kind`: for
    a new recipient. Unused links of a known recipient end.
    """

    link_expires_in_seconds: int
    expires_in_seconds: int | None = None
    kind: LinkKind = "token"
    action = "createActivationLink"

    def first(self, issuing: Issuing) -> IssuedLink:
        if self.kind == "client":
            issuing.forbid_bearer_tokens()
        return issuing.link(self.link_expires_in_seconds, self.kind, self.expires_in_seconds)

    def further(self, issuing: Issuing) -> IssuedLink:
        """Add the link, and end unused ones."""
        kind: LinkKind = "client" if issuing.record.forbids_bearer_tokens else "token"
        rows.delete_open_links(issuing.connection, issuing.record.name)
        return issuing.link(self.link_expires_in_seconds, kind, self.expires_in_seconds)


@dataclass(frozen=True)
class Policies(FirstCredential[str]):
    """Federation policies: the recipient uses tokens of an identity provider, and gets none of this server.

    What is given is the name of the recipient.
    """

    policies: Mapping[str, TokenPolicy]

    def first(self, issuing: Issuing) -> str:
        name = issuing.record.name
        issuing.policies.extend(
            rows.policy_row(name, *named, issuing.now_ms) for named in self.policies.items()
        )
        issuing.detail["policies"] = " ".join(self.policies)
        return name


def find_client(record: RecipientRecord, client_id: str | None) -> ClientRecord:
    """Return a client of a recipient; without an id its only one. Raises RecipientError."""
    if client_id is None and len(record.clients) > 1:
        known = ", ".join(client.id for client in record.clients)
        raise RecipientError(f"recipient {record.name!r} has several clients, name one: {known}")
    for client in record.clients:
        if client_id in (None, client.id):
            return client
    named = "" if client_id is None else f" {client_id!r}"
    raise RecipientNotFound(f"recipient {record.name!r} has no client{named}")


def forbid_bearer_tokens(
    connection: Connection, name: str, detail: dict[str, str], *, forbidden: bool
) -> None:
    """Set whether the bearer tokens of a recipient are refused, and describe it in the detail of a change."""
    rows.update(connection, name, forbids_bearer_tokens=forbidden)
    detail["bearerTokensForbidden"] = "true" if forbidden else "false"


def _end_text(expires_ms: int | None) -> str:
    return "never" if expires_ms is None else str(expires_ms)


def _check_old_life(seconds: int, what: str) -> None:
    """Check the remaining life of an old token or secret. Raises RecipientError."""
    if not 0 <= seconds <= MAX_LIFE_SECONDS:
        raise RecipientError(f"the old {what}'s remaining life: expected 0 to {MAX_LIFE_SECONDS} seconds")
