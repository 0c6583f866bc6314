"""Valid names of recipients and shares, and valid comments, networks and policies."""

from __future__ import annotations

import re

from gateway.authentication.policies import TokenPolicy
from gateway.config.checks import DOTS, MAX_NAME_LENGTH
from gateway.config.networks import Network, parse_network
from gateway.governance.recipient_records import RecipientError

MAX_POLICY_TEXT_LENGTH = 1024
POLICY_TEXT = f"UTF-8 text of 1 to {MAX_POLICY_TEXT_LENGTH} characters without control characters"

_NO_TEXT = r"\x00-\x1f\x7f-\x9f\ud800-\udfff"
"""Control characters, and surrogates, which represent command-line bytes that are not UTF-8."""
_NAME = re.compile(rf"[^{_NO_TEXT}\s/]+")
_SHARE = re.compile(rf"[^{_NO_TEXT}/]+")
_POLICY = re.compile(r"[a-z0-9-]{1,255}")
_COMMENT = re.compile(rf"[^{_NO_TEXT}]*")


def check_name(name: str, what: str = "recipient name") -> None:
    """Check a name. Raises RecipientError for blanks, `/`, control characters or a wrong length."""
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name) or name in DOTS:
        expected = f"1 to {MAX_NAME_LENGTH} characters without blanks, '/' and control characters"
        raise RecipientError(f"{what}: expected {expected}, not . and ..")


def check_policy(name: str, policy: TokenPolicy) -> None:
    """Check a federation policy and its name. Raises RecipientError."""
    if not _POLICY.fullmatch(name):
        raise RecipientError("policy name: expected 1 to 255 lower-case letters, digits and '-'")
    texts = {
        "issuer": [policy.issuer],
        "subject claim": [policy.subject_claim],
        "subject": [policy.subject],
        "audience": [*policy.audiences],
        "claim": [text for claim in policy.claims for text in claim],
    }
    for what, values in texts.items():
        for value in values:
            if not 0 < len(value) <= MAX_POLICY_TEXT_LENGTH or not _COMMENT.fullmatch(value):
                raise RecipientError(f"{what}: expected {POLICY_TEXT}")
    if not policy.audiences:
        raise RecipientError("a policy needs an audience: a token for another service must not be accepted")


def check_share(share: str, what: str = "share name") -> None:
    """Check the name of a share, or of a part of one. Raises RecipientError."""
    if len(share) > MAX_NAME_LENGTH or not _SHARE.fullmatch(share) or share in DOTS:
        expected = f"1 to {MAX_NAME_LENGTH} characters without '/' and control characters"
        raise RecipientError(f"{what}: expected {expected}")


def check_comment(comment: str, what: str = "comment") -> None:
    """Check a text. Raises RecipientError for control characters and text that is not UTF-8."""
    if not _COMMENT.fullmatch(comment):
        raise RecipientError(f"{what}: expected UTF-8 text without control characters")


def check_network(text: str) -> Network:
    """Return the network of a text. Raises RecipientError."""
    # An IPv6 zone may contain any character.
    check_comment(text, f"network {text!r}")
    try:
        return parse_network(text)
    except ValueError as error:
        raise RecipientError(f"{error}; accepted: an address, or a network such as 192.0.2.0/24") from None
