"""Lists ranges of versions with more files than a driver keeps, and lists parts of them again in tasks.

In: the lines of a range, in any order. Out: numbers and a mark of each version; in a task the files of some
versions, which have that mark. A page of a range may have files of any version, so tasks ask for versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from zlib import crc32

from gateway.client.actions import DataFile, FileKind, UnsupportedTable
from gateway.client.files import Origin, StaleListing
from gateway.client.pages import IDENTITY, ShareClient, without_statistics
from gateway.spark.read.tasks import OPEN_COST_BYTES

_VERSION = re.compile(rb'"version":\s*(\d+)')
_SIZE = re.compile(rb'"size":\s*(\d+)')
_REMOVES = re.compile(rb'"remove":\s*\{')
_NO_CHANGE = re.compile(rb'"dataChange":\s*false')
MARKS = 1 << 64


@dataclass
class VersionOutline:
    """What is kept of the files of a version. `removes`: whether files with changed rows remove them."""

    files: int = 0
    cost: int = 0
    mark: int = 0
    removes: set[bool] = field(default_factory=set)


def add_outlines(outlines: dict[int, VersionOutline], lines: Iterable[bytes]) -> None:
    """Add the files of some lines to their versions. Raises UnsupportedTable for a file without a version."""
    for line in map(_short, lines):
        mark = _mark(line)
        if not mark:
            continue
        version, size = _VERSION.search(line), _SIZE.search(line)
        if version is None:
            raise UnsupportedTable("the server's change files have no version")
        outline = outlines.setdefault(int(version[1]), VersionOutline())
        outline.files += 1
        outline.cost += OPEN_COST_BYTES + (int(size[1]) if size else 0)
        outline.mark = (outline.mark + mark) % MARKS
        if _NO_CHANGE.search(line) is None:
            outline.removes.add(_REMOVES.search(line) is not None)


def range_again(origin: Origin, mark: int, bucket: int, buckets: int) -> list[DataFile]:
    """Return the files of a bucket of the versions that the origin's query is of. Raises StaleListing."""
    marks, files, stated = 0, list[DataFile](), set[int | None]()
    last = origin.query.parameters["endingVersion"]
    for page in ShareClient(origin.profile, origin.table).raw_pages(origin.query):
        outlines: dict[int, VersionOutline] = {}
        add_outlines(outlines, page.lines)
        marks += sum(outline.mark for version, outline in outlines.items() if version <= last)
        for file in page.parsed():
            if (file.version or 0) > last:
                continue
            if file.kind is FileKind.CDC:
                stated.add(file.version)
            if crc32(file.id.encode()) % buckets == bucket:
                files.append(file)
    if marks % MARKS != mark:
        raise StaleListing("the server no longer lists the files of a part of this range: read it again")
    # A version's change files may all be in other buckets.
    return [file for file in files if file.kind is FileKind.CDC or file.version not in stated]


def _short(line: bytes) -> bytes:
    return b"\n".join(without_statistics(line))


def _mark(line: bytes) -> int:
    """Return what tells a file from others; 0 for a line that is no file."""
    identity = IDENTITY.findall(line)
    removes = b"-" if _REMOVES.search(line) else b"+"
    hashed = blake2b(b"\n".join([removes, *identity]), digest_size=8)
    return int.from_bytes(hashed.digest()) if identity else 0
