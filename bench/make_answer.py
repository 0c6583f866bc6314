"""Makes a whole signed answer in this process, without a server, and prints its time and CPU.

A second answer, which is not timed, gives the digest of its files.
"""

import argparse
import json
import select
import time
from collections.abc import Iterator

from drain import MODULUS, digest_of

from gateway import _native

parser = argparse.ArgumentParser(description="Makes a signed answer: decodes, signs and writes lines.")
parser.add_argument("directory")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--cache", type=int, default=0, help="bytes for columns, which a first answer fills")
arguments = parser.parse_args()

_native.configure(threads=arguments.threads, cache_bytes=arguments.cache)
table = _native.Table(_native.Storage.local(), arguments.directory)
signer = _native.Signer.s3("bench", region="us-east-1", access_key_id="AKIA", secret_access_key="secret")


def chunks() -> Iterator[_native.Chunk]:
    """The chunks of a whole answer. Each is dropped before the next one, so that its buffer is used again."""
    options = _native.AnswerOptions(
        _native.Signers("s3://bench/table", signer),
        response_format="parquet",
        now_ms=time.time_ns() // 1_000_000,
        lifetime_seconds=900,
    )
    stream = table.snapshot().files(options)
    while True:
        chunk = stream.next_chunk()
        if chunk is not None:
            yield chunk
            del chunk
        elif stream.done:
            break
        else:
            select.select([stream.fileno()], [], [])


def measured() -> dict[str, float]:
    """Return the time of an answer and the CPU of the process."""
    table.snapshot().totals()
    started, cpu_started = time.perf_counter(), time.process_time()
    for _ in chunks():
        pass
    return {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu_started}


if arguments.cache:
    measured()
    assert table.snapshot().is_in_memory
facts = measured()
found = [digest_of(bytes(chunk)) for chunk in chunks()]
digest = sum(int(of_chunk, 16) for _, of_chunk in found) % MODULUS
print(json.dumps({**facts, "files": sum(count for count, _ in found), "digest": f"{digest:032x}"}))
