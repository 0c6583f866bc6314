"""Reads of tables' logs by the native module, as a command makes them outside of a server.

In: an answer in the making, or the environment. Out: the files of the answer, or the settings of S3.
"""

import json
import select
from collections.abc import Iterator, Mapping
from typing import Any


def answered_files(chunks: Any) -> Iterator[dict[str, Any]]:
    """Yield the files of an answer of the native module, without an event loop."""
    while True:
        chunk = chunks.next_chunk()
        if chunk is not None:
            files = (json.loads(line).get("file") for line in bytes(chunk).splitlines())
            yield from (file for file in files if file is not None)
        elif chunks.done:
            return
        else:
            select.select([chunks.fileno()], [], [], 1.0)


def s3_settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the region and the address of S3 by the variables that other engines take as well."""
    endpoint = environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    return {"region": region, "endpoint": endpoint, "path_style": endpoint is not None}
