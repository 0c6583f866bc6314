"""The facts of one request, for its log line, metrics, audit record and quota."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, json

from gateway.encoding import one_line
from gateway.protocol.capabilities import ResponseFormat

RefusalReason = Literal["header", "issuer", "keys", "signature", "expired", "audience", "subject"]
"""Checks of tokens of identity providers."""
GatewayTokenRefusal = Literal["forbidden", "client", "expired", "key", "revoked"]
"""Checks of tokens of this server, beside their presence."""
Outcome = Literal["client left", "slow reader", "revoked", "failed", "shutdown"]
"""Why a stream ended early."""
CredentialOutcome = Literal["issued", "cached", "failed"]
"""Of a request for temporary credentials."""
ClientRefusal = Literal["client", "secret", "expired", "address"]
"""Checks of OAuth clients that request a token."""
RequestRefusal = Literal[
    "no token",
    "unknown token",
    "revoked",
    "address",
    "limit",
    "not granted",
    "not shared",
    "no access",
    "rule",
    "table",
    "storage",
    "unsupported",
    "request",
    "unavailable",
    "internal",
]
"""Why a request is refused or fails, beside the checks of tokens and clients."""
Refusal = RefusalReason | GatewayTokenRefusal | ClientRefusal | RequestRefusal

REFUSALS: Mapping[Refusal, str] = {
    "no token": "The request has no bearer token.",
    "unknown token": "The token is unknown: mistyped, of another server, or revoked before the last start.",
    "expired": "The token or secret has ended. Issue a new one.",
    "forbidden": "Bearer tokens are forbidden to the recipient, which uses an OAuth client.",
    "client": "The OAuth client is unknown, or the secret of the access token has ended.",
    "secret": "The secret of the OAuth client is wrong.",
    "key": "Another key sealed the token: gateway.tokenKeys keep tokens over a restart.",
    "header": "The head of the identity provider's token is not accepted.",
    "issuer": "The issuer of the token is not configured.",
    "keys": "The issuer has no such public key, or its keys cannot be fetched.",
    "signature": "The signature of the token is not valid.",
    "audience": "No policy has the audience of the token.",
    "subject": "No policy, or more than one, accepts the subject of the token.",
    "revoked": "The token was replaced or revoked, or the access ended while the answer was under way.",
    "address": "The client's address is in none of the recipient's networks.",
    "limit": "The recipient reached one of its limits.",
    "not granted": "The share, schema, table or volume exists and is not granted to the recipient.",
    "not shared": "There is no share, schema, table or volume of this name.",
    "no access": "The table or volume does not offer this kind of access to the recipient.",
    "rule": "The table does not decide the condition of the recipient's grant.",
    "table": "The table's log is absent, damaged or contradicts itself.",
    "storage": "The storage denies access or does not answer.",
    "unsupported": "The client or the server lacks a feature that the answer needs.",
    "request": "The request itself is not valid.",
    "unavailable": "The server is busy, is shutting down or cannot read its database.",
    "internal": "A defect of the server; the log has the request id.",
}
"""What each refusal means, for operators."""


class IssuedCredential(Struct, frozen=True):
    """A temporary credential, for the audit log only: its location is not for other logs."""

    location: str
    expires_ms: int
    key_id: str


class RequestRecord(Struct, omit_defaults=True, dict=True):
    """Facts of a request; None where a fact does not apply. The names are the keys of the log line.

    Attributes:
        table, volume: the full name of the requested table or volume.
        stale: True when the answer is from a cached snapshot because the storage is down.
        version, ending_version: of the answer; the latter for a range.
        format: the response format.
        files_from: where the files of a snapshot are listed from.
        ignored_hints: predicates that prune nothing, with the reason; empty when all prune.
        considered, pruned_by_partition, pruned_by_stats, pruned_by_limit, returned: counts of files.
        file_bytes: the sizes of the returned files.
        outcome: why a stream ended early.
        credential: outcome of a request for temporary credentials.
        refusal: why the request was refused or failed.
        error_code: of the protocol, for a request that failed.

    """

    table: str | None = None
    volume: str | None = None
    stale: bool | None = None
    version: int | None = None
    ending_version: int | None = None
    format: ResponseFormat | None = None
    files_from: Literal["memory", "log"] | None = None
    ignored_hints: Sequence[str] | None = None
    considered: int | None = None
    pruned_by_partition: int | None = None
    pruned_by_stats: int | None = None
    pruned_by_limit: int | None = None
    returned: int | None = None
    file_bytes: int | None = None
    outcome: Outcome | None = None
    credential: CredentialOutcome | None = None
    refusal: Refusal | None = None
    error_code: str | None = None

    def members(self) -> str:
        """Return the facts that apply, as further members of a JSON object. Nothing changes them after that.

        Requests with one cached answer share its record. A copy has its own members.
        """
        known: dict[str, str] = self.__dict__
        if not known:
            members = one_line(_json.encode(self))[1:-1].decode()
            known["known_members"] = f",{members}" if members else ""
        return known["known_members"]


_json = json.Encoder()
