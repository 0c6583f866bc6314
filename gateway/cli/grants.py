"""Grants for parts of shares and properties of recipients, on the command line.

In: parsed arguments of `recipient grant`, `revoke` and `property`. Out: the changed record. A condition is
parsed, and compared with the partition columns of the tables that it is for, before anything is changed.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gateway.catalog.grants import Grant
from gateway.catalog.stored_shares import with_stored
from gateway.cli.operations import add_repeated
from gateway.config import Config
from gateway.config.recipients import EVERY_SHARE
from gateway.governance.recipient_records import RecipientError, RecipientRecord
from gateway.report.text import escaped

if TYPE_CHECKING:
    from gateway.governance.recipient_store import RecipientDatabase


def add_grant_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `grant` for shares and their parts."""
    parser.add_argument(
        "shares",
        nargs="*",
        metavar="SHARE[.SCHEMA[.TABLE]]",
        help="a share to grant, or a part of it; '*' for all; names with dots in backticks",
    )
    parser.add_argument(
        "--where",
        dest="condition",
        metavar="CONDITION",
        help="grant the files alone for which this is true: SQL over partition columns",
    )


def add_property_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("set", nargs="*", metavar="NAME=TEXT", help="set this property")
    add_repeated(parser, "--remove", "remove", "remove this property; may be repeated", metavar="NAME")


def grant_of_parts(
    database: RecipientDatabase, config: Config, arguments: argparse.Namespace
) -> RecipientRecord | None:
    """Grant parts of shares; None where the arguments name whole shares alone."""
    # Other operations start sooner without the native module.
    from gateway.admin.grant_checks import grant_warnings  # noqa: PLC0415
    from gateway.governance.grant_operations import grant_parts, place_of, share_of  # noqa: PLC0415
    from gateway.tables.rules import native_rule  # noqa: PLC0415

    whole = with_stored(config, database.stored_shares()).config
    known = [share.name for share in whole.shares]
    grants = [place_of(text, known, arguments.condition) for text in arguments.shares]
    if all(grant.is_whole_share for grant in grants):
        if arguments.condition is not None:
            raise RecipientError("grant: --where is for the shares that are granted")
        arguments.shares = [share_of(text, known) for text in arguments.shares]
        return None
    if arguments.networks is not None:
        raise RecipientError("grant: parts of shares and networks are two commands")
    before = database.show(arguments.name)
    warnings = grant_warnings(whole, grants, before.properties)
    record = grant_parts(database, before.name, grants, native_rule, allow_absent=arguments.allow_absent)
    if arguments.condition is not None and {EVERY_SHARE, *(grant.share for grant in grants)} & {
        *record.shares
    }:
        warnings.append("the share is granted as a whole, too: the condition hides nothing until that ends")
    for warning in warnings:
        sys.stderr.write(f"delta-gateway recipient: warning: {escaped(warning)}\n")
    return record


def revoked(
    database: RecipientDatabase, config: Config, arguments: argparse.Namespace
) -> tuple[RecipientRecord, list[Grant]]:
    """End tokens, or grants for shares and parts of them. Returns the record, and the places taken back."""
    from gateway.governance.grant_operations import place_of, revoke_parts, share_of  # noqa: PLC0415

    if not arguments.shares:
        if arguments.all_parts:
            raise RecipientError("--all-parts needs --share")
        return database.revoke(arguments.name), []
    record = database.show(arguments.name)
    whole = with_stored(config, database.stored_shares()).config
    known = [*record.shares, *(share.name for share in whole.shares)]
    places = [place_of(text, known) for text in arguments.shares]
    shares = [share_of(text, known) for text in arguments.shares]
    if arguments.all_parts:
        if not all(place.is_whole_share for place in places):
            raise RecipientError("--all-parts takes whole shares back: give --share SHARE")
        return database.revoke(arguments.name, shares=shares, all_parts=True), places
    if all(place.is_whole_share and place.share in record.shares for place in places):
        return database.revoke(arguments.name, shares=shares), places
    return revoke_parts(database, record.name, places), places


def change_properties(database: RecipientDatabase, arguments: argparse.Namespace) -> RecipientRecord:
    """Set and remove properties."""
    from gateway.governance.grant_operations import set_properties  # noqa: PLC0415
    from gateway.tables.rules import native_rule  # noqa: PLC0415

    changes: dict[str, str | None] = dict.fromkeys(arguments.remove)
    for text in arguments.set:
        key, separator, value = text.partition("=")
        if not separator:
            raise RecipientError(f"property: {text!r} is not NAME=TEXT")
        changes[key] = value
    if not changes:
        raise RecipientError("property: give NAME=TEXT, or --remove NAME")
    return set_properties(database, arguments.name, changes, native_rule)
