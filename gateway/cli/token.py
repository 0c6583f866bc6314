"""`delta-gateway token NAME`: a new token, its profile file, and the recipient's entry for the configuration.

The token is shown once: in the profile, or on the standard error. The entry holds only its hash.
`--admin` makes a token of the admin API and the console, and prints its hash alone.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from gateway.authentication.credential_table import token_hash
from gateway.cli.durations import add_expires, lifetime
from gateway.cli.profile_file import profile_file, warn_of_host
from gateway.config import load
from gateway.config.checks import check_url
from gateway.config.errors import Invalid
from gateway.encoding import json_bytes
from gateway.governance.recipient_records import end_ms
from gateway.protocol.profile import profile, profile_text
from gateway.times import epoch_ms, utc_text

TOKEN_BYTES = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="the recipient")
    parser.add_argument(
        "--admin",
        action="store_true",
        help="make a token of the admin API and the console instead, and print its hash for gateway.admin",
    )
    parser.add_argument(
        "--shares", default="", metavar="SHARES", help="shares to grant, with commas between; '*' for all"
    )
    add_expires(parser, "the token")
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="write the profile to a new file; default: print the token",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing profile")
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration that names the endpoint"
    )
    parser.add_argument(
        "--endpoint", metavar="URL", help="endpoint of the profile, instead of a configuration"
    )


def run(arguments: argparse.Namespace) -> int:
    token = secrets.token_urlsafe(TOKEN_BYTES)
    if arguments.admin:
        if arguments.name is not None or arguments.profile is not None:
            raise OSError("--admin makes a token of no recipient: leave out NAME and --profile")
        sys.stderr.write(f"The token, which is not shown again:\n{token}\n")
        sys.stderr.write("For tokenSha256, viewerTokenSha256 or metricsTokenSha256 of gateway.admin:\n")
        sys.stdout.write(f"{token_hash(token).hex()}\n")
        return 0
    if arguments.name is None:
        raise OSError("name the recipient of the token, or give --admin for one of the admin API")
    ends_ms = end_ms(epoch_ms(), lifetime(arguments.expires_in_seconds), "token")
    expires = None if ends_ms is None else utc_text(ends_ms)
    if arguments.profile is not None:
        with profile_file(arguments.profile, overwrite=arguments.overwrite) as file:
            file.write_text(profile_text(profile(endpoint_of(arguments), token, expires)))
        sys.stderr.write(f"The profile for {arguments.name} is in {arguments.profile}; it holds the token.\n")
    else:
        sys.stderr.write(f"The token of {arguments.name}, which is not shown again:\n{token}\n")
    sys.stderr.write(f"It ends at {expires}.\n" if expires else "It has no end.\n")
    sys.stderr.write("For gateway.recipients of the configuration:\n")
    sys.stdout.write(entry(arguments.name, token, expires, arguments.shares))
    return 0


def entry(name: str, token: str, expires: str | None, shares: str) -> str:
    """Return the recipient's entry as YAML, with the token's hash."""
    expiry = f", expires: {expires}" if expires else ""
    granted = [share.strip() for share in shares.split(",") if share.strip()]
    return (
        f"- name: {json_bytes(name).decode()}\n"
        f"  tokens: [{{sha256: {token_hash(token).hex()}{expiry}}}]\n"
        f"  shares: {json_bytes(granted).decode()}\n"
    )


def endpoint_of(arguments: argparse.Namespace) -> str:
    """Return the endpoint for the profile."""
    if arguments.endpoint:
        try:
            check_url("endpoint", arguments.endpoint)
        except Invalid as invalid:
            raise OSError(f"--endpoint: {invalid}") from None
        return str(arguments.endpoint)
    if arguments.config is None:
        raise OSError("a profile names the endpoint: give -c FILE or --endpoint URL")
    config = load(arguments.config, needs_readers=False)
    warn_of_host(config, "profile", "token")
    return config.endpoint_url
