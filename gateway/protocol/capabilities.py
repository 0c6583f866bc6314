"""The `delta-sharing-capabilities` and `fileidhash` headers.

In: header values. Out: `Capabilities`, which negotiate the response format of a table. Unknown capabilities
are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gateway.errors import InvalidParameter, UnsupportedOperation
from gateway.protocol.client_features import reading_advice
from gateway.protocol.headers import CAPABILITIES_HEADER, FILE_ID_HEADER

ResponseFormat = Literal["parquet", "delta"]
FORMATS: tuple[ResponseFormat, ...] = ("parquet", "delta")
# Clients repeat the same header. Parsed words take a multiple of its length.
CACHED_HEADERS = 256
CACHED_HEADER_LENGTH = 512
MAX_HEADER_LENGTH = 8190
"""Of one header field: the words of a hundred fields would take seconds and megabytes."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities that a client announces.

    `formats` is empty when it announces none; `reader_features` are in lower case.
    """

    formats: tuple[ResponseFormat, ...] = ()
    reader_features: frozenset[str] = frozenset()
    include_end_stream_action: bool = False

    @staticmethod
    def parse(header: str | None) -> Capabilities:
        """Parse the capabilities header. Unknown keys and additional unknown formats are ignored.

        Raises InvalidParameter for a header without a known format, or of more than `MAX_HEADER_LENGTH`.
        """
        if header is None or len(header) <= CACHED_HEADER_LENGTH:
            return _capabilities(header)
        if len(header) > MAX_HEADER_LENGTH:
            raise InvalidParameter(f"{CAPABILITIES_HEADER} has at most {MAX_HEADER_LENGTH} characters")
        return _capabilities.__wrapped__(header)

    def negotiate(self, *, needs_delta_format: bool, client_reader_features: Sequence[str]) -> ResponseFormat:
        """Return the response format for a table. Raises UnsupportedOperation."""
        formats = self.formats or ("parquet",)
        if not needs_delta_format:
            return formats[0]
        missing = [f for f in client_reader_features if f.lower() not in self.reader_features]
        if "delta" in formats and not missing:
            return "delta"
        features = ",".join(feature.lower() for feature in client_reader_features)
        also = f";readerfeatures={features}" if features else ""
        needs = (
            f"needs reader features that were not announced: {', '.join(missing)}"
            if "delta" in formats
            else "can only be read in the delta response format"
        )
        raise UnsupportedOperation(
            f"the table {needs}; read it by {reading_advice(client_reader_features)}, or by a client that "
            f"sends {CAPABILITIES_HEADER}: responseformat=delta{also}"
        )


@lru_cache(CACHED_HEADERS)
def _capabilities(header: str | None) -> Capabilities:
    words: dict[str, list[str]] = {}
    for part in (header or "").lower().split(";"):
        key, _, values = part.partition("=")
        words.setdefault(key.strip(), []).extend(v.strip() for v in values.split(",") if v.strip())
    requested = words.get("responseformat", [])
    formats = tuple(word for word in FORMATS if word in requested)
    if requested and not formats:
        raise InvalidParameter(f"{CAPABILITIES_HEADER}: responseformat is one of {', '.join(FORMATS)}")
    return Capabilities(
        formats=formats,
        reader_features=frozenset(words.get("readerfeatures", [])),
        include_end_stream_action=set(words.get("includeendstreamaction", [])) == {"true"},
    )


def file_id_scheme(header: str | None) -> ResponseFormat | None:
    """Parse the `fileidhash` header."""
    if header is None:
        return None
    scheme = header.strip().lower()
    for known in FORMATS:
        if scheme == known:
            return known
    raise InvalidParameter(f"{FILE_ID_HEADER} is one of {', '.join(FORMATS)}")


def capabilities_header(response_format: ResponseFormat, *, end_stream_action: bool) -> str:
    """Return the capabilities header of an answer."""
    also = ";includeendstreamaction=true" if end_stream_action else ""
    return f"responseformat={response_format}{also}"
