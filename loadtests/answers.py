"""Checks an answer while it arrives: counts its lines and adds up the ids of its files.

The sum of the ids (md5 of the path, modulo 2**128) is the digest that `bench/make_log.py` writes beside a
log; it does not depend on order and costs little enough to check a million lines while they arrive.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

MODULUS = 1 << 128
HEADER_LINES = 2

_ID = re.compile(rb'"id":"([0-9a-f]{32})"')


class WrongAnswer(Exception):
    """Raised for an answer that is cut, malformed, or has other files than expected."""


@dataclass(frozen=True)
class Digest:
    """The number of files of an answer and the sum of their ids."""

    files: int
    digest: int

    def check(self, expected: "Digest", what: str) -> None:
        """Raise WrongAnswer unless the digest is the expected one."""
        if self != expected:
            raise WrongAnswer(
                f"{what}: {self.files} files with digest {self.digest:032x}, "
                f"expected {expected.files} with {expected.digest:032x}"
            )


class Reader:
    """Reads an answer in pieces of any size."""

    def __init__(self) -> None:
        self.lines = 0
        self.size = 0
        self._ids = 0
        self._sum = 0
        self._rest = b""
        self.last_line = b""

    def feed(self, piece: bytes) -> None:
        """Read the next piece."""
        self.size += len(piece)
        data = self._rest + piece
        end = data.rfind(b"\n") + 1
        whole, self._rest = data[:end], data[end:]
        if not whole:
            return
        if self.lines < HEADER_LINES:
            # metaData has an id, too.
            whole = self._skip_header(whole)
        found = _ID.findall(whole)
        self._ids += len(found)
        self._sum = (self._sum + sum(int(one, 16) for one in found)) % MODULUS
        self.lines += whole.count(b"\n")
        if whole:
            self.last_line = whole[whole.rfind(b"\n", 0, -1) + 1 :]

    def finish(self) -> Digest:
        """Return the digest. Raise WrongAnswer when a line is cut or is not that of a file."""
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
    reader = Reader()
    for piece in pieces:
        reader.feed(piece)
    return reader.finish()
