"""Tokens, activation links, OAuth clients and federation policies of `delta-gateway recipient`.

In: parsed arguments, or records. Out: the arguments of the operations, a `TokenPolicy`, and texts for people.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from gateway.authentication.policies import TokenPolicy
from gateway.cli.durations import add_expires, life
from gateway.cli.operations import add_repeated
from gateway.config import Config
from gateway.governance.recipient_records import (
    DEFAULT_LINK_SECONDS,
    ClientRecord,
    IssuedLink,
    PolicyRecord,
    RecipientError,
    RecipientRecord,
    TokenRecord,
)
from gateway.protocol.profile import activation_url
from gateway.report.text import escaped
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


def add_policy_arguments(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--policy", default="default", metavar="NAME", help="the policy; default: default")
    parser.add_argument("--issuer", metavar="URL", help="the issuer, exactly as in gateway.oidc.issuers")
    parser.add_argument(
        "--subject-claim", default="sub", metavar="CLAIM", help="sub, oid, azp, groups or another"
    )
    parser.add_argument("--subject", metavar="TEXT", help="the value of that claim")
    add_repeated(parser, "--audience", "audiences", "an accepted audience; may be repeated", metavar="TEXT")
    add_repeated(
        parser,
        "--claim",
        "claims",
        "a further claim that the token must have; may be repeated",
        metavar="NAME=TEXT",
        type=_claim,
    )


def policy_of(arguments: argparse.Namespace) -> TokenPolicy:
    """Return the policy of the arguments. Raises RecipientError for missing ones."""
    required = {
        "--issuer": arguments.issuer,
        "--subject": arguments.subject,
        "--audience": arguments.audiences,
    }
    missing = [option for option, value in required.items() if not value]
    if missing:
        raise RecipientError(f"a policy needs {', '.join(missing)}")
    if len(dict(arguments.claims)) < len(arguments.claims):
        raise RecipientError("--claim: a claim is given twice, and a policy has one text for each")
    return TokenPolicy.of(arguments)


def policy_text(stored: PolicyRecord) -> str:
    """Return a stored policy as a text for people."""
    policy = stored.policy
    claims = "".join(f", {name} {value}" for name, value in policy.claims)
    return escaped(
        f"policy {stored.name}: issuer {policy.issuer}, {policy.subject_claim} {policy.subject}, "
        f"audiences {' '.join(sorted(policy.audiences))}{claims}"
    )


def _claim(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=TEXT")
    return name, value
