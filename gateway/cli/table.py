"""`delta-gateway table add|remove`: tables of shares in the database, while servers run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gateway.access import share_edits
from gateway.access.share_records import ShareError
from gateway.cli.operations import add_operation
from gateway.cli.share import table_of
from gateway.cli.stored import on_shares

if TYPE_CHECKING:
    from gateway.access.share_store import ShareDatabase
    from gateway.config import Config
    from gateway.telemetry.audit import AuditLog


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the operations and their arguments."""
    operations = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION")

    def operation(name: str, text: str, example: str) -> argparse.ArgumentParser:
        added = add_operation(operations, "table", name, text, example)
        added.add_argument("name", metavar="SHARE.SCHEMA.TABLE", help="the table in the share")
        return added

    add = operation(
        "add",
        "add a table to a share of the database; its schema may be new",
        "sales.public.orders s3://bucket/orders -c share.yaml --history-shared",
    )
    add.add_argument("location", metavar="LOCATION", help="root of the Delta table")
    add.add_argument("--id", metavar="ID", help="identifier of the table; default: made from its names")
    add.add_argument(
        "--history-shared", action="store_true", help="allow time travel, change data and streaming"
    )
    add.add_argument("--start-version", type=int, metavar="N", help="first version of the shared history")
    add.add_argument(
        "--access-mode",
        dest="access_modes",
        action="append",
        default=[],
        choices=["url", "dir"],
        help="how recipients read the table; may be repeated; default: url",
    )
    add.add_argument(
        "--auxiliary-location",
        dest="auxiliary_locations",
        action="append",
        default=[],
        metavar="LOCATION",
        help="for dir: another directory with files of the table; may be repeated",
    )
    operation("remove", "remove a table from a share; its files stay", "sales.public.orders -c share.yaml")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    parts = arguments.name.split(".")
    is_whole = len(parts) > 2 and all(parts)  # noqa: PLR2004 - share, schema, table
    share, schema, table = (".".join(parts[:-2]), *parts[-2:]) if is_whole else ("", "", "")

    def operation(database: ShareDatabase, _config: Config, _audit: AuditLog | None) -> None:
        if not is_whole:
            raise ShareError(f"{arguments.name!r} is not a table name; accepted: SHARE.SCHEMA.TABLE")
        detail = {"schema": schema, "table": table}
        if arguments.operation == "add":
            new = table_of(arguments, table)
            database.edit(
                share,
                lambda found: share_edits.with_table(found, schema, new),
                {**detail, "location": arguments.location},
                action="addTable",
            )
        else:
            database.edit(
                share,
                lambda found: share_edits.without_table(found, schema, table),
                detail,
                action="removeTable",
            )

    return on_shares(arguments, "table", operation, reads=False)
