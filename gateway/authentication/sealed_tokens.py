"""Sealed tokens that only this server's keys can make and open: for pages, refreshes, access and sign-ins.

In: a purpose, the recipient, a small JSON value and an expiry. Out: base64url text without padding, which
the Spark client puts into URLs unencoded. AES-256-GCM encrypts the value and authenticates purpose and
recipient. The keys are derived from the configured secrets by HKDF; the first one seals and all open, so
keys can be rotated and any replica can continue. All invalid tokens get the same answer.

Layout: format byte 1, four bytes of the key id's SHA-256, twelve random bytes, ciphertext and tag. Random
nonces limit a key to 2^32 tokens.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gateway.config import TokenKey
from gateway.errors import InvalidParameter

Purpose = Literal["list", "page", "refresh", "access", "sign-in"]

FORMAT = b"\x01"
KEY_ID_BYTES = 4
NONCE_BYTES = 12
HEAD_BYTES = len(FORMAT) + KEY_ID_BYTES + NONCE_BYTES
MAX_TOKEN_LENGTH = 8192
MAX_POSITION_LENGTH = 200
"""Of an identity of files and a cursor of the native module: numbers of 32 and 64 bits, and digests."""
SECRET_BYTES = 32
MADE_KEY = "\0made at the start"
"""The id of the key that is made at the start; no configured key can have it."""


class InvalidToken(InvalidParameter):
    """A page or refresh token that is malformed, altered, expired, or of another recipient or query."""

    def __init__(self, purpose: Purpose) -> None:
        name = "refreshToken" if purpose == "refresh" else "pageToken"
        super().__init__(
            f"{name} is not accepted: it is altered, expired, or belongs to another recipient, table or "
            "query; start again without it"
        )


class Sealer:
    """Seals and opens tokens. `repr` shows no key."""

    def __init__(self, keys: Sequence[TokenKey], made: bytes | None = None) -> None:
        """Take the configured keys, and the key `made` at the server's start; None: make one here.

        The first configured key seals; without any, the key made at the start does. That key always opens, so
        that tokens outlive a reload that adds keys.
        """
        self.made = made or os.urandom(SECRET_BYTES)
        secrets = [*((key.id, key.secret.reveal().encode()) for key in keys), (MADE_KEY, self.made)]
        self._secrets = [secret for _, secret in secrets]
        self._ciphers = {_key_id(name): AESGCM(derive(secret, b"token")) for name, secret in secrets}
        self._sealing_id = _key_id(secrets[0][0])

    def derived_keys(self, use: bytes) -> list[bytes]:
        """Return keys for another use, from the same secrets and in the same order."""
        return [derive(secret, use) for secret in self._secrets]

    def seal(
        self,
        purpose: Purpose,
        recipient: str,
        value: dict[str, Any],
        *,
        expires_ms: int,
        padding_bytes: int = 0,
    ) -> str:
        """Return a new token. `padding_bytes`: blanks that hide the length of the value."""
        nonce = os.urandom(NONCE_BYTES)
        head = FORMAT + self._sealing_id + nonce
        plain = orjson.dumps([expires_ms, value]) + b" " * padding_bytes
        sealed = self._ciphers[self._sealing_id].encrypt(nonce, plain, _bound(head, purpose, recipient))
        return base64.urlsafe_b64encode(head + sealed).rstrip(b"=").decode()

    def open(self, purpose: Purpose, recipient: str, token: str, *, now_ms: int) -> dict[str, Any]:
        """Return a token's value. Raises InvalidToken for any invalid token."""
        return self.open_with_expiry(purpose, recipient, token, now_ms=now_ms)[0]

    def open_with_expiry(
        self, purpose: Purpose, recipient: str, token: str, *, now_ms: int
    ) -> tuple[dict[str, Any], int]:
        """As `open`, with the time in milliseconds at which the token expires."""
        raw = _decode(token)
        if raw is None or raw[:1] != FORMAT or len(raw) <= HEAD_BYTES:
            raise InvalidToken(purpose)
        head, sealed = raw[:HEAD_BYTES], raw[HEAD_BYTES:]
        cipher = self._ciphers.get(head[1 : 1 + KEY_ID_BYTES])
        if cipher is None:
            raise InvalidToken(purpose)
        try:
            plain = cipher.decrypt(head[-NONCE_BYTES:], sealed, _bound(head, purpose, recipient))
        except InvalidTag:
            raise InvalidToken(purpose) from None
        expires_ms, value = orjson.loads(plain)
        if now_ms >= expires_ms:
            raise InvalidToken(purpose)
        return value, expires_ms

    def may_have_sealed(self, token: str) -> bool:
        """Return whether a text has the form of a token and the id of a key of this server."""
        raw = _decode(token)
        is_token = raw is not None and raw[:1] == FORMAT and len(raw) > HEAD_BYTES
        return is_token and raw is not None and raw[1 : 1 + KEY_ID_BYTES] in self._ciphers


