"""Makes a whole signed answer in this process, without a server: decode, sign, write. Prints what it took."""

import argparse
import json
import select
import time

from gateway import _native

parser = argparse.ArgumentParser()
parser.add_argument("directory")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--cache", type=int, default=0, help="bytes for hot columns, which a first answer fills")
arguments = parser.parse_args()

_native.configure(threads=arguments.threads, cache_bytes=arguments.cache)
table = _native.Table(_native.Storage.local(), arguments.directory)
signer = _native.Signer.s3("bench", region="us-east-1", access_key_id="AKIA", secret_access_key="secret")


def answer() -> dict[str, float]:
    """Drain one; seconds of the clock and of the process."""
    snapshot = table.snapshot()
    snapshot.totals()
    started, cpu_started = time.perf_counter(), time.process_time()
    options = _native.AnswerOptions(
        _native.Signers("s3://bench/table", signer),
        response_format="parquet",
        now_ms=time.time_ns() // 1_000_000,
        lifetime_seconds=900,
    )
    chunks = snapshot.files(options)
    size = 0
    while True:
        chunk = chunks.next_chunk()
        if chunk is not None:
            size += len(chunk)
        elif chunks.done:
            break
        else:
            select.select([chunks.fileno()], [], [])
    return {
        "files": chunks.summary.files,
        "bytes": size,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu_started,
    }


if arguments.cache:
    answer()
    assert table.snapshot().is_in_memory
print(json.dumps(answer()))
