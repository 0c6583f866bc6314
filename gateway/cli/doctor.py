"""`delta-gateway doctor PROFILE`: examines a profile and its server, and says who can fix what."""

from __future__ import annotations

import argparse
import sys

import orjson

from gateway.client.table_name import TableName
from gateway.doctor.findings import Finding, Findings, Status
from gateway.doctor.profile import split_reference
from gateway.times import DAY_SECONDS

DEFAULT_TIMEOUT_SECONDS = 30.0
STEP_WIDTH = 14
READING_STEPS = frozenset({"query parquet", "query delta", "credentials"})
"""The steps that show that a table can be read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "profile", metavar="FILE", help="the profile; FILE#share.schema.table examines this table"
    )
    parser.add_argument(
        "--table", metavar="SHARE.SCHEMA.TABLE", help="the table to examine; default: the first one"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=DEFAULT_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="seconds to wait for an answer; default: 30; the run takes at most ten times as long",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def seconds(text: str) -> float:
    """Return a number of seconds above 0, of at most a day. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= DAY_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0 and up to {DAY_SECONDS}")
    return value


def run(arguments: argparse.Namespace) -> int:
    from gateway.doctor.examination import Examination  # noqa: PLC0415 - --help loads no HTTP client

    try:
        path, table = split_reference(arguments.profile)
        if arguments.table is not None:
            table = TableName.parse(arguments.table)
    except ValueError as error:
        raise OSError(str(error)) from None
    findings = Findings() if arguments.json else Findings(_print)
    Examination(path, table, arguments.timeout, findings).run()
    if arguments.json:
        sys.stdout.write(orjson.dumps(findings.document(), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        sys.stdout.write(_summary(findings))
    return 1 if findings.has_failed else 0


def _print(finding: Finding) -> None:
    sys.stdout.write(f"{finding.status:<5} {finding.step:<{STEP_WIDTH}} {finding.message}\n")
    if finding.owner is not None:
        sys.stdout.write(f"{'':<{STEP_WIDTH + 6}} -> {finding.owner}: {finding.advice}\n")
    sys.stdout.flush()


def _summary(findings: Findings) -> str:
    problems = [finding for finding in findings.items if finding.owner is not None]
    owners = ", ".join(dict.fromkeys(str(finding.owner) for finding in problems))
    if findings.has_failed:
        failed = sum(finding.status is Status.FAIL for finding in problems)
        return f"{failed} of {len(findings.items)} steps failed; to fix by: {owners}\n"
    is_read = any(finding.status is Status.OK and finding.step in READING_STEPS for finding in findings.items)
    result = "The share can be read" if is_read else "No table was read"
    warnings = "1 warning" if len(problems) == 1 else f"{len(problems)} warnings"
    return f"{result}, with {warnings}; to fix by: {owners}\n" if problems else f"{result}.\n"
