"""`delta-gateway recipient client` and `bearer-tokens`: OAuth clients on the command line.

In: records of clients. Out: their texts, and the arguments of the operations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from gateway.config import Config
from gateway.governance.recipient_records import ClientRecord, RecipientRecord, TokenRecord
from gateway.report.text import escaped
from gateway.times import utc_text

CHANGES = ("add", "list", "rotate", "remove")


def add_client_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `client`. A new secret has the arguments of a new token."""
    parser.add_argument("change", choices=CHANGES, metavar="|".join(CHANGES), help="the change")
    parser.add_argument("name", metavar="NAME", help="the recipient")
    parser.add_argument(
        "--client", dest="client_id", metavar="ID", help="the client; default: the recipient's only one"
    )


def add_bearer_token_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `bearer-tokens`."""
    parser.add_argument("change", choices=("forbid", "allow"), metavar="forbid|allow", help="the change")
    parser.add_argument("name", metavar="NAME", help="the recipient")


def warn_of_keys(config: Config) -> None:
    """Warn that access tokens end with the server that issued them."""
    if not config.gateway.token_keys:
        sys.stderr.write(
            "delta-gateway recipient: warning: without gateway.tokenKeys the access tokens of clients end "
            "when the server restarts, and other servers do not accept them\n"
        )


def print_clients(record: RecipientRecord, now_ms: int) -> None:
    """Print each client of a recipient with its live secrets."""
    if not record.clients:
        sys.stdout.write(f"{escaped(record.name)} has no client\n")
    for client in record.clients:
        sys.stdout.write(f"{escaped(record.name)}: {client_text(client, now_ms)}\n")


def client_text(client: ClientRecord, now_ms: int) -> str:
    """Return a stored client as a text for people."""
    return escaped(f"client {client.id}: secrets: {lives_text(client.secrets, now_ms) or 'none alive'}")


def lives_text(credentials: Iterable[TokenRecord], now_ms: int) -> str:
    """Return when those tokens or secrets end that have not ended."""
    return "; ".join(
        "never expires" if credential.expires_ms is None else f"expires {utc_text(credential.expires_ms)}"
        for credential in credentials
        if credential.live(now_ms)
    )
