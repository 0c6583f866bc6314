"""Reads the answers of queries and rejects those that are wrong, short or broken."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from support.gateway_process import PREFIX, TOKEN, table_path

MODULUS = 1 << 128
ID = re.compile(rb'"id":"([0-9a-f]{32})"')
VECTOR = re.compile(rb'"storageType":"i","pathOrInlineDv":"([^"]+)"')
WITH_VECTORS = "responseformat=parquet,delta;readerfeatures=deletionvectors"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "identity"}


def number(text: bytes) -> int:
    """Returns the MD5 hash."""
    return int.from_bytes(hashlib.md5(text).digest())


@dataclass(frozen=True)
class Files:
    """How many files, and the sum of their ids and inline deletion vectors."""

    count: int
    digest: int

    @staticmethod
    def of(paths: Sequence[str], vectors: Sequence[str] = ()) -> "Files":
        """From paths in the log, and the inline deletion vectors of some."""
        return Files(len(paths), sum(number(text.encode()) for text in [*paths, *vectors]) % MODULUS)


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
    vectors = [number(found) for found in VECTOR.findall(body)]
    metadata = head["metaData"].get("deltaMetadata", head["metaData"])
    files = Files(len(ids), sum(ids + vectors) % MODULUS)
    return Whole(version, metadata["id"], files, end.get("nextPageToken"))


async def query(
    session: aiohttp.ClientSession,
    base: str,
    table: str,
    body: dict[str, Any] | None = None,
    *,
    with_end: bool = False,
    with_vectors: bool = False,
) -> Whole:
    """Returns one whole answer. Raises Broken for an error, a cut or an endStreamAction with an error."""
    headers = HEADERS | ({"delta-sharing-capabilities": "includeendstreamaction=true"} if with_end else {})
    if with_vectors:
        capabilities = "includeendstreamaction=true;" * with_end + WITH_VECTORS
        headers |= {"delta-sharing-capabilities": capabilities, "fileidhash": "parquet"}
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
