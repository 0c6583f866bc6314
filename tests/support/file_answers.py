"""Reads the answers of queries and rejects those that are wrong, short or broken."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

import aiohttp

from support.gateway_process import PREFIX, TOKEN, table_path

MODULUS = 1 << 128
ID = re.compile(rb'"id":"([0-9a-f]{32})"')
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "identity"}


@dataclass(frozen=True)
class Files:
    """How many files, and the sum of their ids."""

    count: int
    digest: int

    @staticmethod
    def of(paths: list[str]) -> Files:
        """From paths in the log."""
        ids = [int.from_bytes(hashlib.md5(path.encode()).digest()) for path in paths]
        return Files(len(ids), sum(ids) % MODULUS)


class Broken(Exception):
    """Raised for an answer that its reader can see to be incomplete."""


@dataclass(frozen=True)
class Whole:
    """A complete answer."""

    version: int
    table_id: str
    files: Files
    next_page_token: str | None


def parse(body: bytes, version: int, *, with_end: bool) -> Whole:
    """Parses an answer as a client does. Raises Broken where a client would fail."""
    lines = body.splitlines()
    end: dict[str, Any] = {}
    if with_end:
        last = json.loads(lines.pop())
        if "endStreamAction" not in last:
            raise Broken("no endStreamAction")
        end = last["endStreamAction"]
        if "errorMessage" in end:
            raise Broken(end["errorMessage"])
    head = json.loads(lines[0]) | json.loads(lines[1])
    assert [*head] == ["protocol", "metaData"]
    # By a pattern: parsing every line as JSON would be most of the work of these tests.
    ids = [int(ID.search(line).group(1), 16) for line in lines[2:]]
    return Whole(
        version, head["metaData"]["id"], Files(len(ids), sum(ids) % MODULUS), end.get("nextPageToken")
    )


async def query(
    session: aiohttp.ClientSession,
    base: str,
    table: str,
    body: dict[str, Any] | None = None,
    *,
    with_end: bool = False,
) -> Whole:
    """Returns one whole answer. Raises Broken for an error, a cut or an endStreamAction with an error."""
    headers = HEADERS | ({"delta-sharing-capabilities": "includeendstreamaction=true"} if with_end else {})
    url = f"{base}{PREFIX}{table_path(table)}/query"
    try:
        async with session.post(url, json=body or {}, headers=headers) as response:
            content = await response.read()
            if response.status != 200:
                assert set(json.loads(content)) == {"errorCode", "message"}
                raise Broken(f"{response.status} {content.decode()}")
            return parse(content, int(response.headers["Delta-Table-Version"]), with_end=with_end)
    except aiohttp.ClientError as error:
        raise Broken(type(error).__name__) from None
