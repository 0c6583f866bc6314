"""Reads of tables' logs by the native module, as a command makes them outside of a server.

In: an answer in the making, or the environment. Out: the files of the answer, or the settings of S3.
"""

import json
import select
from collections.abc import Iterator, Mapping
from typing import Any


def answered_chunks(answer: Any) -> Iterator[bytes]:
    """Yield the chunks of an answer of the native module, without an event loop."""
    while True:
        chunk = answer.next_chunk()
        if chunk is not None:
            yield bytes(chunk)
        elif answer.done:
            return
        else:
            select.select([answer.fileno()], [], [], 1.0)


def answered_files(answer: Any) -> Iterator[dict[str, Any]]:
    """Yield the files of an answer of the native module."""
    lines = (json.loads(line) for chunk in answered_chunks(answer) for line in chunk.splitlines())
    return (line["file"] for line in lines if "file" in line)


def s3_settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the region and the address of S3 by the variables that other engines take as well."""
    endpoint = environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    return {"region": region, "endpoint": endpoint, "path_style": endpoint is not None}
