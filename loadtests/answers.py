"""Whether an answer is the right one: its lines counted, its file ids summed, as its bytes come in.

The sum of the ids (md5 of the path, modulo 2**128) is the digest that `bench/make_log.py` writes beside a
log; it does not depend on order and costs little enough to check a million lines while they arrive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MODULUS = 1 << 128
HEADER_LINES = 2

_ID = re.compile(rb'"id":"([0-9a-f]{32})"')


class WrongAnswer(Exception):
    """An answer that claims to be whole and is not what it must be."""


@dataclass(frozen=True)
class Digest:
    """What an answer holds."""

    files: int
    digest: int

    def check(self, expected: Digest, what: str) -> None:
        """Raise WrongAnswer unless it is as expected."""
        if self != expected:
            raise WrongAnswer(
                f"{what}: {self.files} files with digest {self.digest:032x}, "
                f"expected {expected.files} with {expected.digest:032x}"
            )


class Reader:
    """Takes an answer's bytes in pieces of any size."""

    def __init__(self) -> None:
        self.lines = 0
        self.size = 0
        self._ids = 0
        self._sum = 0
        self._rest = b""
        self.last_line = b""

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        self.size += len(piece)
        data = self._rest + piece
        end = data.rfind(b"\n") + 1
        whole, self._rest = data[:end], data[end:]
        if not whole:
            return
        if self.lines < HEADER_LINES:
            # metaData has an id of its own.
            whole = self._skip_header(whole)
        found = _ID.findall(whole)
        self._ids += len(found)
        self._sum = (self._sum + sum(int(one, 16) for one in found)) % MODULUS
        self.lines += whole.count(b"\n")
        if whole:
            self.last_line = whole[whole.rfind(b"\n", 0, -1) + 1 :]

    def finish(self) -> Digest:
        """What it held. Raise WrongAnswer when a line is cut or is no file's line."""
        if self._rest:
            raise WrongAnswer("the last line is cut")
        trailer = 1 if b'"endStreamAction"' in self.last_line else 0
        if self.lines != HEADER_LINES + self._ids + trailer:
            raise WrongAnswer(f"{self.lines} lines but {self._ids} files")
        return Digest(self._ids, self._sum)

    def _skip_header(self, whole: bytes) -> bytes:
        while self.lines < HEADER_LINES and whole:
            _, _, whole = whole.partition(b"\n")
            self.lines += 1
        return whole


def read(pieces: Iterable[bytes]) -> Digest:
    """Read a whole answer."""
    reader = Reader()
    for piece in pieces:
        reader.feed(piece)
    return reader.finish()
