"""`delta-gateway completion SHELL`: the script that completes commands, options and files in a shell.

In: the tree of parsers. Out: the script, made by shtab of the extra `completion`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from gateway.cli import command_line
from gateway.server.extras import check_completion_extra

SHELLS = ("bash", "zsh", "fish")
FILES, DIRECTORIES = ("FILE", "JAR"), ("DIR", "LOCATION")
"""The names of arguments that are files or directories."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"the shell: {', '.join(SHELLS)}")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    check_completion_extra()
    import shtab  # noqa: PLC0415 - of an extra

    whole = command_line.parser(command_line.EVERY)
    for action in _actions(whole):
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in DIRECTORIES:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    sys.stdout.write(f"{shtab.complete(whole, arguments.shell)}\n")
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Iterate over the arguments of a parser and of its commands."""
    for action in parser._actions:  # noqa: SLF001 - argparse lists them nowhere else
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for command in action.choices.values():
                yield from _actions(command)
