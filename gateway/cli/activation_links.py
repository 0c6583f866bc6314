"""Activation links on the command line."""

from __future__ import annotations

import argparse
import sys

from gateway.cli.durations import add_expires, life
from gateway.config import Config
from gateway.governance.recipient_records import DEFAULT_LINK_SECONDS, IssuedLink
from gateway.protocol.profile import activation_url
from gateway.times import utc_text


def add_link_arguments(add: argparse.ArgumentParser, link: argparse.ArgumentParser) -> None:
    """Declare the arguments of the operations that make links."""
    add.add_argument(
        "--activation",
        action="store_true",
        help="print a link that gives the profile once, instead of the profile",
    )
    for parser in (add, link):
        parser.add_argument(
            "--link-expires",
            dest="link_expires_in_seconds",
            type=life,
            default=DEFAULT_LINK_SECONDS,
            metavar="3d",
            help="lifetime of the activation link; default 3d",
        )
    add_expires(link, "the token or secret")


def print_link(config: Config, issued: IssuedLink) -> None:
    """Print a link; its end goes to the standard error."""
    sys.stdout.write(f"{activation_url(config.endpoint_url, issued.code)}\n")
    sys.stderr.write(f"the link gives the profile once, until {utc_text(issued.expires_ms)}\n")
