"""`delta-gateway serve -c FILE`: serves the shares of a configuration until a signal."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from gateway.cli.whole_numbers import process_count
from gateway.server.deferred_signals import ignore_hang_up


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="the configuration")
    parser.add_argument(
        "--workers", type=process_count, default=1, metavar="N", help="processes on one port; default 1"
    )


def run(arguments: argparse.Namespace) -> int:
    # Before the web server is imported, which takes longest of the start.
    ignore_hang_up()
    serve_file(arguments.config, workers=arguments.workers)
    return 0


def serve_file(path: Path, *, workers: int = 1) -> None:
    """Serve a configuration until a signal. Raises as `started` and `serve`."""
    import uvloop  # noqa: PLC0415 - slow to import

    from gateway.server.run import serve  # noqa: PLC0415 - as above
    from gateway.server.start import started  # noqa: PLC0415 - as above
    from gateway.telemetry.log_output import queued_logs  # noqa: PLC0415 - as above

    # What the start makes lives as long as the process: collections would find nothing in it. The server
    # enables them.
    gc.disable()
    try:
        with queued_logs():
            uvloop.run(serve(started(path, workers=workers)))
    finally:
        gc.enable()
