"""The sections of recipients, with their tokens, clients and grants, and the reference server's one token."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from gateway.config.checks import check_hash, check_networks, check_properties
from gateway.config.errors import Invalid
from gateway.config.oidc import PolicyEntry
from gateway.config.operation import RecipientLimits, setting
from gateway.config.secret import Secret
from gateway.times import DAY_SECONDS, HOUR_SECONDS

EVERY_SHARE = "*"
MAX_CLIENT_ID_LENGTH = 64
CLIENT_ID = re.compile(rf"[A-Za-z0-9._~-]{{1,{MAX_CLIENT_ID_LENGTH}}}")
"""Characters that are the same with and without encoding for a form."""

_NOT_IN_A_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Authorization:
    """The reference server's single token: a recipient with a grant for every share.

    Attributes:
        bearer_token: the token; any text that an HTTP header can carry.

    """

    bearer_token: Secret

    def __post_init__(self) -> None:
        token = self.bearer_token.reveal()
        if token != token.strip(" \t") or _NOT_IN_A_HEADER.search(token):
            raise Invalid(
                "bearer_token",
                "no client can send it in a header: expected text without control characters and without "
                "blanks at its ends",
            )


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """A token of a recipient, stored as its hash.

    Attributes:
        sha256: SHA-256 of the token in hexadecimal digits, as `delta-gateway token` prints it.
        expires: ISO 8601 time after which the token is refused. Without it the token does not expire.

    """

    REFUSES_UNKNOWN_KEYS: ClassVar[bool] = True

    sha256: str
    expires: datetime | None = setting(None, protects=True)

    def __post_init__(self) -> None:
        check_hash("sha256", self.sha256)


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """An OAuth client of a recipient, which gets access tokens at the server's token endpoint.

    Attributes:
        id: name of the client in its token requests: letters, digits, `.`, `_`, `~` and `-`.
        secrets: secrets of the client, stored as hashes; several are valid at the same time during a
            rotation.

    """

    REFUSES_UNKNOWN_KEYS: ClassVar[bool] = True

    id: str
    secrets: tuple[TokenEntry, ...] = ()

    def __post_init__(self) -> None:
        if not CLIENT_ID.fullmatch(self.id):
            raise Invalid(
                "id", f"expected 1 to {MAX_CLIENT_ID_LENGTH} letters, digits, '.', '_', '~' and '-'"
            )


@dataclass(frozen=True, slots=True)
class OAuth:
    """Access tokens that clients of recipients get at `{endpoint}/oauth/token`.

    Attributes:
        token_lifetime_seconds: lifetime of an access token, at most the remaining life of the client's
            secret. The known clients of Delta Sharing request a new token when less than 600 seconds are
            left.

    """

    token_lifetime_seconds: int = setting(HOUR_SECONDS, minimum=60, maximum=DAY_SECONDS)


@dataclass(frozen=True, slots=True)
class GrantEntry:
    """A grant of a recipient. A text in its place grants the share of that name.

    A table with several grants has the files of all of them. Conditions are described in
    [Recipients](recipients.md#rules).

    Attributes:
        share: name of the granted share; `'*'` grants every share.
        schema: name of a schema. Without it every schema of the share is granted.
        table: name of a table of the schema. Without it every table is granted.
        condition: SQL condition over partition columns, such as `region = recipient.region`. Only files for
            which it is true are granted. Without it all files are.

    """

    TEXT_FIELD: ClassVar[str] = "share"
    REFUSES_UNKNOWN_KEYS: ClassVar[bool] = True

    share: str
    schema: str | None = setting(None, protects=True)
    table: str | None = setting(None, protects=True)
    condition: str | None = setting(None, protects=True)

    def __post_init__(self) -> None:
        if self.table is not None and self.schema is None:
            raise Invalid("table", "is in a schema; give `schema`")

    @property
    def full_name(self) -> str:
        """`share`, `share.schema` or `share.schema.table`."""
        return ".".join(name for name in (self.share, self.schema, self.table) if name is not None)

    def covers(self, share: str, schema: str, table: str) -> bool:
        """Return whether the grant is for a table, with or without a condition."""
        is_in_share = self.share == EVERY_SHARE or self.share.casefold() == share.casefold()
        inner = ((self.schema, schema), (self.table, table))
        return is_in_share and all(
            granted is None or granted.casefold() == name.casefold() for granted, name in inner
        )


@dataclass(frozen=True, slots=True)
class RecipientEntry:
    """A recipient with its tokens and grants.

    Attributes:
        name: name of the recipient in logs, metrics and the audit log.
        tokens: tokens of the recipient; several are valid at the same time during a rotation.
        shares: grants: names of shares, `'*'` for every share, or maps with the keys below.
        properties: texts for conditions of grants, by name: `recipient.region` in a condition is the text
            `region`. At most 50, with names of at most 255 characters and texts of at most 1,000.
        oidc: tokens of identity providers that are the recipient's.
        clients: OAuth clients of the recipient.
        forbid_bearer_tokens: refuses `tokens`, so that only access tokens of `clients` and of identity
            providers are accepted.
        networks: IP addresses and networks that requests may come from. An empty list allows every address.
        limits: limits of this recipient in place of `gateway.limits.recipient`, with the same keys.

    """

    REFUSES_UNKNOWN_KEYS: ClassVar[bool] = True

    name: str
    tokens: tuple[TokenEntry, ...] = ()
    shares: tuple[GrantEntry, ...] = ()
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    oidc: tuple[PolicyEntry, ...] = ()
    clients: tuple[ClientEntry, ...] = ()
    forbid_bearer_tokens: bool = setting(False, protects=True)
    networks: tuple[str, ...] = setting((), protects=True)
    limits: RecipientLimits | None = setting(None, protects=True)

    def __post_init__(self) -> None:
        check_networks("networks", self.networks)
        check_properties(self.properties)
        for name, text in self.properties.items():
            if not text:
                # Compared with `<>` it would grant more than any other text.
                raise Invalid("properties", f"has no text for '{name}'")
