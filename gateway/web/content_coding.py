"""Content negotiation by `Accept-Encoding` (RFC 9110, 12.5.3)."""

from __future__ import annotations

import re
from functools import lru_cache

from gateway.config import Compression
from gateway.config.networks import is_loopback
from gateway.protocol.response import ContentCoding

# By how well clients read them. zstd costs half of gzip's time: clients give it a higher weight.
CODINGS: tuple[ContentCoding, ...] = ("gzip", "zstd", "identity")
ALIASES = {"x-gzip": "gzip"}
# Clients repeat the same header.
CACHED_HEADERS = 256
CACHED_HEADER_LENGTH = 256
MAX_HEADER_LENGTH = 8190
"""Of one header field. The codings of a hundred such fields would block the event loop for a second."""

_WEIGHT = re.compile(r"0(?:\.[0-9]*)?|1(?:\.0*)?")


def content_codings(
    accepted: str, remote: str | None, compression: Compression
) -> tuple[ContentCoding, ContentCoding]:
    """Choose codings by an Accept-Encoding header: for fewer files than are worth one, and for others."""
    if not compression.enabled:
        return "identity", "identity"
    codings = acceptable_codings(accepted)
    # A client that accepts no supported coding gets the answer without one.
    best = codings[0] if codings else "identity"
    if "identity" not in codings:
        return best, best
    is_skipped = compression.skip_loopback and remote is not None and is_loopback(remote)
    return "identity", "identity" if is_skipped else best


def acceptable_codings(accepted: str) -> tuple[ContentCoding, ...]:
    """Return the codings that an Accept-Encoding header accepts, best first.

    Named codings come before those that `*` stands for, and higher weights before lower ones. `identity` is
    acceptable unless it is excluded; where it is not named, it comes last. A header of more than
    `MAX_HEADER_LENGTH` counts as none.
    """
    if len(accepted) > MAX_HEADER_LENGTH:
        accepted = ""
    read = _read_codings if len(accepted) <= CACHED_HEADER_LENGTH else _read_codings.__wrapped__
    return read(accepted)


@lru_cache(CACHED_HEADERS)
def _read_codings(accepted: str) -> tuple[ContentCoding, ...]:
    weights = _weights(accepted)
    unnamed_weight = weights.get("*")
    named = [coding for coding in CODINGS if weights.get(coding, 0.0) > 0]
    # Sorting is stable: the order of CODINGS decides between equal weights.
    named.sort(key=lambda coding: -weights[coding])
    if unnamed_weight is None:
        return (*named,) if "identity" in weights else (*named, "identity")
    return (*named, *(coding for coding in CODINGS if coding not in weights and unnamed_weight > 0))


def _weights(accepted: str) -> dict[str, float]:
    """Parse an Accept-Encoding header into weights by coding. An invalid weight excludes its coding."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        coding, *parameters = (word.strip() for word in part.split(";"))
        if coding:
            given = [word[2:] for word in parameters if word.startswith("q=")]
            weight = given[0] if given else "1"
            weights[ALIASES.get(coding, coding)] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return weights
