"""The arguments of federation policies on the command line, and their text.

In: parsed arguments, or a stored policy. Out: a `TokenPolicy`, or its text.
"""

from __future__ import annotations

import argparse

from gateway.authentication.policies import TokenPolicy
from gateway.cli.operations import add_repeated
from gateway.governance.recipient_records import PolicyRecord, RecipientError
from gateway.report.text import escaped


def add_policy_arguments(parser: argparse._ActionsContainer) -> None:
    """Declare the arguments of a policy."""
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
