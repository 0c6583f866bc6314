"""Names and fixed parts of responses: headers, content type, the endStreamAction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import orjson

ContentCoding = Literal["identity", "gzip", "zstd"]

VERSION_HEADER = "Delta-Table-Version"
HINT_STATUS_HEADER = "delta-sharing-hint-status"
NDJSON_CONTENT_TYPE = "application/x-ndjson; charset=utf-8"


def end_stream_action(fields: Mapping[str, Any]) -> bytes:
    """Return the last line of an answer, with the fields that have a value."""
    given = {name: value for name, value in fields.items() if value is not None}
    return orjson.dumps({"endStreamAction": given}) + b"\n"
