"""From a bearer token to a Credential and its Recipient: the look-up by SHA-256.

A token is compared by its hash and in constant time; what is stored or configured opens nothing. Absent,
malformed, unknown, expired and revoked tokens get one answer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gateway.access.catalog import EVERY_SHARE, Recipient
from gateway.config.networks import parse_networks
from gateway.errors import Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.config import Config

ANONYMOUS = Recipient("anonymous", frozenset({EVERY_SHARE}))
UNIVERSAL_NAME = "authorization.bearerToken"

# The reference server's token is any text of its configuration, so any text that a header carries may be one.
_BEARER = re.compile(r"bearer[ \t]+([^ \t](?:.*[^ \t])?)[ \t]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Credential:
    """One token's hash and whom it stands for."""

    sha256: bytes = field(repr=False)
    recipient: Recipient
    expires_ms: int | None = None

    def has_expired(self, now_ms: int) -> bool:
        """Whether the token is no longer valid at that time."""
        return self.expires_ms is not None and now_ms >= self.expires_ms


class Credentials(Protocol):
    """Whoever knows tokens."""

    @property
    def anonymous(self) -> Recipient | None:
        """Who comes without any token; None when nobody may."""

    def find(self, sha256: bytes, *, now_ms: int) -> Credential | None:
        """The credential of a token's hash, unless it is unknown or expired at that time."""


class CredentialTable:
    """Credentials in memory, by hash."""

    def __init__(self, credentials: Iterable[Credential], *, anonymous: Recipient | None = None) -> None:
        self.anonymous = anonymous
        self._by_prefix: dict[bytes, list[Credential]] = {}
        for credential in credentials:
            self._by_prefix.setdefault(credential.sha256[:4], []).append(credential)

    @staticmethod
    def of(config: Config) -> CredentialTable:
        """Build the table of a configuration."""
        anonymous = ANONYMOUS if config.gateway.anonymous else None
        return CredentialTable(configured_credentials(config), anonymous=anonymous)

    def find(self, sha256: bytes, *, now_ms: int) -> Credential | None:
        """Look a hash up: found by a short prefix, decided by a comparison in constant time."""
        found: Credential | None = None
        for credential in self._by_prefix.get(sha256[:4], ()):
            if hmac.compare_digest(credential.sha256, sha256):
                found = credential
        if found is None or found.has_expired(now_ms):
            return None
        return found


def configured_credentials(config: Config) -> Iterable[Credential]:
    """Every token that the configuration knows."""
    if config.authorization is not None:
        recipient = Recipient(UNIVERSAL_NAME, frozenset({EVERY_SHARE}))
        for token in _spellings(config.authorization.bearer_token.reveal()):
            yield Credential(hashlib.sha256(token).digest(), recipient)
    for entry in config.gateway.recipients:
        shares = frozenset(share.casefold() for share in entry.shares)
        recipient = Recipient(entry.name, shares, parse_networks(entry.networks))
        for known in entry.tokens:
            expires_ms = int(known.expires.timestamp() * 1000) if known.expires else None
            yield Credential(bytes.fromhex(known.sha256), recipient, expires_ms)


def token_hash(token: str) -> bytes:
    """The SHA-256 by which a token is known. Bytes of a header that are no UTF-8 count as they came."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _spellings(token: str) -> Iterable[bytes]:
    """The bytes that clients send for a token: UTF-8, and ISO 8859-1 from older HTTP libraries."""
    yield token.encode()
    with suppress(UnicodeEncodeError):
        if not token.isascii():
            yield token.encode("latin-1")


def identify(credentials: Credentials, authorization: Sequence[str], *, now_ms: int) -> Credential:
    """Return the credential that the `Authorization` headers of a request have. Raises Unauthenticated.

    Where anyone may come without a token, one that is sent must still be known.
    """
    if not authorization and credentials.anonymous is not None:
        return Credential(b"", credentials.anonymous)
    match = _BEARER.fullmatch(authorization[0]) if len(authorization) == 1 else None
    credential = match and credentials.find(token_hash(match.group(1)), now_ms=now_ms)
    if not credential:
        raise Unauthenticated(token_sent=any(map(_BEARER.fullmatch, authorization)))
    return credential
