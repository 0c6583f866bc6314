"""The command line: `delta-gateway COMMAND`.

Each command is a module of `gateway.cli` with `add_arguments` and `run`; only the module of the given command
is imported. Exit codes: 0 done, 1 refused or failed (the reason is on the standard error), 2 a wrong command
line, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TextIO

from gateway.errors import GatewayError, StartFailed
from gateway.spark import cli as spark_commands

INTERRUPTED = 130
"""The exit code that shells report for a command ended by SIGINT."""


class Command(NamedTuple):
    """The texts of a command's help; the example is its arguments."""

    help: str
    description: str
    example: str


COMMANDS: Mapping[str, Command] = {
    "init": Command(
        "share the Delta tables of a directory or bucket",
        "Find Delta tables, write a configuration that shares them, and add a first recipient.\n"
        "Asks for what is not given, on a terminal. Prints how to read the share by Python, Spark and curl.",
        "s3://my-bucket/warehouse --share sales --recipient alice",
    ),
    "serve": Command(
        "serve the shares of a configuration",
        "Serve the shares of a configuration until SIGTERM or SIGINT.\n"
        "Most changes of the file take effect while the server runs.",
        "-c share.yaml --workers 2",
    ),
    "recipient": Command(
        "manage the recipients in the database, while servers run",
        "Manage the recipients in the database. Running servers see a change within a second.",
        "add acme -c share.yaml --share sales --expires 90d --profile acme.share",
    ),
    "token": Command(
        "make a token, its profile file and the recipient's entry",
        "Make a token, write its profile file and print the recipient's entry for gateway.recipients.\n"
        "The entry holds the hash of the token.",
        "alice -c share.yaml --shares sales --expires 90d --profile alice.share",
    ),
    "check": Command(
        "open every table and fetch a first byte of each",
        "Validate a configuration, open every table and fetch the first byte of one file of each.\n"
        "Exits with 1 if a table cannot be read or a server would not start.",
        "-c share.yaml",
    ),
    "explain": Command(
        "show what predicates prune of a table",
        "Show how many files of a table each predicate prunes, with examples of the files that remain.",
        "sales.default.orders -c share.yaml --predicate \"day >= '2026-01-01'\"",
    ),
    "demo": Command(
        "share three small tables and say how to read them",
        "Write three small tables, serve them on this machine and print how to read them.",
        "--port 8080",
    ),
}
"""The commands with their help; each is a module of `gateway.cli`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    _open_standard_streams()
    given = sys.argv[1:] if arguments is None else arguments
    parsed = parser(given[0] if given else None).parse_args(given)
    _log_to_standard_error()
    try:
        return int(parsed.run(parsed))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        text = _expected_error(error)
        if text is None:
            raise
        sys.stderr.write(f"delta-gateway: {text}\n")
        return 1


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands, with the arguments of the given one."""
    top = argparse.ArgumentParser(
        prog="delta-gateway",
        description="A gateway for Delta Sharing.",
        epilog="examples:\n  delta-gateway demo\n  delta-gateway serve -c share.yaml",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument(
        "--version", action=_PrintVersion, help="show version, commit, build profile and SIMD level"
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, texts in COMMANDS.items():
        own = commands.add_parser(
            name,
            help=texts.help,
            description=texts.description,
            epilog=f"example:\n  delta-gateway {name} {texts.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == command:
            module = importlib.import_module(f"gateway.cli.{name}")
            module.add_arguments(own)
            own.set_defaults(run=module.run)
    spark_commands.add_commands(commands)
    return top


class _PrintVersion(argparse.Action):
    """Prints the version of the native build and exits. Imports the native module only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from gateway.tables.native import version_text  # noqa: PLC0415 - the others start without native code

        sys.stdout.write(f"{parser.prog} {version_text()}\n")
        parser.exit()


def _expected_error(error: Exception) -> str | None:
    """Return the text for an error that is not a defect."""
    from gateway.access.recipient_records import RecipientError  # noqa: PLC0415 - imported only after a failure
    from gateway.config.errors import ConfigError  # noqa: PLC0415 - as above
    from gateway.tables.native import LogError  # noqa: PLC0415 - as above

    if isinstance(error, ConfigError | StartFailed | GatewayError | LogError | OSError):
        return str(error)
    if isinstance(error, sqlite3.Error | RecipientError):
        return f"the recipients' database cannot be opened: {error}"
    return None


def _open_standard_streams() -> None:
    """Open the null device for each standard stream that is closed.

    Otherwise the next file or socket gets its number, and log lines are written into that.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or _text_of(1)
    sys.stderr = sys.stderr or _text_of(2)


def _text_of(descriptor: int) -> TextIO:
    return open(descriptor, "w", encoding="utf-8", closefd=False)


def _log_to_standard_error() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    # No line says them, and finding them out costs more than the line ("Optimization" in Python's logging).
    logging._srcfile = None  # noqa: SLF001
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


if __name__ == "__main__":
    sys.exit(main())
