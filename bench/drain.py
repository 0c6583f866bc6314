"""Reads one answer to its end over a raw socket and checks it: the client that costs least.

    python bench/drain.py PORT [--digest] [--delta] [--rate BYTES_PER_SECOND] [--body JSON]

Prints what came: lines, bytes, seconds to the first byte and to the last, and with --digest the sum of the
file ids modulo 2**128 (of the parquet scheme: the md5 of the paths), which must be that of `expected.json`.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import time

TOKEN = "a-token-of-the-benches"
PATH = "/delta-sharing/shares/share/schemas/schema/tables/table/query"
TOKEN = "a-token-of-the-benches"
MODULUS = 1 << 128
LINE = b'{"file":{'
# One id can be cut by the border of two reads: so much is carried over.
OVERLAP = 64


def request(body: str, *, delta: bool, path: str = PATH) -> bytes:
    """The bytes of a query; ids are of the parquet scheme in both formats."""
    wanted = "delta" if delta else "parquet"
    headers = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/json",
        f"delta-sharing-capabilities: responseformat={wanted};readerfeatures=deletionvectors",
        "fileidhash: parquet",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*headers, "", body]).encode()


def drain(
    port: int, body: str = "{}", *, delta: bool = False, digest: bool = False, rate: int | None = None
) -> dict:
    """Read an answer. `rate` makes a slow reader."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=300)
    if rate:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    started = time.perf_counter()
    connection.sendall(request(body, delta=delta))
    buffer = bytearray(1 << 20)
    view = memoryview(buffer)
    received = lines = ids = 0
    first = None
    head, carried, border = b"", b"", b""
    while count := connection.recv_into(view):
        first = first or time.perf_counter()
        if received < 4096:
            head += bytes(view[: min(count, 4096)])
        received += count
        lines += buffer.count(LINE, 0, count) + (border + bytes(view[: min(count, len(LINE) - 1)])).count(
            LINE
        )
        border = bytes(view[max(0, count - len(LINE) + 1) : count])
        if digest:
            text = carried + bytes(view[:count])
            found = list(re.finditer(rb'"id":"([0-9a-f]{32})"', text))
            ids += sum(int(match[1], 16) for match in found)
            end = found[-1].end() if found else 0
            carried = text[max(end, len(text) - OVERLAP) :]
        if rate:
            time.sleep(count / rate)
    ended = time.perf_counter()
    connection.close()
    return {
        "status": int(head.split(b" ", 2)[1]),
        "files": lines,
        "bytes": received,
        "first_byte_seconds": (first or ended) - started,
        "seconds": ended - started,
        "digest": f"{ids % MODULUS:032x}" if digest else None,
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Drains one answer.")
    parser.add_argument("port", type=int)
    parser.add_argument("--digest", action="store_true")
    parser.add_argument("--delta", action="store_true")
    parser.add_argument("--rate", type=int)
    parser.add_argument("--body", default="{}")
    arguments = parser.parse_args()
    print(
        json.dumps(
            drain(
                arguments.port,
                arguments.body,
                delta=arguments.delta,
                digest=arguments.digest,
                rate=arguments.rate,
            )
        )
    )


if __name__ == "__main__":
    main()
