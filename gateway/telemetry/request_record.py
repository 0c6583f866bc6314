"""The facts of one request, for its log line, metrics, audit record and quota."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.protocol.capabilities import ResponseFormat

RefusalReason = Literal["header", "issuer", "keys", "signature", "expired", "audience", "subject"]
REFUSAL_REASONS: tuple[RefusalReason, ...] = get_args(RefusalReason)
"""Checks of tokens of identity providers."""
GatewayTokenRefusal = Literal["forbidden", "client", "expired", "key"]
GATEWAY_TOKEN_REFUSALS: tuple[GatewayTokenRefusal, ...] = get_args(GatewayTokenRefusal)
"""Checks of tokens of this server, beside their presence."""
Outcome = Literal["client left", "slow reader", "revoked", "failed", "shutdown"]
"""Why a stream ended early."""
ClientRefusal = Literal["client", "secret", "expired", "address"]
"""Checks of OAuth clients that request a token."""


class IssuedCredential(Struct, frozen=True):
    """A temporary credential, for the audit log only: its location is not for other logs."""

    location: str
    expires_ms: int
    key_id: str


class RequestRecord(Struct):
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
        refusal: the check that a token or a client failed.
        rule_refused: True when the rule of the grant cannot be applied to the table.
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
    credential: Literal["issued", "cached", "failed"] | None = None
    refusal: RefusalReason | GatewayTokenRefusal | ClientRefusal | None = None
    rule_refused: bool | None = None
    error_code: str | None = None
    issued: IssuedCredential | None = None
    """The credential of the answer. No fact: its location is not for the log."""
    _known: dict[str, Any] | None = None

    def copy(self) -> RequestRecord:
        """Return an equal record that can be changed."""
        return RequestRecord(*_values(self))

    def known(self) -> dict[str, Any]:
        """Return the facts that apply, by name, at the end of the request; they do not change after it.

        Repeated answers share one record, whose facts are collected once.
        """
        if self._known is None:
            facts = zip(FACTS, _values(self), strict=True)
            self._known = {name: value for name, value in facts if value is not None}
        return self._known


FACTS = tuple(name for name in RequestRecord.__struct_fields__ if name not in {"issued", "_known"})
"""The names of all facts."""
_values = attrgetter(*FACTS)
