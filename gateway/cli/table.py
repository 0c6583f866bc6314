"""`delta-gateway table add|remove`: tables of shares in the database, while servers run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gateway.catalog.stored_shares import StoredTable
from gateway.cli.operations import Operations, add_repeated
from gateway.cli.stored import on_database, warn_of_names
from gateway.client.table_name import TableName
from gateway.governance import share_edits
from gateway.governance.audited_database import open_share_database
from gateway.governance.share_records import ShareError

if TYPE_CHECKING:
    from gateway.governance.share_store import ShareDatabase


_LIMITS: Mapping[str, tuple[Callable[[str], int | float], str]] = {
    "everySeconds": (float, "time from one search to the next"),
    "keepSeconds": (float, "time for which a table is kept while searches can neither find nor miss it"),
    "maxDepth": (int, "directories below those of LOCATION in which tables are searched, too"),
    "maxTables": (int, "maximum number of found tables"),
    "maxCalls": (int, "maximum number of listed directories of one search"),
}
"""Options of discovery by their keys of the configuration."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the operations and their arguments."""
    named = "SHARE.SCHEMA.TABLE; with --discover SHARE or SHARE.SCHEMA"
    operation = Operations(parser, "table", named).add
    add = operation(
        "add",
        "add a table to a share of the database; its schema may be new",
        "sales.public.orders s3://bucket/orders -c share.yaml --history-shared",
    )
    add.add_argument(
        "location",
        metavar="LOCATION",
        help="root of the Delta table; with --discover a location with {schema} and {table} in it for a "
        "share, with {table} alone for a schema",
    )
    add.add_argument("--id", metavar="ID", help="identifier of the table; default: made from its names")
    add.add_argument(
        "--history-shared", action="store_true", help="allow time travel, change data and streaming"
    )
    add.add_argument("--start-version", type=int, metavar="N", help="first version of the shared history")
    add_repeated(
        add,
        "--access-mode",
        "access_modes",
        "how recipients read the table; may be repeated; default: url",
        choices=["url", "dir"],
    )
    add_repeated(
        add,
        "--auxiliary-location",
        "auxiliary_locations",
        "for dir: another directory with files of the table; may be repeated",
        metavar="LOCATION",
    )
    remove = operation(
        "remove", "remove a table from a share; its files stay", "sales.public.orders -c share.yaml"
    )
    add.add_argument(
        "--discover",
        action="store_true",
        help="share every table that is found in the directories of LOCATION",
    )
    for name, (kind, text) in _LIMITS.items():
        option = re.sub("[A-Z]", lambda capital: f"-{capital[0].lower()}", name)
        add.add_argument(f"--{option}", dest=name, type=kind, metavar="N", help=f"with --discover: {text}")
    remove.add_argument(
        "--discover", action="store_true", help="share no discovered tables of a share or a schema any longer"
    )


def run(arguments: argparse.Namespace) -> int:
    edit = _edit_discovery if arguments.discover else _edit
    return on_database(
        arguments,
        "table",
        open_share_database,
        lambda database, *_: edit(database, arguments),
        reads=False,
    )


def _edit_discovery(database: ShareDatabase, arguments: argparse.Namespace) -> None:
    """Add or remove the discovered tables of a share, or of a schema."""
    is_share = any(share.key == arguments.name.casefold() for share in database.all().values())
    share, schema = arguments.name, None
    if not is_share and "." in arguments.name:
        share, _, schema = arguments.name.rpartition(".")
    detail = {} if schema is None else {"schema": schema}
    if arguments.operation == "remove":
        database.edit(
            share,
            lambda found: share_edits.without_discovery(found, schema),
            detail,
            action="removeDiscovery",
        )
        return
    given = {name for name in ("id", "start_version") if getattr(arguments, name) is not None}
    if given or arguments.access_modes or arguments.auxiliary_locations:
        raise ShareError("--discover: of discovered tables only --history-shared can be given")
    discovery: dict[str, Any] = {"discover": arguments.location}
    if arguments.history_shared:
        discovery["historyShared"] = True
    discovery |= {name: value for name in _LIMITS if (value := getattr(arguments, name)) is not None}
    database.edit(
        share,
        lambda found: share_edits.with_discovery(found, schema, discovery),
        {**detail, "discover": arguments.location},
        action="addDiscovery",
    )


def _edit(database: ShareDatabase, arguments: argparse.Namespace) -> None:
    """Add or remove a table."""
    try:
        name = TableName.parse(arguments.name)
    except ValueError as reason:
        raise ShareError(str(reason)) from None
    limits = [name for name in _LIMITS if getattr(arguments, name, None) is not None]
    if limits:
        raise ShareError(f"{limits[0]} is of discovered tables; give --discover, too")
    detail = {"schema": name.schema, "table": name.table}
    if arguments.operation == "add":
        new = _table_of(arguments, name.table)
        database.edit(
            name.share,
            lambda found: share_edits.with_table(found, name.schema, new),
            {**detail, "location": arguments.location},
            action="addTable",
        )
        warn_of_names("table", [name.schema, name.table])
    else:
        database.edit(
            name.share,
            lambda found: share_edits.without_table(found, name.schema, name.table),
            detail,
            action="removeTable",
        )


def _table_of(arguments: argparse.Namespace, name: str) -> StoredTable:
    """Return the table that the arguments of `table add` describe."""
    options: dict[str, Any] = {
        "id": arguments.id,
        "historyShared": True if arguments.history_shared else None,
        "startVersion": arguments.start_version,
        "accessModes": arguments.access_modes or None,
        "auxiliaryLocations": arguments.auxiliary_locations or None,
    }
    given = {key: value for key, value in options.items() if value is not None}
    return StoredTable(name, arguments.location, given)
