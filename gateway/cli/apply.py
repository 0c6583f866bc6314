"""`delta-gateway apply FILE`: brings shares and recipients of the database to the state of a file.

In: a file of `delta-gateway export`, or one with `shares` alone. Out: the plan, and its steps, all in one
transaction. Applied again, the file changes nothing. What it does not have is removed only by `--remove`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, Unpack

from gateway.catalog.stored_shares import StoredShare
from gateway.cli.apply_recipients import RecipientStep, make, plan_recipients
from gateway.cli.share_documents import share_of
from gateway.cli.stored import actor, on_database, warn_of_names
from gateway.config import Config
from gateway.config.errors import shown_key
from gateway.config.sections import RECIPIENTS_DATABASE
from gateway.config.yaml_loader import read_document
from gateway.database.errors import DatabaseMissing
from gateway.database.migration import check_not_taken_over
from gateway.governance.audited_database import Opening, open_database, open_share_database
from gateway.governance.recipient_store import RecipientDatabase
from gateway.governance.share_plan import Step, plan
from gateway.governance.share_records import ShareError
from gateway.governance.share_store import CheckedSteps, ShareDatabase
from gateway.report.text import escaped
from gateway.telemetry.audit import AuditLog
from gateway.times import epoch_ms

SIGNS = {"add": "+", "change": "~", "remove": "-"}
KEYS = frozenset({"shares", "recipients"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a file of `delta-gateway export`")
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="the configuration")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, and change nothing")
    parser.add_argument(
        "--remove",
        action="store_true",
        help="also remove shares, schemas, tables, volumes, grants, policies and properties not in the file",
    )


def run(arguments: argparse.Namespace) -> int:
    def apply(database: ShareDatabase, config: Config, audit: AuditLog | None) -> None:
        shares, wanted = read(arguments.file)
        position, stored = database.stored()
        steps = database.checked(plan(stored, shares, removes=arguments.remove), position, stored)
        recipients = open_database(config, actor(), now_ms=epoch_ms, audit=audit, beside=database)
        changes = [*plan_recipients(recipients.read_all(), wanted, removes=arguments.remove)]
        _print(steps.steps, changes)
        if not arguments.dry_run:
            _make(database, steps, recipients, changes)

    if not arguments.dry_run:
        return on_database(arguments, "apply", open_share_database, apply, reads=False, creates=True)
    with tempfile.TemporaryDirectory() as directory:
        open_it = partial(_planned, Path(directory) / RECIPIENTS_DATABASE)
        return on_database(arguments, "apply", open_it, apply, reads=True)


def _planned(empty: Path, config: Config, actor: str, **options: Unpack[Opening]) -> ShareDatabase:
    """Open the database, or what a new one would begin with: the file that it takes over, or nothing."""
    try:
        return open_share_database(config, actor, **options)
    except DatabaseMissing:
        source = config.database_source
        if source is not None:
            check_not_taken_over(source)
        gateway = replace(config.gateway, database=None, recipients_database=source or empty)
        options |= {"create": source is None, "read_only": source is not None}
        return open_share_database(replace(config, gateway=gateway), actor, **options)


def _print(steps: Sequence[Step], changes: Sequence[RecipientStep]) -> None:
    for step in steps:
        sys.stdout.write(f"{SIGNS[step.verb]} share {escaped(step.name)}\n")
        for line in step.lines:
            sys.stdout.write(f"    {escaped(line)}\n")
        names = [] if step.share is None else [step.name]
        for schema in () if step.share is None else step.share.schemas:
            names += [schema.name, *(table.name for table in schema.tables)]
        warn_of_names("apply", names)
    for change in changes:
        sys.stdout.write(f"{escaped(change.line)}\n")
    if not steps and not changes:
        sys.stdout.write("Nothing differs.\n")


def read(file: Path) -> tuple[list[StoredShare], list[Any]]:
    """Return the shares and the recipients of a file. Raises ShareError."""
    try:
        document = read_document(file)
    except OSError as error:
        raise ShareError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ShareError(str(error)) from None
    if not isinstance(document, Mapping) or not all(isinstance(document.get(key, []), list) for key in KEYS):
        raise ShareError(f"{file}: expected a map with the keys `shares` and `recipients`, lists")
    unknown = sorted(str(key) for key in document.keys() - KEYS)
    if unknown:
        raise ShareError(f"{file}: unknown key {shown_key(unknown[0])}; accepted: {', '.join(sorted(KEYS))}")
    if not _is_json(document, {}):
        raise ShareError(
            f"{file}: a value is a date, NaN, binary, a set, or in itself, or a key is no text; a text needs "
            "quotes"
        )
    shares = [share_of(_map(file, share)) for share in document.get("shares", [])]
    names = [share.key for share in shares]
    if len({*names}) < len(names):
        raise ShareError(f"{file}: a share is listed twice (names are case-insensitive)")
    return shares, document.get("recipients", [])


def _is_json(value: object, known: dict[int, bool]) -> bool:
    """Return whether JSON has a value. `known` has what was said of lists and maps, which aliases repeat."""
    if not isinstance(value, list | dict):
        return value is None or isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))
    if id(value) not in known:
        known[id(value)] = False
        keys, parts = ([], value) if isinstance(value, list) else ([*value], [*value.values()])
        has_texts = all(isinstance(key, str) for key in keys)
        known[id(value)] = has_texts and all(_is_json(part, known) for part in parts)
    return known[id(value)]


def _map(file: Path, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ShareError(f"{file}: a share: expected a map of keys")
    return value


def _make(
    shares: ShareDatabase,
    steps: CheckedSteps,
    recipients: RecipientDatabase,
    changes: Sequence[RecipientStep],
) -> None:
    """Make all steps, or none: also where someone else has changed since the plan what they are about."""
    with shares.together():
        shares.make(steps)
        recipients.check_unchanged(change.before for change in changes if change.before is not None)
        make(recipients, changes)
