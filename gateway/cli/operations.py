"""Declares operations of commands, such as `delta-gateway recipient add`, and their repeated options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_operation(
    operations: Any, command: str, name: str, text: str, example: str
) -> argparse.ArgumentParser:
    """Add an operation, with its help and the option `--config`, to the subparsers of a command."""
    added: argparse.ArgumentParser = operations.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=f"example:\n  delta-gateway {command} {name} {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    added.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="the configuration")
    return added


def add_repeated(
    parser: argparse._ActionsContainer, option: str, name: str, text: str, **options: Any
) -> None:
    """Declare an option that may be repeated, whose values are a list; `options` are those of argparse."""
    parser.add_argument(option, dest=name, action="append", default=[], help=text, **options)
