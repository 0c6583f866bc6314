"""The command line: `delta-gateway COMMAND`. Each command has a module of its own; here they are named.

Exit codes: 0 done, 1 refused or failed (the reason is on the standard error), 2 a wrong command line,
130 interrupted.
"""

from __future__ import annotations

import argparse
import logging
import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import uvloop

from gateway.access.recipient_store import RecipientError
from gateway.cli import check, explain, token
from gateway.cli import recipient as recipient_command
from gateway.config import ConfigError
from gateway.errors import GatewayError
from gateway.server.run import ignore_hang_up, serve
from gateway.server.supervisor import StartFailed
from gateway.spark import cli as spark_commands
from gateway.tables.native import LogError
from gateway.telemetry.log_output import queued_logs

INTERRUPTED = 130
"""What a shell reports of a command that ended by SIGINT."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    _open_standard_streams()
    parsed = parser().parse_args(arguments)
    _log_to_standard_error()
    try:
        return int(parsed.run(parsed))
    except (ConfigError, StartFailed, GatewayError, LogError, OSError) as error:
        sys.stderr.write(f"delta-gateway: {error}\n")
        return 1
    except (sqlite3.Error, RecipientError) as error:
        sys.stderr.write(f"delta-gateway: the recipients' database cannot be opened: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


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


def parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    top = argparse.ArgumentParser(prog="delta-gateway", description="A gateway for Delta Sharing.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serving = commands.add_parser("serve", help="serve the shares of a configuration")
    serving.add_argument("-c", "--config", type=Path, required=True, metavar="FILE")
    serving.add_argument("--workers", type=int, default=1, metavar="N", help="processes on one port")
    serving.set_defaults(run=_serve)
    recipient = commands.add_parser("recipient", help="recipients in the database, while servers run")
    recipient_command.add_arguments(recipient)
    recipient.set_defaults(run=recipient_command.run)
    for name, command, about in (
        ("token", token, "make a token, its profile file and the recipient's entry"),
        ("check", check, "open every table and fetch a first byte of each"),
        ("explain", explain, "show what predicates prune of a table"),
    ):
        own = commands.add_parser(name, help=about)
        command.add_arguments(own)
        own.set_defaults(run=command.run)
    showing = commands.add_parser("demo", help="share three small tables and say how to read them")
    showing.add_argument("--once", action="store_true", help="read the own shares, print them and exit")
    showing.add_argument("--directory", type=Path, help="keep the tables there")
    showing.add_argument("--port", type=int, default=0, help="the port; a free one when left out")
    showing.set_defaults(run=_demo)
    spark_commands.add_commands(commands)
    return top


def _serve(arguments: argparse.Namespace) -> int:
    ignore_hang_up()
    with queued_logs():
        uvloop.run(serve(arguments.config, workers=arguments.workers))
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    from gateway import demo  # noqa: PLC0415 - polars takes longer to import than a server to start

    def serve_file(path: Path) -> int:
        with queued_logs():
            uvloop.run(serve(path, workers=1))
        return 0

    return demo.run(serve_file, directory=arguments.directory, port=arguments.port, once=arguments.once)


if __name__ == "__main__":
    sys.exit(main())
