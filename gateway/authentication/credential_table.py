"""Authentication by bearer token: the lookup of its SHA-256.

Tokens are compared by hash and in constant time; the stored hash cannot be used as a token. Absent,
malformed, unknown, expired and revoked tokens get the same answer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from gateway.authentication.oauth_clients import ClientSecret, ClientTable, OAuthClient
from gateway.authentication.policies import PolicyTable, TokenPolicy
from gateway.catalog.catalog import Recipient
from gateway.catalog.grants import Grant
from gateway.config import Config, RecipientEntry
from gateway.config.networks import parse_networks
from gateway.config.recipients import EVERY_SHARE, TokenEntry

ANONYMOUS = Recipient("anonymous", frozenset({EVERY_SHARE}))
UNIVERSAL = Recipient("authorization.bearerToken", frozenset({EVERY_SHARE}))
MAX_REVOKED = 1000
"""Of the tokens that were replaced or revoked last."""
UNREADABLE_RECIPIENTS = "the server cannot read its recipients"

# A token of the reference server is any text of its configuration, so any header text may be one.
_BEARER = re.compile(r"bearer[ \t]+([^ \t](?:.*[^ \t])?)[ \t]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Credential:
    """The hash of a token and its recipient.

    Attributes:
        sha256: the hash.
        recipient: the recipient.
        expires_ms: end of the token; None without one.
        identity: for the audit log, what a token of an identity provider says about its bearer.
        verified: the verified token of an identity provider; None for tokens of this server.
        is_forbidden: the recipient may not use bearer tokens of this server.

    """

    sha256: bytes = field(repr=False)
    recipient: Recipient
    expires_ms: int | None = None
    identity: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    verified: object | None = field(default=None, repr=False, compare=False)
    is_forbidden: bool = False

    def has_expired(self, now_ms: int) -> bool:
        """Return whether the token has expired at that time."""
        return self.expires_ms is not None and now_ms >= self.expires_ms


@dataclass(frozen=True, slots=True)
class Holder:
    """A recipient with all that it is identified by.

    It has expired tokens and secrets, too: each request compares the time.
    """

    recipient: Recipient
    credentials: tuple[Credential, ...] = ()
    policies: tuple[TokenPolicy, ...] = ()
    clients: tuple[OAuthClient, ...] = ()

    @property
    def can_have_token(self) -> bool:
        """Return whether a token of some kind may be accepted."""
        return bool(self.policies or self.clients) or not all(
            credential.is_forbidden for credential in self.credentials
        )


class CredentialTable:
    """Credentials in memory, by hash."""

    def __init__(
        self, holders: Iterable[Holder], *, anonymous: Recipient | None = None, is_incomplete: bool = False
    ) -> None:
        self.anonymous = anonymous
        """The recipient of requests without a token; None when a token is required."""
        self.is_incomplete = is_incomplete
        """Recipients are missing, because the database cannot be read."""
        holders = tuple(holders)
        self.policies = PolicyTable(_policies(holders))
        self.clients = ClientTable(client for holder in holders for client in holder.clients)
        self.recipients: dict[str, Recipient] = {}
        """The recipients that can have a token, by name."""
        if anonymous is not None:
            self.recipients[anonymous.name] = anonymous
        self._by_prefix: dict[bytes, list[Credential]] = {}
        self._forbidden: dict[bytes, Recipient] = {}
        self._revoked: dict[bytes, Recipient] = {}
        """For the reasons of refusals alone: a table that is made again has none."""
        for holder in holders:
            for credential in holder.credentials:
                if credential.is_forbidden:
                    self._forbidden[credential.sha256] = credential.recipient
                else:
                    self._by_prefix.setdefault(credential.sha256[:4], []).append(credential)
            if holder.can_have_token:
                self.recipients[holder.recipient.name] = holder.recipient

    @staticmethod
    def of(config: Config) -> CredentialTable:
        """Build the table of a configuration."""
        anonymous = ANONYMOUS if config.gateway.anonymous else None
        return CredentialTable(configured_holders(config), anonymous=anonymous)

    def replaced(
        self, gone: Sequence[Holder], new: Sequence[Holder], *, is_incomplete: bool = False
    ) -> CredentialTable | None:
        """Return a table with some recipients in place of others; this one stays as it is.

        It equals the table that is made of all of them, and costs less: four maps are copied, and the entries
        of these recipients change. None where an entry belongs to another recipient, too, such as one of the
        configuration with the same client id: then the table is made of all of them.
        """
        clients = self.clients.replaced(
            (client for holder in gone for client in holder.clients),
            (client for holder in new for client in holder.clients),
        )
        if clients is None:
            return None
        table = CredentialTable((), anonymous=self.anonymous, is_incomplete=is_incomplete)
        table.clients = clients
        table.policies = self.policies.replaced(_policies(gone), _policies(new))
        table.recipients = dict(self.recipients)
        table._by_prefix, table._forbidden = dict(self._by_prefix), dict(self._forbidden)
        # Who is missing may come back.
        lost = () if is_incomplete else gone
        ended = {credential.sha256: credential.recipient for held in lost for credential in held.credentials}
        valid = {credential.sha256 for held in new for credential in held.credentials}
        ended = {sha256: known for sha256, known in (self._revoked | ended).items() if sha256 not in valid}
        table._revoked = dict([*ended.items()][-MAX_REVOKED:])
        is_exact = all(map(table._remove, gone)) and all(map(table._insert, new))
        return table if is_exact else None

    def _remove(self, held: Holder) -> bool:
        """Remove a recipient. Returns False where an entry is not its own."""
        for credential in held.credentials:
            if credential.is_forbidden:
                if self._forbidden.pop(credential.sha256, None) is not credential.recipient:
                    return False
                continue
            prefix = credential.sha256[:4]
            known = self._by_prefix.pop(prefix, [])
            left = [other for other in known if other is not credential]
            if len(left) == len(known):
                return False
            if left:
                self._by_prefix[prefix] = left
        return not held.can_have_token or (self.recipients.pop(held.recipient.name, None) is held.recipient)

    def _insert(self, held: Holder) -> bool:
        """Add a recipient. Returns False where an entry is another one's."""
        for credential in held.credentials:
            if credential.is_forbidden:
                if self._forbidden.setdefault(credential.sha256, held.recipient) is not held.recipient:
                    return False
                continue
            prefix = credential.sha256[:4]
            self._by_prefix[prefix] = [*self._by_prefix.get(prefix, ()), credential]
        return not held.can_have_token or (
            self.recipients.setdefault(held.recipient.name, held.recipient) is held.recipient
        )

    def find(self, sha256: bytes, *, now_ms: int) -> Credential | None:
        """Look up a hash: by a short prefix, then by a comparison in constant time."""
        match: Credential | None = None
        for credential in self._by_prefix.get(sha256[:4], ()):
            if hmac.compare_digest(credential.sha256, sha256):
                match = credential
        if match is None or match.has_expired(now_ms):
            return None
        return match

    def forbidden(self, sha256: bytes) -> Recipient | None:
        """Return the recipient of a token that may not be used because bearer tokens are forbidden."""
        return self._forbidden.get(sha256)

    def revoked(self, sha256: bytes) -> Recipient | None:
        """Return the recipient of one of the last tokens that were replaced or revoked."""
        return self._revoked.get(sha256)


