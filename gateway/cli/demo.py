"""`delta-gateway demo`: shares three small tables and prints how to read them."""

from __future__ import annotations

import argparse
from pathlib import Path

from gateway.cli.serve import serve_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--once", action="store_true", help="print the rows of the shared tables and exit")
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="keep the tables in this directory; default: a temporary one",
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="the port; default: a free one")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from gateway import demo  # noqa: PLC0415 - imports the native module

    def serve(path: Path) -> int:
        serve_file(path)
        return 0

    return demo.run(serve, directory=arguments.directory, port=arguments.port, once=arguments.once)
