"""`delta-gateway explain SHARE.SCHEMA.TABLE --predicate ..`: what each predicate prunes, with examples."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from gateway.access.catalog import EVERY_SHARE, Recipient
from gateway.cli.text_table import drawn
from gateway.config import load
from gateway.protocol.queries import Hints
from gateway.state import GatewayState
from gateway.tables.native import AnswerOptions, Explanation, Snapshot, StreamSummary
from gateway.tables.open_table import OpenTable
from gateway.tables.runtime import read_whole
from gateway.telemetry.clock import epoch_ms

EXAMPLES = 3
PROVIDER = Recipient("provider", frozenset({EVERY_SHARE}))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("table", metavar="SHARE.SCHEMA.TABLE")
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--predicate", action="append", default=[], metavar="SQL", help="may be given again")
    parser.add_argument("--json-predicate", metavar="JSON", help="as clients send it in jsonPredicateHints")
    parser.add_argument("--limit", type=int, help="as clients send it in limitHint")
    parser.add_argument("--version", type=int, help="an older version")


def run(arguments: argparse.Namespace) -> int:
    """Show what predicates prune, each alone and all together."""
    state = GatewayState.of(load(arguments.config))
    share, schema, table = _names(arguments.table)
    opened = state.tables.open(state.catalog.table(PROVIDER, share, schema, table))
    version = arguments.version
    snapshot = opened.native.snapshot() if version is None else opened.native.snapshot(version=version)
    together = Hints(tuple(arguments.predicate), arguments.json_predicate, arguments.limit or None)
    rows = []
    for name, hints in alone(together):
        summary, _ = scan(opened, snapshot, hints)
        problems = snapshot.hint_problems(hints.predicates, hints.json_predicate)
        rows.append(_row(name, summary, "; ".join(reason for _, reason in problems)))
    summary, lines = scan(opened, snapshot, together)
    rows.append(_row("all together", summary, ""))
    explained = snapshot.explain(together.predicates, together.json_predicate)
    sys.stdout.write(f"{arguments.table}, version {snapshot.version}\n{drawn(rows)}")
    if explained.conjuncts:
        sys.stdout.write(f"each condition by itself\n{drawn(conditions(explained))}")
    for line in lines[:EXAMPLES]:
        add = line["file"]["deltaSingleAction"]["add"]
        kept = {"partitionValues": add["partitionValues"], "stats": add.get("stats")}
        sys.stdout.write(f"kept, for example: {orjson.dumps(kept).decode()}\n")
    state.tables.close()
    return 0


def alone(together: Hints) -> Iterator[tuple[str, Hints]]:
    """Every hint by itself, with its name."""
    for text in together.predicates:
        yield text, Hints(predicates=(text,))
    if together.json_predicate is not None:
        yield together.json_predicate, Hints(json_predicate=together.json_predicate)
    if together.limit is not None:
        yield f"limit {together.limit}", Hints(limit=together.limit)


def scan(opened: OpenTable, snapshot: Snapshot, hints: Hints) -> tuple[StreamSummary, list[dict[str, Any]]]:
    """Count the files that hints keep, and give the lines of some of them."""
    options = AnswerOptions(
        opened.signers,
        response_format="delta",
        now_ms=epoch_ms(),
        lifetime_seconds=1,
        predicate_hints=hints.predicates,
        json_predicate_hint=hints.json_predicate,
    )
    chunks = snapshot.files(options, limit_hint=hints.limit)
    first = read_whole(chunks, keep_bytes=1).splitlines()
    return chunks.summary, [orjson.loads(line) for line in first[2 : 2 + EXAMPLES]]


def conditions(explained: Explanation) -> list[dict[str, object]]:
    """What each of the conditions that must all hold asks about, and what it drops by itself."""
    return [
        {
            "condition": conjunct.text,
            "asks about": ", ".join(conjunct.columns),
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


def _names(text: str) -> tuple[str, str, str]:
    parts = text.split(".")
    if len(parts) < 3:  # noqa: PLR2004 - share, schema, table
        raise OSError(f"'{text}' is no table; accepted: SHARE.SCHEMA.TABLE")
    return ".".join(parts[:-2]), parts[-2], parts[-1]