@dataclass(frozen=True, slots=True)
class Page:
    """The state from which the next page of an answer continues.

    Attributes:
        table: the shared table's id.
        metadata_id: the id in the Delta metadata; it differs when the table is created again.
        identity: the identity of a snapshot or a range, which fixes the order of files.
        versions: the first and the last version in the answer, and the one whose metadata comes first.
        cursor: the native cursor.
        response_format: of the first page.
        digest: of the parameters that choose files.
        expires_ms: when this token and all following ones expire.

    """

    table: str
    metadata_id: str
    identity: str
    versions: list[int]
    cursor: str
    response_format: Literal["parquet", "delta"]
    digest: str
    expires_ms: int

    def seal(self, sealer: Sealer, recipient: str) -> str:
        """Make the page token."""
        # Their digits would tell a recipient with a rule how many files there are, and are before this page.
        padding_bytes = max(0, MAX_POSITION_LENGTH - len(self.identity) - len(self.cursor))
        return _sealed("page", sealer, recipient, asdict(self), padding_bytes)

    @staticmethod
    def open(
        sealer: Sealer, recipient: str, token: str, *, table: str, parameters: object, now_ms: int
    ) -> Page:
        """Open a page token of this recipient, table and query. Raises InvalidToken."""
        value, expires_ms = sealer.open_with_expiry("page", recipient, token, now_ms=now_ms)
        try:
            page = Page(**value, expires_ms=expires_ms)
        except TypeError:
            # A server of another release has sealed it, with other fields.
            raise InvalidToken("page") from None
        if page.table != table or page.digest != digest(parameters):
            raise InvalidToken("page")
        return page

    def continues(self, metadata_id: str, identity: str, response_format: str) -> bool:
        """Return whether an answer is of the same table, order of files and format as the page."""
        return (self.metadata_id, self.identity, self.response_format) == (
            metadata_id,
            identity,
            response_format,
        )


@dataclass(frozen=True, slots=True)
class Refresh:
    """A version whose URLs may be renewed by the recipient who got it.

    A following token expires with this one if the version can be read by it only. The version's commit
    distinguishes it from one that was written after the log was restored to an earlier version.
    """

    table: str
    metadata_id: str
    version: int
    expires_ms: int
    commit: str | None = None

    def seal(self, sealer: Sealer, recipient: str) -> str:
        """Make the refresh token."""
        return _sealed("refresh", sealer, recipient, asdict(self))

    @staticmethod
    def open(sealer: Sealer, recipient: str, token: str, *, table: str, now_ms: int) -> Refresh:
        """Open a refresh token of this recipient and table. Raises InvalidToken."""
        value, expires_ms = sealer.open_with_expiry("refresh", recipient, token, now_ms=now_ms)
        try:
            refresh = Refresh(**value, expires_ms=expires_ms)
        except TypeError:
            raise InvalidToken("refresh") from None
        if refresh.table != table:
            raise InvalidToken("refresh")
        return refresh

    def is_of(self, metadata_id: str, commit: str | None) -> bool:
        """Return whether a version is the token's, as far as its commit is known."""
        is_same_commit = None in {commit, self.commit} or commit == self.commit
        return metadata_id == self.metadata_id and is_same_commit


def token_owner(recipient: str, rule_key: bytes | None) -> str:
    """Return whom a token belongs to: a recipient, and if its grants have conditions, by one rule alone.

    A token that was made under another rule is not accepted.
    """
    return recipient if rule_key is None else f"{recipient}\0{rule_key.hex()}"


def _sealed(
    purpose: Purpose, sealer: Sealer, recipient: str, value: dict[str, Any], padding_bytes: int = 0
) -> str:
    """Seal the fields of a token; its expiry is stored beside the value."""
    expires_ms = value.pop("expires_ms")
    return sealer.seal(purpose, recipient, value, expires_ms=expires_ms, padding_bytes=padding_bytes)


def derive(secret: bytes, use: bytes) -> bytes:
    """Derive a key of 32 bytes for one use of a secret."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"delta-sharing-gateway " + use).derive(secret)


def digest(value: object) -> str:
    """Return a fingerprint of a query's parameters, which binds a token to them."""
    plain = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return base64.urlsafe_b64encode(hashlib.sha256(plain).digest()[:16]).rstrip(b"=").decode()


def _decode(token: str) -> bytes | None:
    """Decode base64url; None for text that is not the canonical encoding."""
    if len(token) > MAX_TOKEN_LENGTH:
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == token else None


def _bound(head: bytes, purpose: Purpose, recipient: str) -> bytes:
    return b"\0".join((head, purpose.encode(), recipient.encode()))


def _key_id(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:KEY_ID_BYTES]
