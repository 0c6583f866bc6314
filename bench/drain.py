"""Reads one answer over a raw socket and computes the digest of its files, at the least cost for the client.

    python bench/drain.py PORT PATH [--token TOKEN] [--delta] [--body JSON] [--hold BYTES]

Prints the status, files, bytes, seconds to the first and to the last byte, and the digest: the sum of the
file ids modulo 2**128. In both formats the ids are those of the parquet format, the MD5 of the path, so the
digest is that of `expected.json` beside the log. An answer of at most `--hold` bytes is read into memory
whose pages exist before the request, and is searched for ids after its time is taken: a client that searches
while it reads takes a core, and the time of an answer would be its own. A longer answer is searched piece by
piece.
"""

import argparse
import json
import mmap
import os
import socket
import time
from dataclasses import asdict, dataclass

MODULUS = 1 << 128
FIELD = b'"id":"'
ID = 32
LEAST_LINE = 200
"""The bytes between two ids at least, which the search skips. A shorter line would change the digest."""
RECEIVE_BYTES = 1 << 20
FEW = 10_000
"""A page of files, whose ids are compared one by one."""
TOKEN_VARIABLE = "BENCH_TOKEN"


@dataclass(frozen=True)
class Answer:
    """One answer as the client saw it."""

    status: int
    files: int
    bytes: int
    first_byte_seconds: float
    seconds: float
    digest: str
    ids: list[str]
    """The ids themselves of an answer with few files."""


class Ids:
    """Collects the file ids of an answer that arrives in pieces."""

    def __init__(self) -> None:
        self.found = bytearray()
        self._from = 0

    def feed(self, buffer: bytearray | mmap.mmap, end: int) -> int:
        """Take the ids of the first `end` bytes; return how many of them belong to the next piece."""
        position = self._from
        while True:
            start = buffer.find(FIELD, position, end)
            if start < 0:
                # A field that begins in the last bytes continues in the next piece.
                rest = min(len(FIELD) - 1, max(end - position, 0))
                self._from = max(position - end, 0)
                return rest
            after = start + len(FIELD) + ID
            if after >= end:
                self._from = 0
                return end - start
            if buffer[after] == ord('"'):
                self.found += buffer[after - ID : after]
                position = start + LEAST_LINE
            else:
                # The table's id is a UUID.
                position = after

    @property
    def count(self) -> int:
        return len(self.found) // ID

    def few(self) -> list[str]:
        """Return the ids of an answer with few files, and an empty list for more."""
        text = self.found.decode()
        return [text[start : start + ID] for start in range(0, len(text), ID)] if self.count <= FEW else []

    def digest(self) -> str:
        """Return the sum of all ids modulo 2**128 in hexadecimal digits."""
        text = self.found.decode()
        total = sum(int(text[start : start + ID], 16) for start in range(0, len(text), ID))
        return f"{total % MODULUS:032x}"


def digest_of(body: bytes) -> tuple[int, str]:
    """Return the number of files in a whole body and their digest."""
    ids = Ids()
    ids.feed(bytearray(body), len(body))
    return ids.count, ids.digest()


def request(path: str, token: str, body: str, *, delta: bool = False) -> bytes:
    """Return the bytes of a query on a new connection."""
    wanted = "delta" if delta else "parquet"
    headers = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"delta-sharing-capabilities: responseformat={wanted};readerfeatures=deletionvectors",
        "fileidhash: parquet",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*headers, "", body]).encode()


def drain(
    port: int, path: str, token: str, body: str = "{}", *, delta: bool = False, hold: int = 0
) -> Answer:
    """Read one answer to its end. `hold`: bytes to read before they are searched, at least one read."""
    size = max(hold, RECEIVE_BYTES)
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
    view = memoryview(buffer)
    ids = Ids()
    received = end = 0
    first = None
    head = b""
    with socket.create_connection(("127.0.0.1", port), timeout=600) as connection:
        started = time.perf_counter()
        connection.sendall(request(path, token, body, delta=delta))
        while count := connection.recv_into(view[end : end + RECEIVE_BYTES]):
            first = first or time.perf_counter()
            head = head or bytes(view[: min(count, 64)])
            received += count
            end += count
            if end == size:
                rest = ids.feed(buffer, end)
                buffer[:rest] = buffer[end - rest : end]
                end = rest
        ended = time.perf_counter()
    ids.feed(buffer, end)
    status = int(head.split(b" ", 2)[1])
    times = ((first or ended) - started, ended - started)
    return Answer(status, ids.count, received, *times, ids.digest(), ids.few())


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Reads one answer and prints its digest.")
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("--token", default=os.environ.get(TOKEN_VARIABLE, ""))
    parser.add_argument("--delta", action="store_true")
    parser.add_argument("--body", default="{}")
    parser.add_argument("--hold", type=int, default=0, metavar="BYTES")
    arguments = parser.parse_args()
    answer = drain(
        arguments.port,
        arguments.path,
        arguments.token,
        arguments.body,
        delta=arguments.delta,
        hold=arguments.hold,
    )
    print(json.dumps(asdict(answer)))


if __name__ == "__main__":
    main()
