"""Measures the plan of a read of a table with millions of files.

    python bench/spark_plan.py --files 2000000 --columns 10

A stand-in for a server, in a process of its own, sends the listing page by page: lines as the gateway sends
them in the delta format, with a signed URL and, with `--statistics`, the statistics of up to 32 columns. The
planner runs in a new process. Prints one JSON object: the planner's time, CPU, and memory at its peak, of
which `memory_before_mb` was there before; and the CPU of the stand-in, which takes a core from the planner
where there are few.
"""

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from measure import peak_mb

PAGE = 20_000
_NUMBER = b"#page##"
_WITH_STATISTICS = 32
"""Columns of which writers state bounds by default."""


def main() -> None:
    """Run the command line, or one side of the measurement in a process that it starts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--statistics", action="store_true")
    parser.add_argument("--side", choices=["server", "planner"], help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side == "server":
        serve(arguments)
    elif arguments.side == "planner":
        print(json.dumps(plan(arguments.url)))
    else:
        print(json.dumps(run(arguments), indent=1))


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Start both sides; return the figures."""
    words = ["--files", str(arguments.files), "--columns", str(arguments.columns)]
    words += ["--statistics"] if arguments.statistics else []
    command = [sys.executable, __file__, *words, "--side"]
    server = subprocess.Popen([*command, "server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    done = subprocess.run([*command, "planner", "--url", url], check=True, stdout=subprocess.PIPE, text=True)
    figures = json.loads(done.stdout)
    server.stdin.close()
    stand_in = json.loads(server.stdout.read())
    server.wait()
    return {"files": arguments.files, "columns": arguments.columns, **figures, **stand_in}


def plan(url: str) -> dict[str, Any]:
    """Plan the read. Raises AssertionError for a plan without all files."""
    from gateway.spark.read.options import ReadOptions  # noqa: PLC0415 - the stand-in does without
    from gateway.spark.read.planning import plan_snapshot  # noqa: PLC0415
    from gateway.spark.read.reading import PagePartition, SharePartition  # noqa: PLC0415

    profile = json.dumps({"shareCredentialsVersion": 1, "endpoint": url, "bearerToken": "t"})
    options = ReadOptions.parse({"profile": profile, "path": "s.d.t"})
    before, started, cpu = peak_mb(), time.perf_counter(), time.process_time()
    head = options.client().head()
    partitions = plan_snapshot(options, head)
    seconds, spent = time.perf_counter() - started, time.process_time() - cpu
    planned = sum(
        len(one.tasks) if isinstance(one, SharePartition) else one.last - one.first
        for one in partitions
        if isinstance(one, SharePartition | PagePartition)
    )
    assert planned == head.num_files, (planned, head.num_files)
    return {
        "partitions": len(partitions),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(spent, 2),
        "memory_mb": peak_mb(),
        "memory_before_mb": before,
    }


def serve(arguments: argparse.Namespace) -> None:
    """Serve the listing until the input ends, then print what it took."""
    pages = arguments.files // PAGE
    assert pages * PAGE == arguments.files, f"files come in pages of {PAGE}"
    head, template = head_lines(arguments), page_template(arguments)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send([head, b'{"endStreamAction": {}}\n'])

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number = int(asked.get("pageToken") or 0)
            end = {"nextPageToken": str(number + 1)} if number + 1 < pages else {}
            last = json.dumps({"endStreamAction": end}).encode() + b"\n"
            self._send([head, template.replace(_NUMBER, b"%07d" % number), last])

        def _send(self, parts: list[bytes]) -> None:
            self.send_response(200)
            self.send_header("Delta-Table-Version", "1")
            self.send_header("Delta-Sharing-Capabilities", "responseformat=delta;includeendstreamaction=true")
            self.send_header("Content-Length", str(sum(map(len, parts))))
            self.end_headers()
            for part in parts:
                self.wfile.write(part)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    serve_until_the_end(server)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"stand_in_cpu_seconds": round(used.ru_utime + used.ru_stime, 2)}))


def serve_until_the_end(server: HTTPServer) -> None:
    """Serve until the standard input is closed."""
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    sys.stdin.read()


def head_lines(arguments: argparse.Namespace) -> bytes:
    """Return the protocol and the metadata."""
    fields = [
        {"name": f"column_{number}", "type": "long", "nullable": True, "metadata": {}}
        for number in range(arguments.columns)
    ]
    metadata = {
        "id": "00000000-0000-0000-0000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
    }
    lines = (
        {"protocol": {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 2}}},
        {"metaData": {"deltaMetadata": metadata, "size": arguments.files << 20, "numFiles": arguments.files}},
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def page_template(arguments: argparse.Namespace) -> bytes:
    """Return the lines of a page, in which the number of the page is left open."""
    return b"".join(_text(_line(arguments, number)).encode() + b"\n" for number in range(PAGE))


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _line(arguments: argparse.Namespace, number: int) -> dict[str, Any]:
    name = f"part-{number:05}-{_NUMBER.decode()}-1f2e-4d3c-8b7a-9c8d7e6f5a4b-c000.snappy.parquet"
    url = (
        f"https://bucket.s3.eu-central-1.amazonaws.com/tables/events/{name}?X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAXXXXXXXXXXXXXXXX%2F20261127%2Feu-central-1%2Fs3%2Faws4_request"
        f"&X-Amz-Date=20261127T000000Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Signature={number:064x}"
    )
    add: dict[str, Any] = {
        "path": url,
        "partitionValues": {},
        "size": 1 << 20,
        "modificationTime": 1_790_000_000_000,
        "dataChange": True,
    }
    if arguments.statistics:
        names = [f"column_{one}" for one in range(min(arguments.columns, _WITH_STATISTICS))]
        bounds = {
            key: {name: number + one for one, name in enumerate(names)} for key in ("minValues", "maxValues")
        }
        add["stats"] = _text({"numRecords": 1000, **bounds, "nullCount": dict.fromkeys(names, 0)})
    return {
        "file": {
            "id": f"{number:025x}{_NUMBER.decode()}",
            "expirationTimestamp": 1_890_000_000_000,
            "deltaSingleAction": {"add": add},
        }
    }


if __name__ == "__main__":
    main()
