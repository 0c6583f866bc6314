"""`delta-gateway explain SHARE.SCHEMA.TABLE --predicate ..`: what each predicate prunes, with examples."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from gateway.catalog.catalog import PROVIDER
from gateway.cli.discovered_state import discovered_state, stored_shares
from gateway.cli.near_names import near_names
from gateway.cli.operations import add_repeated
from gateway.cli.text_table import write_table
from gateway.cli.whole_numbers import whole_number
from gateway.client.table_name import TableName
from gateway.config import load
from gateway.encoding import is_utf_8, json_bytes
from gateway.errors import NotShared
from gateway.governance.named_recipient import named_recipient
from gateway.protocol.queries import Hints
from gateway.report.text import printable
from gateway.tables.native import AnswerOptions, Explanation, Snapshot, StreamSummary
from gateway.tables.open_table import OpenTable
from gateway.tables.runtime import read_whole
from gateway.times import epoch_ms

EXAMPLES = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="SHARE.SCHEMA.TABLE", help="the table")
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="the configuration")
    add_repeated(
        parser, "--predicate", "predicate", "a predicate hint; may be repeated", metavar="SQL", type=_text
    )
    parser.add_argument(
        "--json-predicate", type=_text, metavar="JSON", help="as clients send it in jsonPredicateHints"
    )
    parser.add_argument("--limit", type=whole_number, metavar="N", help="as clients send it in limitHint")
    parser.add_argument("--recipient", metavar="NAME", help="the table as this recipient reads it")
    parser.add_argument("--version", type=whole_number, metavar="N", help="an older version of the table")


def run(arguments: argparse.Namespace) -> int:
    config = load(arguments.config)
    discovered = discovered_state(config, stored_shares(config))
    state = discovered.state
    try:
        wanted = TableName.parse(arguments.table)
    except ValueError as reason:
        raise OSError(str(reason)) from None
    recipient = PROVIDER if arguments.recipient is None else named_recipient(config, arguments.recipient)
    try:
        shared = state.catalog.table(recipient, wanted.share, wanted.schema, wanted.table)
    except NotShared:
        names = [
            table.full_name for granted in state.catalog.shares_of(recipient) for table in granted.tables()
        ]
        whose = "shared" if arguments.recipient is None else f"shared with {arguments.recipient}"
        known = "" if discovered.is_complete else ", as far as a search has found tables"
        raise OSError(
            f"no table {arguments.table} is {whose}{known}{near_names(arguments.table, names)}"
        ) from None
    opened = state.tables.open(shared)
    version = arguments.version
    snapshot = opened.native.snapshot() if version is None else opened.native.snapshot(version=version)
    hints = Hints(tuple(arguments.predicate), arguments.json_predicate, arguments.limit or None)
    rows = []
    for name, single in each_hint(hints):
        summary, _ = scan(opened, snapshot, single)
        problems = snapshot.hint_problems(single.predicates, single.json_predicate)
        rows.append(_row(name, summary, "; ".join(reason for _, reason in problems)))
    summary, lines = scan(opened, snapshot, hints)
    rows.append(_row("all together", summary, ""))
    rule = opened.rule
    explained = snapshot.explain(hints.predicates, hints.json_predicate, rule=rule)
    by_rule = f", files where {rule.text}" if rule is not None else ""
    sys.stdout.write(f"{arguments.table}, version {snapshot.version}{printable(by_rule)}\n")
    write_table(rows)
    if explained.conjuncts:
        sys.stdout.write("each condition by itself\n")
        write_table(conditions(explained))
    for line in lines[:EXAMPLES]:
        add = line["file"]["deltaSingleAction"]["add"]
        values = {"partitionValues": add["partitionValues"], "stats": add.get("stats")}
        sys.stdout.write(f"kept, for example: {json_bytes(values).decode()}\n")
    state.tables.close()
    return 0


def each_hint(hints: Hints) -> Iterator[tuple[str, Hints]]:
    """Each hint alone, with its name."""
    for text in hints.predicates:
        yield text, Hints(predicates=(text,))
    if hints.json_predicate is not None:
        yield hints.json_predicate, Hints(json_predicate=hints.json_predicate)
    if hints.limit is not None:
        yield f"limit {hints.limit}", Hints(limit=hints.limit)


def scan(opened: OpenTable, snapshot: Snapshot, hints: Hints) -> tuple[StreamSummary, list[dict[str, Any]]]:
    """Return the counts of files for hints, and the lines of some files."""
    options = AnswerOptions(
        opened.signers,
        response_format="delta",
        now_ms=epoch_ms(),
        lifetime_seconds=1,
        predicate_hints=hints.predicates,
        json_predicate_hint=hints.json_predicate,
        rule=opened.rule,
    )
    chunks = snapshot.files(options, limit_hint=hints.limit)
    first = read_whole(chunks, keep_bytes=1).splitlines()
    return chunks.summary, [orjson.loads(line) for line in first[2 : 2 + EXAMPLES]]


def conditions(explained: Explanation) -> list[dict[str, object]]:
    """Return the rows of the conditions that must all hold, with the files that each one prunes."""
    return [
        {
            "condition": conjunct.text,
            "columns": ", ".join(conjunct.columns),
            "decided by": conjunct.scope,
            "drops": conjunct.drops,
            "for example": next(iter(conjunct.dropped_examples), ""),
        }
        for conjunct in explained.conjuncts
    ]


def _row(name: str, summary: StreamSummary, reasons: str) -> dict[str, object]:
    return {
        "hint": name,
        "files": summary.pruning.considered,
        "pruned by partition": summary.pruning.pruned_by_partition,
        "by stats": summary.pruning.pruned_by_stats,
        "by limit": summary.pruning.pruned_by_limit,
        "kept": summary.files,
        "ignored because": reasons,
    }


def _text(text: str) -> str:
    """Return a text of UTF-8, as a type of argparse."""
    if not is_utf_8(text):
        raise argparse.ArgumentTypeError("expected UTF-8")
    return text
