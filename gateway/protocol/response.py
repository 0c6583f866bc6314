"""Fixed parts of responses: content codings and the endStreamAction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gateway.encoding import json_line

ContentCoding = Literal["identity", "gzip", "zstd"]


def end_stream_action(fields: Mapping[str, Any]) -> bytes:
    """Return the last line of an answer, with the fields that have a value."""
    given = {name: value for name, value in fields.items() if value is not None}
    return json_line({"endStreamAction": given})
