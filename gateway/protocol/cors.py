"""Cross-origin requests: which web pages may read answers (the Fetch standard's CORS protocol).

In: the configured origins and a request's `Origin`. Out: the headers that a browser needs, on errors too, and
the answer to a preflight. Off unless origins are configured. Tokens travel in `Authorization`, never in
cookies, so no answer allows credentials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.protocol.headers import (
    CAPABILITIES_HEADER,
    FILE_ID_HEADER,
    HINT_STATUS_HEADER,
    PRUNING_HEADER,
    STALE_HEADER,
    VERSION_HEADER,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ANY_ORIGIN = "*"
MAX_AGE_SECONDS = 600
REQUEST_HEADERS = (
    "Authorization",
    "Content-Type",
    CAPABILITIES_HEADER,
    FILE_ID_HEADER,
    "If-Match",
    "If-None-Match",
    "If-Range",
    "Range",
)
RESPONSE_HEADERS = (
    VERSION_HEADER,
    CAPABILITIES_HEADER,
    HINT_STATUS_HEADER,
    PRUNING_HEADER,
    STALE_HEADER,
    FILE_ID_HEADER,
    "Accept-Ranges",
    "Content-Range",
    "ETag",
    "Retry-After",
    "WWW-Authenticate",
)

FieldLines = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Cors:
    """The origins whose pages may read answers."""

    origins: frozenset[str]

    @staticmethod
    def of(origins: Sequence[str]) -> Cors | None:
        """Make it of configured origins; None where there are none."""
        return Cors(frozenset(origin.lower() for origin in origins)) if origins else None

    def allows(self, origin: str | None) -> bool:
        """Return whether pages of an origin may read answers."""
        return origin is not None and (ANY_ORIGIN in self.origins or origin.lower() in self.origins)

    def headers(self, origin: str | None) -> FieldLines:
        """Return the headers of an answer. It varies by origin, also for origins that are not allowed."""
        exposed = ("Access-Control-Expose-Headers", ", ".join(RESPONSE_HEADERS))
        if ANY_ORIGIN in self.origins:
            return () if origin is None else (("Access-Control-Allow-Origin", ANY_ORIGIN), exposed)
        varies = ("Vary", "Origin")
        if origin is None or not self.allows(origin):
            return (varies,)
        return (varies, ("Access-Control-Allow-Origin", origin), exposed)


def preflight_headers(methods: Iterable[str]) -> dict[str, str]:
    """Return the headers of the answer to a preflight, beside those of every answer."""
    return {
        "Access-Control-Allow-Methods": ", ".join(methods),
        "Access-Control-Allow-Headers": ", ".join(REQUEST_HEADERS),
        "Access-Control-Max-Age": str(MAX_AGE_SECONDS),
        "Vary": "Access-Control-Request-Method, Access-Control-Request-Headers",
    }
