"""Records of the audit log: one per request of a recipient or change by an administrator.

A record holds names and numbers, never a token or a URL. Only the record of a temporary credential has a
location.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.encoding import json_line

RECORD_VERSION = "1.0"
WORKER_ENDED = "worker ended"
"""Why a stream ended early whose worker could not record it."""

OK = 200
ANSWERED: Mapping[str, str] = {
    "deltaSharingQueryTable": "deltaSharingQueriedTable",
    "deltaSharingQueryTableChanges": "deltaSharingQueriedTableChanges",
}
"""The action of an answer, by the action of its request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One line of the log: of a request, or without a request's values of a change."""

    at_ms: int
    action: str
    request_id: str = ""
    recipient: str | None = None
    source_address: str | None = None
    user_agent: str | None = None
    status: int | None
    """None for an accepted request whose answer has not started."""
    error_code: str | None = None
    details: Mapping[str, str | int | bool | None]
    result: Mapping[str, str | int | bool | None] = field(default_factory=dict)

    def line(self) -> bytes:
        """Return the record as JSON with a line break."""
        return json_line(self.fields())

    def fields(self) -> dict[str, Any]:
        """Return the record as it is in the log."""
        response = {"statusCode": self.status, "errorCode": self.error_code, "result": dict(self.result)}
        return {
            "version": RECORD_VERSION,
            "timestamp": self.at_ms,
            "serviceName": "deltaSharingGateway",
            "actionName": self.action,
            "requestId": self.request_id,
            "recipientName": self.recipient,
            "sourceIPAddress": self.source_address,
            "userAgent": self.user_agent,
            "requestParams": dict(self.details),
            "response": None if self.status is None else response,
        }


RELOAD = "reloadConfiguration"
"""The action of a reload, by whatever cause."""


def action_record(action: str, actor: str, address: object | None, status: int, *, at_ms: int) -> AuditRecord:
    """Return the record of an administrator's action that changes no recipient and no share."""
    return AuditRecord(
        at_ms=at_ms,
        action=action,
        source_address=None if address is None else str(address),
        status=status,
        details={"actor": actor},
    )


def cut_by_worker(begun: Mapping[str, Any], at_ms: int) -> dict[str, Any]:
    """Return the final record of an answer whose worker ended, from its first record."""
    result = {"complete": False, "outcome": WORKER_ENDED}
    response = {"statusCode": OK, "errorCode": None, "result": result}
    action = ANSWERED.get(begun["actionName"], begun["actionName"])
    return {**begun, "timestamp": at_ms, "actionName": action, "response": response}
