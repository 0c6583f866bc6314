"""Error responses: one table from exceptions to (status, errorCode).

In: the exceptions of `gateway.errors`, of the native module and of aiohttp. Out: an `ErrorAnswer`. An
exception without an entry is a 500 whose message holds a request id; its traceback is in the log only.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from aiohttp import web

from gateway import _native
from gateway.encoding import json_bytes
from gateway.errors import (
    DEFAULT_RETRY_AFTER_SECONDS,
    BodyTooLarge,
    InvalidClient,
    InvalidParameter,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    PermissionDenied,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    UnsupportedGrant,
    UnsupportedHttpVersion,
    UnsupportedOperation,
    UnsupportedTransferCoding,
)
from gateway.protocol.headers import JSON_CONTENT_TYPE
from gateway.tables.rules import InvalidRule
from gateway.web.response import WholeResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

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

STATUS_OF: Mapping[type[BaseException], tuple[int, ErrorCode]] = {
    InvalidParameter: (400, "INVALID_PARAMETER_VALUE"),
    MalformedRequest: (400, "MALFORMED_REQUEST"),
    BodyTooLarge: (413, "MALFORMED_REQUEST"),
    Unauthenticated: (401, "UNAUTHENTICATED"),
    PermissionDenied: (403, "PERMISSION_DENIED"),
    NotFound: (404, "RESOURCE_DOES_NOT_EXIST"),
    UnsupportedOperation: (400, "UNSUPPORTED_OPERATION"),
    MethodNotAllowed: (405, "UNSUPPORTED_OPERATION"),
    UnsupportedTransferCoding: (501, "UNSUPPORTED_OPERATION"),
    UnsupportedHttpVersion: (505, "UNSUPPORTED_OPERATION"),
    TooManyRequests: (429, "RESOURCE_EXHAUSTED"),
    Unavailable: (503, "TEMPORARILY_UNAVAILABLE"),
    _native.TableNotFound: (404, "RESOURCE_DOES_NOT_EXIST"),
    _native.VersionNotFound: (400, "INVALID_PARAMETER_VALUE"),
    _native.TimestampOutOfRange: (400, "INVALID_PARAMETER_VALUE"),
    _native.CorruptLog: (500, "INTERNAL_ERROR"),
    _native.Contradiction: (500, "INTERNAL_ERROR"),
    _native.UnsupportedFeature: (400, "UNSUPPORTED_OPERATION"),
    _native.ChangeDataFeedDisabled: (400, "INVALID_PARAMETER_VALUE"),
    _native.IncompleteRemove: (400, "INVALID_PARAMETER_VALUE"),
    _native.RuleRefused: (403, "PERMISSION_DENIED"),
    _native.ForbiddenPath: (403, "PERMISSION_DENIED"),
    _native.InvalidCursor: (400, "INVALID_PARAMETER_VALUE"),
    _native.FileReplaced: (503, "TEMPORARILY_UNAVAILABLE"),
    _native.StorageDenied: (403, "PERMISSION_DENIED"),
    _native.StorageRefused: (403, "PERMISSION_DENIED"),
    _native.StorageUnavailable: (503, "TEMPORARILY_UNAVAILABLE"),
    _native.TooManySignatures: (400, "UNSUPPORTED_OPERATION"),
    _native.Cancelled: (503, "TEMPORARILY_UNAVAILABLE"),
    _native.DeadlineExceeded: (503, "TEMPORARILY_UNAVAILABLE"),
    _native.InvalidArgument: (500, "INTERNAL_ERROR"),
    _native.NativePanic: (500, "INTERNAL_ERROR"),
    # Of aiohttp: the admin API's router, and bodies.
    web.HTTPNotFound: (404, "RESOURCE_DOES_NOT_EXIST"),
    web.HTTPMethodNotAllowed: (405, "UNSUPPORTED_OPERATION"),
    web.HTTPRequestEntityTooLarge: (413, "MALFORMED_REQUEST"),
    web.HTTPBadRequest: (400, "MALFORMED_REQUEST"),
}
INTERNAL: tuple[int, ErrorCode] = (500, "INTERNAL_ERROR")
OAUTH_ERRORS: Mapping[int, str] = {
    401: "invalid_client",
    429: "temporarily_unavailable",
    500: "server_error",
    503: "temporarily_unavailable",
}
"""By status (RFC 6749, sections 4.1.2.1 and 5.2); others are `invalid_request`."""
SERVER_FAULT = 500
CLIENT_CLOSED_REQUEST = 499


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error as a client sees it, in a response or in the last line of a stream."""

    status: int
    error_code: ErrorCode
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)
    oauth_error: str | None = None
    """The error code of OAuth, where the status does not say it."""

    def response(self) -> WholeResponse:
        """The JSON response."""
        body = json_bytes({"errorCode": self.error_code, "message": self.message})
        return WholeResponse(body, {"Content-Type": JSON_CONTENT_TYPE, **self.headers}, status=self.status)

    def oauth_response(self) -> WholeResponse:
        """The JSON response to a token request, with the fields of OAuth beside those of the protocol."""
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
    status, code = next((STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF), INTERNAL)
    detail = getattr(error, "detail", None)
    if detail:
        log.warning("request %s: %s: %s", request_id, error, detail)
    if status >= SERVER_FAULT and code == "INTERNAL_ERROR":
        log.error("request %s failed", request_id, exc_info=error)
        reason = f"{error}; " if isinstance(error, _native.CorruptLog) else "internal error; "
        return ErrorAnswer(status, code, f"{reason}quote request id {request_id} to the provider")
    oauth_error = "unsupported_grant_type" if isinstance(error, UnsupportedGrant) else None
    return ErrorAnswer(status, code, _message(error), _headers(error), oauth_error)


def is_rule_refusal(error: BaseException) -> bool:
    """Return whether the rule of a grant is the reason of an error."""
    return isinstance(error, _native.RuleRefused | InvalidRule)


def has_left(request: web.BaseRequest) -> bool:
    """Return whether the client has closed the connection."""
    return request.transport is None or request.transport.is_closing()


def _message(error: BaseException) -> str:
    if isinstance(error, web.HTTPNotFound):
        return "no such path"
    if isinstance(error, web.HTTPMethodNotAllowed):
        return (
            f"method {error.method} is not allowed here; allowed: {', '.join(sorted(error.allowed_methods))}"
        )
    if isinstance(error, web.HTTPException):
        return error.reason
    return str(error)


def _headers(error: BaseException) -> dict[str, str]:
    if isinstance(error, InvalidClient):
        return {"WWW-Authenticate": CLIENT_CHALLENGE}
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": f'{CHALLENGE}, error="invalid_token"' if error.token_sent else CHALLENGE}
    if isinstance(error, TooManyRequests | Unavailable):
        return {"Retry-After": str(error.retry_after_seconds)}
    if isinstance(
        error,
        _native.FileReplaced | _native.StorageUnavailable | _native.Cancelled | _native.DeadlineExceeded,
    ):
        return {"Retry-After": str(DEFAULT_RETRY_AFTER_SECONDS)}
    if isinstance(error, MethodNotAllowed):
        return {"Allow": error.allow}
    if isinstance(error, web.HTTPMethodNotAllowed):
        return {"Allow": ", ".join(sorted(error.allowed_methods))}
    return {}
