"""Content negotiation by `Accept-Encoding` (RFC 9110, 12.5.3)."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Literal

from gateway.config import Compression

if TYPE_CHECKING:
    pass

ContentCoding = Literal["identity", "gzip", "zstd"]
# Best first: zstd costs half of gzip's time and is smaller.
CODINGS: tuple[ContentCoding, ...] = ("zstd", "gzip", "identity")
ALIASES = {"x-gzip": "gzip"}
# Clients send the same header again and again.
REMEMBERED_CODINGS = 256
REMEMBERED_LENGTH = 256
_WEIGHT = re.compile(r"0(?:\.[0-9]*)?|1(?:\.0*)?")


def content_coding(
    accepted: str, remote: str | None, compression: Compression, *, files: int
) -> ContentCoding:
    """Choose the coding of an answer of so many files by the Accept-Encoding header (RFC 9110, 12.5.3)."""
    if not compression.enabled:
        return "identity"
    codings = acceptable_codings(accepted)
    is_spared = compression.skip_loopback and remote is not None and _is_loopback(remote)
    if "identity" in codings and (files < compression.minimum_files or is_spared):
        return "identity"
    # A client that accepts none of ours gets the answer as it is.
    return codings[0] if codings else "identity"


def acceptable_codings(accepted: str) -> tuple[ContentCoding, ...]:
    """The codings that an Accept-Encoding header accepts, best first.

    What its sender names goes before what `*` stands for, and the heavier goes before the lighter. An answer
    that is not coded is acceptable wherever it is not excluded, as the last choice where it is not named.
    """
    remember = _read_codings if len(accepted) <= REMEMBERED_LENGTH else _read_codings.__wrapped__
    return remember(accepted)


@lru_cache(REMEMBERED_CODINGS)
def _read_codings(accepted: str) -> tuple[ContentCoding, ...]:
    weights = _weights(accepted)
    others = weights.get("*")
    named = [coding for coding in CODINGS if weights.get(coding, 0.0) > 0]
    # Sorting is stable: of equal weights ours decides.
    named.sort(key=lambda coding: -weights[coding])
    if others is None:
        return (*named,) if "identity" in weights else (*named, "identity")
    return (*named, *(coding for coding in CODINGS if coding not in weights and others > 0))


def _is_loopback(remote: str) -> bool:
    try:
        return ip_address(remote.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _weights(accepted: str) -> dict[str, float]:
    """Read an Accept-Encoding header: coding to weight. A weight that is none excludes its coding."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        coding, *parameters = (word.strip() for word in part.split(";"))
        if coding:
            given = [word[2:] for word in parameters if word.startswith("q=")]
            weight = given[0] if given else "1"
            weights[ALIASES.get(coding, coding)] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return weights
