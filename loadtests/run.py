"""Runs a gateway with a large table, a mix of users against it, and writes a report with plots.

    python loadtests/run.py                          a million files, 200 users, two minutes, steady
    python loadtests/run.py --shape spike            or ramp, or soak (with --seconds 3600)
    python loadtests/run.py --short                  the form for CI: a small table, few users, seconds
    python loadtests/run.py --workers 2 --report DIRECTORY

Exits with code 1 after a wrong answer or an unexpected error. The report has the pages of locust, samples of
the gateway's memory, CPU and descriptors, and `summary.json`. The highest rate of requests is measured by
`hey`, which Go installs if it is missing; the short form leaves it out.
"""

import argparse
import hashlib
import json
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import generators
import psutil
from baseline import Baseline, measure
from report import write_report
from samples import Sampler

import gateway
from gateway.demo.processes import free_port

HERE = Path(__file__).resolve().parent
CACHE = Path.home() / ".cache" / os.environ.get("XDG_CACHE_HOME", "") / "delta-sharing-gateway" / "loadtests"
PRINTED = (
    "failures",
    "requests",
    "discovery_p99_ms",
    "memory",
    "memory_after_percent",
    "memory_slope_percent_per_hour",
    "ceiling",
)
SETTLE_SECONDS = 5.0
START_SECONDS = 60.0


def main() -> int:
    """Run the load test; return 0 when every answer was right."""
    options = parse()
    options.report.mkdir(parents=True, exist_ok=True)
    table = CACHE / f"{options.adds}-adds"
    expected = make_table(table, options.adds)
    token = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory() as temporary:
        config = write_config(Path(temporary), table, token, free_port())
        with serving(config, options) as (process, url):
            baseline = measure(url, token, table, expected)
            summary = storm(options, process, url, token, baseline)
    summary["machine"] = machine()
    (options.report / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    write_report(options.report, summary)
    print(json.dumps({key: summary[key] for key in PRINTED}))
    print(f"report: {options.report / 'index.html'}")
    return 1 if summary["failures"] or not summary["requests"] else 0


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--adds", type=int, default=1_000_000, help="files of the table")
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--shape", choices=["steady", "spike", "ramp", "soak"], default="steady")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--report", type=Path, default=Path("loadtest-report"))
    parser.add_argument("--short", action="store_true", help="20,000 files, 30 users, 12 seconds")
    options = parser.parse_args()
    if options.short:
        options.adds, options.users, options.seconds = 20_000, 30, 12
    return options


def make_table(directory: Path, adds: int) -> dict[str, Any]:
    """Make the log with `bench/make_log.py`; return its expected files. It is kept for the next run."""
    command = [
        sys.executable,
        str(HERE.parent / "bench" / "make_log.py"),
        str(directory),
        "--adds",
        str(adds),
    ]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def write_config(directory: Path, table: Path, token: str, port: int) -> Path:
    """Write a configuration with one local table and one recipient."""
    config = {
        "version": 1,
        "host": "127.0.0.1",
        "port": port,
        "endpoint": "/delta-sharing",
        "shares": [
            {
                "name": "load",
                "schemas": [
                    {
                        "name": "logs",
                        "tables": [{"name": "events", "location": str(table), "historyShared": True}],
                    }
                ],
            }
        ],
        "gateway": {
            "recipients": [
                {
                    "name": "load",
                    "tokens": [{"sha256": hashlib.sha256(token.encode()).hexdigest()}],
                    "shares": ["load"],
                }
            ],
            "tokenKeys": [{"id": "k1", "secret": secrets.token_hex(32)}],
        },
    }
    path = directory / "share.yaml"
    path.write_text(json.dumps(config))
    return path


@contextmanager
def serving(config: Path, options: argparse.Namespace) -> Iterator[tuple[psutil.Process, str]]:
    """Run the gateway in a separate process until the block ends."""
    port = json.loads(config.read_text())["port"]
    command = [sys.executable, "-P", "-m", "gateway", "serve", "-c", str(config.resolve())]
    if options.workers > 1:
        command += ["--workers", str(options.workers)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(
            [str(Path(gateway.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
        )
    }
    with (options.report / "gateway.log").open("wb") as log:
        # With -P the package of the checkout, whose native module may not be built, is not imported.
        process = subprocess.Popen(command, env=environment, cwd=options.report, stdout=log, stderr=log)
        try:
            wait_ready(f"http://127.0.0.1:{port}/readyz", process)
            yield psutil.Process(process.pid), f"http://127.0.0.1:{port}/delta-sharing"
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    """Return when the gateway is ready."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"the gateway ended with code {process.returncode}; see gateway.log")
        try:
            with urllib.request.urlopen(url, timeout=1) as response:
                if response.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise SystemExit("the gateway was not ready in time")


def storm(
    options: argparse.Namespace, process: psutil.Process, url: str, token: str, baseline: Baseline
) -> dict[str, Any]:
    """Run the load, with samples of the gateway before, during and after."""
    expectations = options.report / "baseline.json"
    baseline.save(expectations)
    load = generators.Load(options.users, options.seconds, options.shape, url, token, options.report)
    hey = None if options.short else generators.find_hey(CACHE / "bin")
    with Sampler(process) as sampler:
        before = sampler.settled(SETTLE_SECONDS)
        started = sampler.samples[-1].second
        ended_well = generators.run_locust(load, expectations)
        ended = sampler.samples[-1].second
        time.sleep(SETTLE_SECONDS)
        after = sampler.settled(SETTLE_SECONDS)
        ceiling = generators.ceiling(url, token, hey) if hey else None
    kinds = generators.kinds(options.report)
    # Memory that is allocated once and kept is no leak, so the first half of the load is left out.
    during = [
        (sample.second, sample.resident_bytes)
        for sample in sampler.samples
        if (started + ended) / 2 < sample.second < ended
    ]
    figures = {
        "failures": sum(kind["failures"] for kind in kinds) or int(not ended_well),
        "discovery_p99_ms": max(
            float(kind["p99_ms"]) for kind in kinds if kind["name"].startswith("discovery")
        ),
        "memory_after_percent": round(100 * after.resident_bytes / before.resident_bytes),
        "memory_slope_percent_per_hour": round(generators.slope_percent_per_hour(during), 1),
    }
    return {
        "options": {key: str(value) for key, value in vars(options).items()},
        "requests": sum(kind["requests"] for kind in kinds),
        **figures,
        "kinds": kinds,
        "memory": {"before_bytes": before.resident_bytes, "after_bytes": after.resident_bytes},
        "descriptors": {"before": before.descriptors, "after": after.descriptors},
        "ceiling": ceiling,
        "samples": [asdict(sample) for sample in sampler.samples],
        "history": generators.history(options.report),
    }


def machine() -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    sys.exit(main())
