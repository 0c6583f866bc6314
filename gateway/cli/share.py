"""`delta-gateway share add|alter|list|remove|show|history`: shares in the database, while servers run.

Shares of the configuration are listed and shown, too; they are changed in its file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gateway.catalog.stored_shares import StoredShare, with_stored
from gateway.cli.near_names import near_names
from gateway.cli.operations import Operations, add_repeated
from gateway.cli.stored import on_database, warn_of_names
from gateway.cli.text_table import write_table
from gateway.config import Config
from gateway.governance import share_edits
from gateway.governance.audited_database import open_share_database
from gateway.governance.share_records import ShareError, ShareNotFound
from gateway.report.text import escaped
from gateway.times import utc_text

if TYPE_CHECKING:
    from gateway.governance.share_store import ShareDatabase

READING = frozenset({"list", "show", "history"})
CONFIGURED, STORED = "configuration", "database"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the operations and their arguments."""
    operation = Operations(parser, "share", "the share").add
    add = operation(
        "add", "add a share without tables", "sales -c share.yaml --comment 'Orders of all shops'"
    )
    alter = operation(
        "alter", "change the description of a share", "sales -c share.yaml --display-name 'Sales, worldwide'"
    )
    for described in (add, alter):
        described.add_argument(
            "--comment", metavar="TEXT", help="a description for recipients; '' removes it"
        )
        described.add_argument("--display-name", metavar="TEXT", help="a name for people; '' removes it")
        add_repeated(
            described,
            "--property",
            "properties",
            "a text by a name of your choice; may be repeated; NAME= removes it",
            metavar="NAME=TEXT",
        )
    operation("list", "list all shares", "-c share.yaml", named=False)
    operation("show", "show a share with its schemas and tables", "sales -c share.yaml")
    operation("remove", "remove a share with its schemas and tables; their files stay", "sales -c share.yaml")
    history = operation("history", "show the changes of shares", "sales -c share.yaml", named=False)
    history.add_argument("name", nargs="?", metavar="NAME", help="a share; without it all")


def run(arguments: argparse.Namespace) -> int:
    return on_database(
        arguments,
        "share",
        open_share_database,
        lambda database, config, _audit: _OPERATIONS[arguments.operation](database, config, arguments),
        reads=arguments.operation in READING,
        creates=arguments.operation == "add",
        without=(lambda config, _: _list_shares(config, {})) if arguments.operation == "list" else None,
    )


def _add(database: ShareDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    empty = StoredShare(arguments.name)
    options = _options(empty, arguments)
    database.add(share_edits.with_options(empty, options), _detail(options))
    warn_of_names("share", [arguments.name])


def _alter(database: ShareDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    detail: dict[str, str] = {}

    def edit(share: StoredShare) -> StoredShare:
        changed = _options(share, arguments)
        detail.update(_detail(changed))
        return share_edits.with_options(share, changed)

    if arguments.comment is None and arguments.display_name is None and not arguments.properties:
        raise ShareError("alter: give --comment, --display-name or --property")
    database.edit(arguments.name, edit, detail)


def _options(share: StoredShare, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the changed options of a share; None takes one away."""
    options: dict[str, Any] = {}
    if arguments.comment is not None:
        options["comment"] = arguments.comment or None
    if arguments.display_name is not None:
        options["displayName"] = arguments.display_name or None
    if arguments.properties:
        texts = dict(share.options.get("properties") or {})
        for pair in arguments.properties:
            name, separator, text = pair.partition("=")
            if not separator or not name:
                raise ShareError(f"--property {pair!r}: expected NAME=TEXT")
            texts[name] = text
        options["properties"] = {name: text for name, text in texts.items() if text} or None
    return options


def _detail(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in options.items()}


def _list(database: ShareDatabase, config: Config, _arguments: argparse.Namespace) -> None:
    _list_shares(config, database.all())


def _list_shares(config: Config, stored: Mapping[str, StoredShare]) -> None:
    whole = with_stored(config, stored)
    names = {share.name.casefold() for share in config.shares}
    rows = [
        {
            "share": share.name,
            "from": CONFIGURED if share.name.casefold() in names else STORED,
            "schemas": len(share.schemas),
            "tables": sum(len(schema.tables) for schema in share.schemas),
            "comment": escaped(share.comment or ""),
        }
        for share in whole.config.shares
    ]
    if rows:
        write_table(rows)
    else:
        sys.stdout.write("There is no share.\n")
    for entry in whole.left_out:
        sys.stdout.write(f"{escaped(entry.name)} is stored and not shared: {escaped(entry.reason)}\n")


def _show(database: ShareDatabase, config: Config, arguments: argparse.Namespace) -> None:
    key = arguments.name.casefold()
    whole = with_stored(config, database.all())
    share = next((share for share in whole.config.shares if share.name.casefold() == key), None)
    if share is None:
        # A stored share that is left out as a whole.
        raise ShareNotFound(
            next(
                (f"{entry.name}: {entry.reason}" for entry in whole.left_out if entry.name.casefold() == key),
                "",
            )
            or f"there is no share {arguments.name!r}"
            + near_names(arguments.name, (share.name for share in whole.config.shares))
        )
    is_configured = any(share.name.casefold() == key for share in config.shares)
    sys.stdout.write(f"{escaped(share.name)}, from the {CONFIGURED if is_configured else STORED}\n")
    for label, text in (("display name", share.display_name), ("comment", share.comment)):
        if text:
            sys.stdout.write(f"{label}: {escaped(text)}\n")
    for name, text in share.properties.items():
        sys.stdout.write(f"property {escaped(name)}: {escaped(text)}\n")
    for source in share.sources:
        sys.stdout.write(
            f"{escaped(source.shown)}: tables are discovered {escaped(source.discovery.shown)}\n"
        )
    rows = [
        {
            "schema": schema.name,
            "table": table.name,
            "location": table.location.encoded,
            "access": _access(table),
        }
        for schema in share.schemas
        for table in schema.tables
    ]
    if rows:
        write_table(rows)
    else:
        sys.stdout.write("It has no listed table.\n")


def _access(table: Any) -> str:
    history = ", history" if table.history_shared else ""
    return f"{' '.join(table.access_modes)}{history}"


def _remove(database: ShareDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    database.remove(arguments.name)


def _history(database: ShareDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    changes = database.history(arguments.name)
    if arguments.name is not None and not changes:
        raise ShareError(f"the history has no change of a share {arguments.name!r}")
    for change in changes:
        detail = ", ".join(f"{name} {text}" for name, text in change.shown_detail.items())
        sys.stdout.write(
            f"{utc_text(change.at_ms)} {escaped(change.actor)} {change.action} "
            f"{escaped(change.recipient)}{f': {escaped(detail)}' if detail else ''}\n"
        )


_OPERATIONS: Mapping[str, Callable[[ShareDatabase, Config, argparse.Namespace], None]] = {
    "add": _add,
    "alter": _alter,
    "list": _list,
    "show": _show,
    "remove": _remove,
    "history": _history,
}