def changed_recipients(before: CredentialTable, after: CredentialTable) -> set[str]:
    """Return the names of the recipients that have changed or are gone."""
    if before is after:
        return set()
    later = after.recipients
    # Almost all are the same objects, and comparing values takes longer than comparing identities.
    return {
        name
        for name, known in before.recipients.items()
        if (other := later.get(name)) is not known and other != known
    }


def _policies(held: Iterable[Holder]) -> Iterable[tuple[TokenPolicy, Recipient]]:
    return ((policy, entry.recipient) for entry in held for policy in entry.policies)


def configured_holders(config: Config) -> Iterator[Holder]:
    """Iterate over the recipients of the configuration with what they are identified by."""
    if config.authorization is not None:
        spellings = _spellings(config.authorization.bearer_token.reveal())
        yield Holder(
            UNIVERSAL, tuple(Credential(hashlib.sha256(text).digest(), UNIVERSAL) for text in spellings)
        )
    for entry in config.gateway.recipients:
        recipient, is_forbidden = _recipient(entry), entry.forbid_bearer_tokens
        credentials = (
            Credential(sha256, recipient, end_ms, is_forbidden=is_forbidden)
            for sha256, end_ms in map(_hash_and_end, entry.tokens)
        )
        clients = (
            OAuthClient(
                client.id, recipient, tuple(ClientSecret(*_hash_and_end(known)) for known in client.secrets)
            )
            for client in entry.clients
        )
        yield Holder(recipient, tuple(credentials), tuple(map(TokenPolicy.of, entry.oidc)), tuple(clients))


def built_in_recipients(config: Config) -> Iterable[Recipient]:
    """Iterate over the recipients that the configuration makes without a name."""
    if config.gateway.anonymous:
        yield ANONYMOUS
    if config.authorization is not None:
        yield UNIVERSAL


def configured_recipients(config: Config) -> Iterable[Recipient]:
    """Iterate over the recipients of the configuration."""
    return (_recipient(entry) for entry in config.gateway.recipients)


def _hash_and_end(known: TokenEntry) -> tuple[bytes, int | None]:
    return bytes.fromhex(known.sha256), int(known.expires.timestamp() * 1000) if known.expires else None


def _recipient(entry: RecipientEntry) -> Recipient:
    grants = [
        Grant.of(granted.share, granted.schema, granted.table, granted.condition) for granted in entry.shares
    ]
    return Recipient(
        entry.name,
        frozenset(grant.share for grant in grants if grant.is_whole_share),
        parse_networks(entry.networks),
        tuple(grant for grant in grants if not grant.is_whole_share),
        tuple(sorted(entry.properties.items())),
    )


def token_hash(token: str) -> bytes:
    """Return the SHA-256 of a token. Header bytes that are not UTF-8 are hashed as sent."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _spellings(token: str) -> Iterable[bytes]:
    """Iterate over the encodings that clients send: UTF-8, and ISO 8859-1 from older HTTP libraries."""
    yield token.encode()
    with suppress(UnicodeEncodeError):
        if not token.isascii():
            yield token.encode("latin-1")


def bearer_token(authorization: Sequence[str]) -> str | None:
    """Return the token of a request's only `Authorization` header; None for another or several."""
    match = _BEARER.fullmatch(authorization[0]) if len(authorization) == 1 else None
    return match.group(1) if match else None


def sends_token(authorization: Sequence[str]) -> bool:
    """Return whether one of several `Authorization` headers has a bearer token."""
    return any(map(_BEARER.fullmatch, authorization))


def has_no_token(authorization: str) -> bool:
    """Return whether a header has the scheme alone, as clients send it for a profile with an empty token."""
    return authorization.strip().lower() == "bearer"
