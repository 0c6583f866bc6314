"""`delta-gateway recipient`: the recipients' database from the command line.

In: parsed arguments. Out: what was asked for on the standard output, and for a new token its profile file,
written once with its owner's rights alone (or printed, without `--profile`). Running servers see a change
within a second.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from gateway.audit import AuditLog
from gateway.config import Config, load
from gateway.recipients import IssuedToken, RecipientDatabase, RecipientError, RecipientRecord, profile
from gateway.serving.administration import endpoint, open_audit, open_database
from gateway.sharing import epoch_ms

_LIFE = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS: Mapping[str, int] = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds(text: str) -> int:
    """`90d`, `12h`, `30m` or `45s` in seconds, as a type of argparse."""
    match = _LIFE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no length of time; accepted: 90d, 12h, 30m, 45s")
    return int(match.group(1)) * _SECONDS[match.group(2)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the operations and their arguments."""
    operations = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION")

    def operation(name: str, told: str, *, named: bool = True) -> argparse.ArgumentParser:
        added = operations.add_parser(name, help=told, description=told)
        added.add_argument("-c", "--config", type=Path, required=True, metavar="FILE")
        if named:
            added.add_argument("name", metavar="NAME")
        return added

    add = operation("add", "add a recipient and write its profile")
    add.add_argument("--share", dest="shares", action="append", default=[], metavar="SHARE")
    add.add_argument("--allow", dest="networks", action="append", default=[], metavar="NETWORK")
    add.add_argument("--comment", default="")
    rotate = operation("rotate", "give a new token; the old one lives on for a while")
    rotate.add_argument("--old-expires", type=seconds, default=0, metavar="24h", help="life of the old one")
    for parser_of_token in (add, rotate):
        parser_of_token.add_argument("--expires", type=seconds, metavar="90d", help="life of the new token")
        parser_of_token.add_argument("--profile", type=Path, metavar="FILE", help="else it is printed")
    revoke = operation("revoke", "end all tokens at once, or take shares back")
    revoke.add_argument("--share", dest="shares", action="append", default=[], metavar="SHARE")
    grant = operation("grant", "grant shares, or set the networks that it may come from")
    grant.add_argument("shares", nargs="*", metavar="SHARE")
    grant.add_argument("--allow", dest="networks", action="append", metavar="NETWORK")
    grant.add_argument("--allow-anywhere", dest="networks", action="store_const", const=[])
    operation("show", "show one recipient and its history")
    operation("list", "list all recipients", named=False)


def run(arguments: argparse.Namespace) -> int:
    """Do one operation; 0, or 1 with the reason on the standard error."""
    config = load(arguments.config, needs_readers=False)
    audit = open_audit(config)
    try:
        return _run(arguments, config, audit)
    except (RecipientError, FileExistsError) as error:
        sys.stderr.write(f"delta-gateway recipient: {error}\n")
        return 1
    finally:
        if audit is not None:
            audit.close()


def _run(arguments: argparse.Namespace, config: Config, audit: AuditLog | None) -> int:
    with closing(open_database(config, f"cli:{_user()}", now_ms=epoch_ms, audit=audit)) as database:
        _OPERATIONS[arguments.operation](database, config, arguments)
    return 0


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _add(database: RecipientDatabase, config: Config, arguments: argparse.Namespace) -> None:
    _refuse_existing(arguments.profile)
    issued = database.add(
        arguments.name,
        shares=arguments.shares,
        networks=arguments.networks,
        comment=arguments.comment,
        expires_in_seconds=arguments.expires,
    )
    _give(config, issued, arguments.profile)


def _rotate(database: RecipientDatabase, config: Config, arguments: argparse.Namespace) -> None:
    _refuse_existing(arguments.profile)
    issued = database.rotate(
        arguments.name, old_expires_in_seconds=arguments.old_expires, expires_in_seconds=arguments.expires
    )
    _give(config, issued, arguments.profile)


def _revoke(database: RecipientDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    _print(database.revoke(arguments.name, shares=arguments.shares))


def _grant(database: RecipientDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    if not arguments.shares and arguments.networks is None:
        raise RecipientError("grant: name shares, or networks by --allow or --allow-anywhere")
    if arguments.shares:
        database.grant(arguments.name, arguments.shares)
    if arguments.networks is not None:
        database.allow(arguments.name, arguments.networks)
    _print(database.show(arguments.name))


def _show(database: RecipientDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    _print(database.show(arguments.name))
    for change in database.history(arguments.name):
        detail = " ".join(f"{key}={value}" for key, value in change.detail.items())
        sys.stdout.write(f"{_time(change.at_ms)} {change.action} by {change.actor} {detail}".rstrip() + "\n")


def _list(database: RecipientDatabase, _config: Config, _arguments: argparse.Namespace) -> None:
    for record in database.list():
        _print(record)


_OPERATIONS: Mapping[str, Callable[[RecipientDatabase, Config, argparse.Namespace], None]] = {
    "add": _add,
    "rotate": _rotate,
    "revoke": _revoke,
    "grant": _grant,
    "show": _show,
    "list": _list,
}


def _refuse_existing(path: Path | None) -> None:
    # Before the change: a token whose profile cannot be written would be lost.
    if path is not None and path.exists():
        raise FileExistsError(f"{path} exists; a profile is never written over")


def _give(config: Config, issued: IssuedToken, path: Path | None) -> None:
    text = json.dumps(profile(endpoint(config), issued), indent=2) + "\n"
    if path is None:
        sys.stdout.write(text)
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    sys.stdout.write(f"{path} holds the profile of {issued.recipient}; it is not kept anywhere else\n")


def _print(record: RecipientRecord) -> None:
    now_ms = epoch_ms()
    lives = [
        "never expires" if token.expires_ms is None else f"expires {_time(token.expires_ms)}"
        for token in record.tokens
        if token.live(now_ms)
    ]
    shares = ", ".join(record.shares) or "none"
    networks = ", ".join(record.networks) or "anywhere"
    sys.stdout.write(
        f"{record.name}: shares {shares}; from {networks}; tokens: {'; '.join(lives) or 'none alive'}\n"
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
