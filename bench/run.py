"""Measures the gateway and its peers, checks every answer, and writes the figures.

    python bench/run.py [--large 10000000] [--kernel FILE] [--logs DIRECTORY]
                        [--report FILE] [--markdown FILE] [--json FILE]
    python bench/run.py --short     # small tables, answers checked, no figure judged: for tests

First the default configuration with the log in an object store, then the settings that leave the store out;
see `scenarios.py`. Figures hold for one machine at one time. Ratios are medians over interleaved rounds.
"""

import argparse
import datetime as dt
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import store
from bars import rows
from environment import Bench
from figures import Results
from logs import Logs
from make_log import LogOptions
from markdown import write_table
from measure import machine
from report import write_report
from scenarios import HUNDRED_THOUSAND, SCENARIOS, SETTINGS, Scenario
from servers import bench_gateway

from gateway import _native

ROUNDS = 3
REQUESTS = 6000
SHORT_REQUESTS = 200
SHORT_FILES = 20_000
OTHER_CHECKPOINTS = (("multipart", 0.0), ("v2", 0.1), ("none", 0.0))
NO_STORE = "versitygw is not installed: run `python3 tests/run.py` where there is Go, or give --versitygw"


def main() -> None:
    """Run the command line."""
    arguments = parse()
    if _native.is_debug_build():
        sys.exit("this is a debug build of the native module: its figures would mean nothing")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        program = arguments.versitygw or store.installed()
        if program is None and not arguments.short:
            sys.exit(NO_STORE)
        running = stack.enter_context(store.running(program, Path(folder, "store"))) if program else None
        logs = Logs(arguments.logs or Path(folder, "logs"), running)
        bench = Bench(logs, running, arguments.rounds, REQUESTS, arguments.kernel)
        only = arguments.only or [""]
        scenarios = [
            found for found in SCENARIOS if any(text in f"{found.setting}: {found.name}" for text in only)
        ]
        if arguments.short:
            check(replace(bench, rounds=1, requests=SHORT_REQUESTS, slow_seconds=1), scenarios)
            return
        results = measure(bench, scenarios, arguments.large)
    for row in rows(results):
        if row.figure is not None or not arguments.only:
            print(row)
    if arguments.json:
        results.save(arguments.json)
    if arguments.markdown:
        arguments.markdown.write_text(write_table(results), encoding="utf-8")
    if arguments.report:
        arguments.report.write_text(write_report(results), encoding="utf-8")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Measures the gateway and its peers.")
    parser.add_argument("--large", type=int, default=0, help="files of a further, larger table")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="interleaved rounds of each measurement")
    parser.add_argument("--kernel", type=Path, metavar="FILE", help="the program built from bench/kernel")
    parser.add_argument("--versitygw", type=Path, metavar="FILE", help="the object store's program")
    parser.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keeps the logs for the next run")
    only = "scenarios whose setting or name has it, or another text that is given so"
    parser.add_argument("--only", action="append", metavar="TEXT", help=only)
    parser.add_argument("--report", type=Path, help="writes an HTML page")
    parser.add_argument("--markdown", type=Path, help="writes the tables of the performance page")
    parser.add_argument("--json", type=Path, help="writes all figures")
    parser.add_argument("--short", action="store_true", help="small tables, answers checked only")
    return parser.parse_args()


def measure(bench: Bench, scenarios: Sequence[Scenario], large: int) -> Results:
    """Measure all scenarios, printing figures as they are found."""
    command = shlex.join(["python", *sys.argv])
    results = Results(command, dt.datetime.now(dt.UTC).date().isoformat(), machine())
    for scenario in scenarios:
        for files in scenario.sizes_of(large):
            started = time.monotonic()
            for figure in scenario.figures(bench, files):
                results.figures.append(figure)
                print(figure, flush=True)
            print(f"    {time.monotonic() - started:.0f} s", flush=True)
    return results


def check(bench: Bench, scenarios: Sequence[Scenario]) -> None:
    """Check the answers of all scenarios over small tables, and those of every form of checkpoint."""
    for scenario in scenarios:
        if scenario.writer.startswith("delta-spark"):
            # Spark takes longer to start than all other tables take.
            continue
        if scenario.setting == SETTINGS[-1] or bench.store is not None:
            files = min(SHORT_FILES, *scenario.sizes_of(HUNDRED_THOUSAND))
            found = list(scenario.figures(bench, files))
            print(f"{scenario.setting}: {scenario.name}, {files:,} files, {len(found)} figures", flush=True)
    for checkpoint, vectors in (("classic", 0.0), *OTHER_CHECKPOINTS):
        adds = HUNDRED_THOUSAND if checkpoint == "classic" else SHORT_FILES
        options = LogOptions(adds=adds, checkpoint=checkpoint, deletion_vectors=vectors)
        table = bench.logs.made(f"{adds}-{checkpoint}", options)
        for cache in ("0", "1000000000"):
            with bench_gateway(table, "--cache", cache) as (_, client):
                for delta in 2 * ([True] if vectors else [False, True]):
                    client.whole(table, delta=delta)
    if bench.store is None:
        print(NO_STORE)
    print("answers are right")


if __name__ == "__main__":
    main()
