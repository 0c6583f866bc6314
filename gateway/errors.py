"""Exceptions whose text clients may read.

GatewayError              its text is shown to clients
├── InvalidParameter      a parameter outside of what is accepted
│   └── UnsupportedGrant  a token request by another grant
├── MalformedRequest      a body that cannot be read
│   └── BodyTooLarge
├── Unauthenticated       no valid token
│   └── InvalidClient     a token request without a known client and its secret
├── PermissionDenied
│   ├── AddressDenied     outside of the recipient's networks
│   └── AccessRevoked     while the answer was under way
├── NotFound
│   ├── NotShared         absent or not granted: one answer
│   └── NoSuchPath
├── UnsupportedOperation  a format or feature
│   └── MethodNotAllowed  with the methods that are
├── UnsupportedHttpVersion
├── UnsupportedTransferCoding
├── TooManyRequests       with the seconds to wait
└── Unavailable           with the seconds to wait

Imports nothing: `web.error_response` maps each exception to its status and error code.
"""

from __future__ import annotations

DEFAULT_RETRY_AFTER_SECONDS = 2


class GatewayError(Exception):
    """Base of errors whose text is shown to clients. It never mentions storage."""


class InvalidParameter(GatewayError):
    """A parameter that is not accepted."""


class UnsupportedGrant(InvalidParameter):
    """A token request by another grant than client credentials."""

    def __init__(self) -> None:
        super().__init__("grant_type: client_credentials is the only one here")


class MalformedRequest(GatewayError):
    """A body that cannot be read."""


class BodyTooLarge(MalformedRequest):
    """A body over the limit."""


class UnsupportedHttpVersion(GatewayError):
    """The request is in another version of HTTP than 1.1 and 1.0."""


class UnsupportedTransferCoding(GatewayError):
    """The body has another transfer coding than chunked."""


class Unauthenticated(GatewayError):
    """No token, or an invalid one (`token_sent`)."""

    def __init__(self, message: str = "", *, token_sent: bool = False) -> None:
        advice = (
            "the bearer token is unknown, expired or revoked: ask the provider for a new profile"
            if token_sent
            else "a valid bearer token is needed: Authorization: Bearer <token>"
        )
        super().__init__(message or advice)
        self.token_sent = token_sent


class InvalidClient(Unauthenticated):
    """A token request whose client is unknown, has another secret, or an expired one: one answer for all."""

    def __init__(self) -> None:
        super().__init__("the client is unknown, or its secret is missing, wrong or expired")


class PermissionDenied(GatewayError):
    """The recipient is known and access is denied."""


class AddressDenied(PermissionDenied):
    """The client's address is in none of the recipient's networks."""

    def __init__(self) -> None:
        super().__init__("this address is not on the recipient's allow-list")


class AccessRevoked(PermissionDenied):
    """A token, a recipient or a grant ended while an answer was under way."""

    def __init__(self) -> None:
        super().__init__("the access was revoked while the answer was under way")


class NotFound(GatewayError):
    """Absent, or as if it were."""


class NotShared(NotFound):
    """A share, schema, table or volume that is absent or not granted: one answer."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"no such {kind}, or it is not shared with you")


class NoSuchPath(NotFound):
    """A path without a route."""

    def __init__(self, hint: str = "") -> None:
        super().__init__(f"no such path{hint}")


class UnsupportedOperation(GatewayError):
    """A response format or reader feature that the client or the server lacks."""


class MethodNotAllowed(UnsupportedOperation):
    """A method that the path does not support."""

    def __init__(self, method: str, *allowed: str) -> None:
        self.allow = ", ".join(allowed)
        super().__init__(f"method {method} is not allowed here; allowed: {self.allow}")


class TooManyRequests(GatewayError):
    """Over a recipient's limits."""

    def __init__(self, message: str, *, retry_after_seconds: int = DEFAULT_RETRY_AFTER_SECONDS) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(GatewayError):
    """The server or a storage cannot answer for now."""

    def __init__(self, message: str, *, retry_after_seconds: int = DEFAULT_RETRY_AFTER_SECONDS) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class StartFailed(Exception):
    """Raised when a worker ends with `exit_code` before it serves for the first time."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"a worker ended with code {exit_code} before it was ready")
        self.exit_code = exit_code
