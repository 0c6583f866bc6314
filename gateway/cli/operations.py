"""Parsers of commands and of their operations, such as `delta-gateway recipient add`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and the command that shows the help."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with 2."""
        self.exit(2, f"{self.prog}: {message}\n{self.prog} --help shows what it takes.\n")


class Operations:
    """The operations of a command, most of which are about what a name names."""

    def __init__(self, parser: argparse.ArgumentParser, command: str, named: str, **options: Any) -> None:
        """`named`: the help of the name. `options` are those of argparse."""
        self._parsers = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION", **options)
        self._command = command
        self._named = named

    def add(
        self, name: str, text: str, example: str, *, named: bool = True, changes: Sequence[str] = ()
    ) -> argparse.ArgumentParser:
        """Add an operation, with its help and the option `--config`.

        `changes`: the words before the name, of which one says what it does.
        """
        added: argparse.ArgumentParser = self._parsers.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=f"example:\n  delta-gateway {self._command} {name} {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.add_argument(
            "-c", "--config", type=Path, required=True, metavar="FILE", help="the configuration"
        )
        if changes:
            added.add_argument("change", choices=changes, metavar="|".join(changes), help="the change")
        if named:
            added.add_argument("name", metavar="NAME", help=self._named)
        return added


def add_repeated(
    parser: argparse._ActionsContainer, option: str, name: str, text: str, **options: Any
) -> None:
    """Declare an option that may be repeated, whose values are a list; `options` are those of argparse."""
    parser.add_argument(option, dest=name, action="append", default=[], help=text, **options)
