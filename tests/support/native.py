"""Reads answers straight from the native module, without HTTP."""

import json
import select
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

BASE_URL = "http://files.test/table"
KEY = b"k" * 32
NOW_MS = 1_800_000_000_000
LIFETIME_SECONDS = 3600

Line = dict[str, Any]


def native() -> Any:
    """The module; without it the test is skipped."""
    return pytest.importorskip(
        "gateway._native", reason="the native module is not built", exc_type=ImportError
    )


def table(root: Path) -> Any:
    """A table in a local directory."""
    return native().Table(native().Storage.local(), str(root))


def lines(
    root: Path, source: Any, response_format: str, page: dict[str, Any] | None = None, **arguments: Any
) -> tuple[list[Line], Any]:
    """Every line of the answer of a snapshot or a range of the table at `root`, and the summary."""
    options = native().AnswerOptions(
        native().Signers(str(root), native().Signer.local(BASE_URL, key=KEY)),
        response_format=response_format,
        now_ms=NOW_MS,
        lifetime_seconds=LIFETIME_SECONDS,
        **(page or {}),
    )
    chunks = source.files(options, **arguments)
    body = drained(chunks)
    assert body.endswith(b"\n")
    return [json.loads(line) for line in body.decode().removesuffix("\n").split("\n")], chunks.summary


def drained(chunks: Any) -> bytes:
    """The whole body, awaited as an event loop would."""
    body = bytearray()
    while True:
        chunk = chunks.next_chunk()
        if chunk is not None:
            body += chunk
        elif chunks.done:
            return bytes(body) + chunks.finish(b"")
        else:
            assert select.select([chunks.fileno()], [], [], 60)[0], "the stream stands still"


def object_key(url: str) -> str:
    """The key below the table's root that a URL opens."""
    path = urlsplit(url).path
    prefix = urlsplit(BASE_URL).path + "/"
    assert path.startswith(prefix)
    return unquote(path.removeprefix(prefix))
