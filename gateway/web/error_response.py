"""Error responses: one table from exceptions to (status, errorCode, reason).

In: the exceptions of `gateway.errors`, of the native module and of aiohttp. Out: an `ErrorAnswer`. An
exception without an entry is a 500 whose message holds a request id; its traceback is in the log only.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

from gateway import _native, errors
from gateway.encoding import json_bytes
from gateway.protocol.headers import JSON_CONTENT_TYPE
from gateway.tables.rules import InvalidRule
from gateway.telemetry.request_record import Refusal, RequestRecord
from gateway.web.response import WholeResponse

log = logging.getLogger("gateway.errors")

ErrorCode = Literal[
    "INVALID_PARAMETER_VALUE",
    "MALFORMED_REQUEST",
    "RESOURCE_DOES_NOT_EXIST",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "UNSUPPORTED_OPERATION",
    "RESOURCE_EXHAUSTED",
    "TEMPORARILY_UNAVAILABLE",
    "INTERNAL_ERROR",
]

CHALLENGE = 'Bearer realm="delta-sharing"'
CLIENT_CHALLENGE = 'Basic realm="delta-sharing"'
NOT_STORED: Mapping[str, str] = {"Cache-Control": "no-store", "Pragma": "no-cache"}
"""Headers of answers with tokens, and of their errors."""

STATUS_OF: Mapping[type[BaseException], tuple[int, ErrorCode, Refusal]] = {
    errors.InvalidParameter: (400, "INVALID_PARAMETER_VALUE", "request"),
    errors.MalformedRequest: (400, "MALFORMED_REQUEST", "request"),
    errors.BodyTooLarge: (413, "MALFORMED_REQUEST", "request"),
    errors.InvalidClient: (401, "UNAUTHENTICATED", "client"),
    errors.Unauthenticated: (401, "UNAUTHENTICATED", "unknown token"),
    errors.AddressDenied: (403, "PERMISSION_DENIED", "address"),
    errors.AccessRevoked: (403, "PERMISSION_DENIED", "revoked"),
    InvalidRule: (403, "PERMISSION_DENIED", "rule"),
    errors.PermissionDenied: (403, "PERMISSION_DENIED", "no access"),
    errors.NotShared: (404, "RESOURCE_DOES_NOT_EXIST", "not shared"),
    errors.NotFound: (404, "RESOURCE_DOES_NOT_EXIST", "request"),
    errors.UnsupportedOperation: (400, "UNSUPPORTED_OPERATION", "unsupported"),
    errors.MethodNotAllowed: (405, "UNSUPPORTED_OPERATION", "request"),
    errors.UnsupportedTransferCoding: (501, "UNSUPPORTED_OPERATION", "request"),
    errors.UnsupportedHttpVersion: (505, "UNSUPPORTED_OPERATION", "request"),
    errors.TooManyRequests: (429, "RESOURCE_EXHAUSTED", "limit"),
    errors.Unavailable: (503, "TEMPORARILY_UNAVAILABLE", "unavailable"),
    _native.TableNotFound: (404, "RESOURCE_DOES_NOT_EXIST", "table"),
    _native.VersionNotFound: (400, "INVALID_PARAMETER_VALUE", "request"),
    _native.TimestampOutOfRange: (400, "INVALID_PARAMETER_VALUE", "request"),
    _native.CorruptLog: (500, "INTERNAL_ERROR", "table"),
    _native.Contradiction: (500, "INTERNAL_ERROR", "table"),
    _native.UnsupportedFeature: (400, "UNSUPPORTED_OPERATION", "unsupported"),
    _native.ChangeDataFeedDisabled: (400, "INVALID_PARAMETER_VALUE", "unsupported"),
    _native.IncompleteRemove: (400, "INVALID_PARAMETER_VALUE", "unsupported"),
    _native.RuleRefused: (403, "PERMISSION_DENIED", "rule"),
    _native.ForbiddenPath: (403, "PERMISSION_DENIED", "table"),
    _native.InvalidCursor: (400, "INVALID_PARAMETER_VALUE", "request"),
    _native.FileReplaced: (503, "TEMPORARILY_UNAVAILABLE", "table"),
    _native.StorageDenied: (403, "PERMISSION_DENIED", "storage"),
    _native.StorageRefused: (403, "PERMISSION_DENIED", "storage"),
    _native.StorageUnavailable: (503, "TEMPORARILY_UNAVAILABLE", "storage"),
    _native.Busy: (503, "TEMPORARILY_UNAVAILABLE", "unavailable"),
    _native.TooManySignatures: (400, "UNSUPPORTED_OPERATION", "unsupported"),
    _native.Cancelled: (503, "TEMPORARILY_UNAVAILABLE", "unavailable"),
    _native.DeadlineExceeded: (503, "TEMPORARILY_UNAVAILABLE", "storage"),
    _native.InvalidArgument: (500, "INTERNAL_ERROR", "internal"),
    _native.NativePanic: (500, "INTERNAL_ERROR", "internal"),
    # Of aiohttp: bodies of the admin API.
    web.HTTPRequestEntityTooLarge: (413, "MALFORMED_REQUEST", "request"),
    web.HTTPBadRequest: (400, "MALFORMED_REQUEST", "request"),
}
INTERNAL: tuple[int, ErrorCode, Refusal] = (500, "INTERNAL_ERROR", "internal")
OAUTH_ERRORS: Mapping[int, str] = {
    401: "invalid_client",
    429: "temporarily_unavailable",
    500: "server_error",
    503: "temporarily_unavailable",
}
"""By status (RFC 6749, sections 4.1.2.1 and 5.2); others are `invalid_request`."""
UNAUTHORIZED, SERVER_FAULT = 401, 500
MAY_BE_REPEATED = (429, 503)
CLIENT_CLOSED_REQUEST = 499


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error as a client sees it, in a response or in the last line of a stream."""

    status: int
    error_code: ErrorCode
    message: str
    refusal: Refusal
    """The reason, for operators; clients do not get it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    oauth_error: str | None = None
    """The error code of OAuth, if the status does not determine it."""

    def put_on(self, record: RequestRecord) -> None:
        """Record the error. A failed check of a token or a client is more exact than its 401."""
        record.error_code = self.error_code
        if record.refusal is None or self.status != UNAUTHORIZED:
            record.refusal = self.refusal

    def response(self) -> WholeResponse:
        """The JSON response."""
        body = json_bytes({"errorCode": self.error_code, "message": self.message})
        return WholeResponse(body, {"Content-Type": JSON_CONTENT_TYPE, **self.headers}, status=self.status)

    def oauth_response(self) -> WholeResponse:
        """The JSON response to a token request, with the fields of OAuth and of the protocol."""
        fields = {
            "error": self.oauth_error or OAUTH_ERRORS.get(self.status, "invalid_request"),
            "error_description": self.message,
            "errorCode": self.error_code,
            "message": self.message,
        }
        headers = {"Content-Type": JSON_CONTENT_TYPE, **NOT_STORED, **self.headers}
        return WholeResponse(json_bytes(fields), headers, status=self.status)


def error_answer(error: BaseException, request_id: str) -> ErrorAnswer:
    """Return the answer for any exception. Logs the details that the client must not see."""
    # Of aiohttp: the admin API's router.
    if isinstance(error, web.HTTPNotFound):
        error = errors.NoSuchPath()
    elif isinstance(error, web.HTTPMethodNotAllowed):
        error = errors.MethodNotAllowed(error.method, *sorted(error.allowed_methods))
    status, code, reason = next(
        (STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF), INTERNAL
    )
    detail = getattr(error, "detail", None)
    if detail:
        notes = getattr(error, "__notes__", ())
        log.warning("request %s: %s", request_id, ": ".join((str(error), detail, *notes)))
    if status >= SERVER_FAULT and code == "INTERNAL_ERROR":
        log.error("request %s failed", request_id, exc_info=error)
        cause = f"{error}; " if isinstance(error, _native.CorruptLog) else "internal error; "
        return ErrorAnswer(status, code, f"{cause}quote request id {request_id} to the provider", reason)
    oauth_error = "unsupported_grant_type" if isinstance(error, errors.UnsupportedGrant) else None
    if reason == "unknown token" and not getattr(error, "token_sent", True):
        reason = "no token"
    message = error.reason if isinstance(error, web.HTTPException) else str(error)
    return ErrorAnswer(status, code, message, reason, _headers(status, error), oauth_error)


def has_left(request: web.BaseRequest) -> bool:
    """Return whether the client has closed the connection."""
    return request.transport is None or request.transport.is_closing()


def _headers(status: int, error: BaseException) -> dict[str, str]:
    if isinstance(error, errors.InvalidClient):
        return {"WWW-Authenticate": CLIENT_CHALLENGE}
    if isinstance(error, errors.Unauthenticated):
        return {"WWW-Authenticate": f'{CHALLENGE}, error="invalid_token"' if error.token_sent else CHALLENGE}
    if status in MAY_BE_REPEATED:
        return {"Retry-After": str(getattr(error, "retry_after_seconds", errors.DEFAULT_RETRY_AFTER_SECONDS))}
    if isinstance(error, errors.MethodNotAllowed):
        return {"Allow": error.allow}
    return {}
