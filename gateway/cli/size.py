"""`delta-gateway size -c FILE`: the CPU and memory that the tables of a configuration need.

Opens every table, reads the lines of some of its files, and computes by the measured figures of `sizing`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import orjson

from gateway.access.catalog import SharedTable
from gateway.cli import sizing
from gateway.cli.discovered_state import discovered_state
from gateway.cli.process_counts import process_count
from gateway.cli.sizing import Load, Need, TableSize
from gateway.cli.storage_errors import explain_error
from gateway.cli.text_table import text_table
from gateway.config import Config, load
from gateway.errors import GatewayError
from gateway.state import GatewayState
from gateway.tables.native import AnswerOptions, LogError
from gateway.tables.runtime import read_whole

SAMPLED_FILES = 1000
LIFETIME_SECONDS = 1
UNITS = ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="the configuration")
    parser.add_argument(
        "--requests-per-day",
        type=_positive,
        default=10_000,
        metavar="N",
        help="queries of all tables together; default 10000",
    )
    parser.add_argument(
        "--busiest-hour",
        type=_percent,
        default=0.2,
        metavar="PERCENT",
        help="part of the day's queries in the busiest hour; default 20",
    )
    parser.add_argument(
        "--selected",
        type=_percent,
        default=1.0,
        metavar="PERCENT",
        help="part of a table's files that predicates leave; default 100",
    )
    parser.add_argument(
        "--client-rate",
        type=_positive,
        default=20,
        metavar="MB",
        help="megabytes a second that a client reads; default 20",
    )
    parser.add_argument("--replicas", type=process_count, default=2, metavar="N", help="servers; default 2")
    parser.add_argument(
        "--workers", type=process_count, default=1, metavar="N", help="processes of each; default 1"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    config = load(arguments.config, needs_readers=False)
    problems: list[str] = []
    tables = list(measure(discovered_state(config).state, problems))
    expected = expected_load(arguments, config)
    if tables:
        needed = sizing.need(tables, expected)
        rows = [row(table, expected, hot=needed.columns_fit) for table in tables]
        sys.stdout.write(f"{text_table(rows)}{report(needed, expected, config)}")
    else:
        sys.stdout.write("No table is shared.\n" if not problems else "")
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    return 1 if problems else 0


def expected_load(arguments: argparse.Namespace, config: Config) -> Load:
    """Return the load of the command line on the servers of a configuration."""
    gateway = config.gateway
    return Load(
        requests_per_day=arguments.requests_per_day,
        busiest_hour=arguments.busiest_hour,
        selected=arguments.selected,
        client_bytes_per_second=arguments.client_rate * 1e6,
        replicas=arguments.replicas,
        workers=arguments.workers,
        cache_bytes=gateway.cache.memory_bytes,
        has_cache_directory=gateway.cache.directory is not None,
        stream_bytes=gateway.limits.stream_bytes,
        max_staleness_seconds=gateway.max_staleness_seconds,
        compressed=gateway.compression.enabled,
    )


# Tables


def measure(state: GatewayState, problems: list[str]) -> Iterator[TableSize]:
    """Iterate over the sizes of all tables; tables that cannot be read are added to `problems`."""
    try:
        for table in state.catalog.tables():
            try:
                yield measure_table(state, table)
            except LogError as error:
                reason = " ".join(explain_error(table.location.kind, error).split())
                problems.append(f"{table.full_name} cannot be read: {reason}")
            except (GatewayError, OSError) as error:
                problems.append(f"{table.full_name} cannot be read: {error}")
    finally:
        state.tables.close()


def measure_table(state: GatewayState, table: SharedTable) -> TableSize:
    """Return the size of a table, with the means of some of its files. Raises LogError, GatewayError."""
    opened = state.tables.open(table)
    snapshot = opened.snapshot()
    files, _ = snapshot.totals()
    options = AnswerOptions(
        opened.signers,
        response_format="delta",
        now_ms=state.now_ms(),
        lifetime_seconds=LIFETIME_SECONDS,
        max_files=SAMPLED_FILES,
    )
    sampled = line_bytes = own_bytes = 0
    for line in read_whole(snapshot.files(options)).splitlines(keepends=True):
        value = orjson.loads(line)
        if "file" in value:
            add = value["file"]["deltaSingleAction"]["add"]
            sampled += 1
            line_bytes += len(line)
            own_bytes += path_bytes(add["path"], table) + len((add.get("stats") or "").encode())
    count = max(sampled, 1)
    return TableSize(
        table.full_name, files, own_bytes / count, line_bytes / count, table.location.kind == "file"
    )


def path_bytes(url: str, table: SharedTable) -> int:
    """Return the length of a file's path as the log has it, from its URL."""
    path = unquote(urlsplit(url).path)
    before = "/files/" if table.location.kind == "file" else f"/{table.location.key}/"
    _, found, relative = path.partition(before)
    if found and table.location.kind == "file":
        relative = relative.partition("/")[2]
    return len((relative or path).encode())


# Report


def row(table: TableSize, expected: Load, *, hot: bool) -> dict[str, object]:
    """Return the row of a table."""
    seconds = sizing.answer_seconds(table, expected, hot=hot)
    return {
        "table": table.name,
        "files": table.files,
        "bytes a line": round(table.line_bytes),
        "columns in memory": in_bytes(table.column_bytes),
        "answer": in_bytes(sizing.sent_bytes(table, expected)),
        "CPU of an answer": f"{seconds * 1000:,.1f} ms",
    }


def report(needed: Need, expected: Load, config: Config) -> str:
    """Return the need of all servers and of each replica."""
    away = ", with one replica away" if expected.replicas > 1 else ""
    workers = "1 worker" if expected.workers == 1 else f"{expected.workers} workers"
    text = f"""
{expected.requests_per_day:,.0f} queries a day, {expected.busiest_hour:.0%} of them in the busiest hour \
({expected.requests_per_second:,.2f} a second), each for {expected.selected:.0%} of a table's files:
  CPU in the busiest hour  {needed.cores:,.2f} cores
  answers under way        {needed.streams:,}
  network                  {in_bytes(needed.network_bytes_per_second)} a second
  columns of all tables    {in_bytes(needed.column_bytes)}

Each of {expected.replicas} replicas with {workers}{away}:
  CPU                      {cores(needed.replica_cores)}
  memory                   {in_bytes(needed.replica_bytes)}
"""
    if config.gateway.cache.directory is not None:
        text += f"  cache directory          {in_bytes(needed.column_bytes)}\n"
    if not needed.columns_fit:
        other = ", or name gateway.cache.directory, which workers share" if expected.workers > 1 else ""
        text += (
            f"\nThe columns do not fit in gateway.cache.memoryBytes, {in_bytes(expected.cache_bytes)}: "
            "answers are counted as read from the log.\nFor answers from memory set it to "
            f"{int(needed.column_bytes * expected.workers)}{other}.\n"
        )
    return text


def cores(number: float) -> str:
    """Return a number of cores with its noun."""
    return "1 core" if number == 1 else f"{number:g} cores"


def in_bytes(number: float) -> str:
    """Return a number of bytes in its unit."""
    for size, unit in UNITS:
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number:,.0f} bytes"


# Arguments


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < 1e12:  # noqa: PLR2004 - beyond every load
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return number


def _percent(text: str) -> float:
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = 0
    if not 0 < number <= 100:  # noqa: PLR2004 - percent
        raise argparse.ArgumentTypeError(f"'{text}' is not a percentage; accepted: above 0 and up to 100")
    return number / 100
