"""`delta-gateway demo`: shares three small tables and prints how to read them."""

from __future__ import annotations

import argparse
from pathlib import Path

from gateway.cli.serve import serve_file
from gateway.cli.text_table import write_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="print the rows of the shared tables and exit")
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="keep the tables in this directory; default: a temporary one",
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="the port; default: a free one")
    parser.add_argument(
        "--store",
        choices=("local", "s3", "azure"),
        default="local",
        help="where the tables are: a directory, or an S3 server (versitygw, minio) or an Azure Blob server "
        "(azurite-blob) that is started from PATH; default: local",
    )
    parser.add_argument(
        "--store-endpoint",
        metavar="URL",
        help="use the S3 server, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or Azurite that runs here",
    )


def run(arguments: argparse.Namespace) -> int:
    from gateway import demo  # noqa: PLC0415 - imports the native module

    def serve(path: Path) -> int:
        serve_file(path)
        return 0

    return demo.run(
        serve,
        write_table,
        directory=arguments.directory,
        port=arguments.port,
        once=arguments.once,
        store=arguments.store,
        store_endpoint=arguments.store_endpoint,
    )
