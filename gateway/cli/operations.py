"""Declares the operations of commands that have several, such as `delta-gateway recipient add`."""

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
