"""Cross-origin requests: which web pages may read answers (the Fetch standard's CORS protocol).

In: the configured origins and a request's `Origin`. Out: the headers that a browser needs, on errors too, and
the answer to a preflight. Off unless origins are configured. Tokens travel in `Authorization`, never in
cookies, so no answer allows credentials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.protocol import headers

EVERY = "*"
MAX_AGE_SECONDS = 600
MAX_REQUESTED, MAX_REQUESTED_LENGTH = 64, 4096
"""Of the headers that one preflight asks for."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,128}")
REQUEST_HEADERS = (
    "Authorization",
    "Content-Type",
    headers.CAPABILITIES_HEADER,
    headers.FILE_ID_HEADER,
    "If-Match",
    "If-None-Match",
    "If-Range",
    "Range",
)
RESPONSE_HEADERS = (
    headers.VERSION_HEADER,
    headers.CAPABILITIES_HEADER,
    headers.HINT_STATUS_HEADER,
    headers.PRUNING_HEADER,
    headers.STALE_HEADER,
    headers.FILE_ID_HEADER,
    "Accept-Ranges",
    "Content-Range",
    "ETag",
    "Retry-After",
    "WWW-Authenticate",
)

FieldLines = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Cors:
    """The origins whose pages may read answers, and the further headers that they may send."""

    origins: frozenset[str]
    request_headers: tuple[str, ...] = (EVERY,)

    @staticmethod
    def of(origins: Sequence[str], request_headers: Sequence[str] = (EVERY,)) -> Cors | None:
        """Return the rules for configured origins; None without origins."""
        if not origins:
            return None
        return Cors(frozenset(origin.lower() for origin in origins), tuple(request_headers))

    def allows(self, origin: str | None) -> bool:
        """Return whether pages of an origin may read answers."""
        return origin is not None and (EVERY in self.origins or origin.lower() in self.origins)

    def headers(self, origin: str | None) -> FieldLines:
        """Return the headers of an answer. It varies by origin, also for origins that are not allowed."""
        exposed = ("Access-Control-Expose-Headers", ", ".join(RESPONSE_HEADERS))
        if EVERY in self.origins:
            # Without an origin, too: a cache may give a page what was made for no page.
            return (("Access-Control-Allow-Origin", EVERY), exposed)
        varies = ("Vary", "Origin")
        if origin is None or not self.allows(origin):
            return (varies,)
        return (varies, ("Access-Control-Allow-Origin", origin), exposed)

    def preflight_headers(self, methods: Iterable[str], requested: str | None) -> dict[str, str]:
        """Return the headers that the answer to a preflight has beside the headers of every answer.

        `requested`: its `Access-Control-Request-Headers`. Allowed are the headers of the protocol, and of the
        others all, or those that are configured.
        """
        accepted = (*REQUEST_HEADERS, *self.request_headers)
        allowed = {name.lower(): name for name in accepted if name != EVERY}
        if EVERY in self.request_headers:
            names = (requested or "")[:MAX_REQUESTED_LENGTH].split(",")[:MAX_REQUESTED]
            words = (name.strip().lower() for name in names)
            allowed = {word: word for word in words if _TOKEN.fullmatch(word)} | allowed
        return {
            "Access-Control-Allow-Methods": ", ".join(methods),
            "Access-Control-Allow-Headers": ", ".join(allowed.values()),
            "Access-Control-Max-Age": str(MAX_AGE_SECONDS),
            "Vary": "Access-Control-Request-Method, Access-Control-Request-Headers",
        }
