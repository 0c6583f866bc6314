"""Federation policies: the recipient of a verified token of an identity provider.

In: the claims of a token whose issuer, signature and times are verified. Out: its recipient, or
`TokenRefused` with the reason, which the log and the metrics have and the client does not get.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.catalog.catalog import Recipient

if TYPE_CHECKING:
    from gateway.telemetry.request_record import GatewayTokenRefusal, RefusalReason

SINGLE_CLAIMS = frozenset({"sub", "oid", "azp", "appid", "client_id", "email", "tid", "iss"})
"""Claims that are never a list."""
EMAIL, VERIFIED = "email", "email_verified"
SCOPES = frozenset({"scope", "scp"})
"""Claims that are words separated by blanks, or a list."""


class TokenRefused(Exception):
    """Raised for a token of an identity provider or an access token of this server that is not accepted.

    Attributes:
        reason: the check that failed; a label of metrics.
        recipient: the owner of a token of this server.

    The text explains it for the log. It holds no part of the token but names of claims.
    """

    def __init__(
        self,
        reason: RefusalReason | GatewayTokenRefusal,
        message: str,
        recipient: Recipient | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.recipient = recipient


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """Which tokens of an issuer are those of a recipient; see `gateway.config.PolicyEntry`."""

    issuer: str
    subject_claim: str
    subject: str
    audiences: frozenset[str]
    claims: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(described: Any) -> TokenPolicy:
        """Return the policy that a configuration, a request or the command line describes by these names."""
        return TokenPolicy(
            described.issuer,
            described.subject_claim,
            described.subject,
            frozenset(described.audiences),
            tuple(sorted(dict(described.claims).items())),
        )

    def accepts(self, claims: Mapping[str, Any]) -> bool:
        """Return whether the further claims have their values."""
        return all(value in claim_values(claims, name) for name, value in self.claims)


def stored_policy(issuer: str, claim: str, subject: str, audiences: str, claims: str) -> TokenPolicy:
    """Return a policy of its columns. Raises ValueError, TypeError or AttributeError for invalid ones."""
    further, accepted = tuple(sorted(json.loads(claims).items())), json.loads(audiences)
    if not isinstance(accepted, list):
        raise TypeError
    for text in (issuer, claim, subject, *accepted, *(text for pair in further for text in pair)):
        # A text that is none of UTF-8 equals no claim.
        text.encode()
    return TokenPolicy(issuer, claim, subject, frozenset(accepted), further)


def claim_values(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """Return the values of a claim. A claim of another type has none, and so has an address not verified."""
    value = claims.get(name)
    if name == EMAIL and not is_verified_email(claims):
        return frozenset()
    if name in SCOPES and isinstance(value, str):
        return frozenset(value.split(" "))
    if name in SINGLE_CLAIMS and not isinstance(value, str):
        return frozenset()
    return texts_of(value)


def is_verified_email(claims: Mapping[str, Any]) -> bool:
    """Return whether the provider has verified the address: at some, users write what they like."""
    value = claims.get(VERIFIED)
    return value is True or value == "true"


def texts_of(value: Any) -> frozenset[str]:
    """Return a text or the texts of a list, as a set."""
    if isinstance(value, str):
        return frozenset({value})
    if isinstance(value, list):
        return frozenset(text for text in value if isinstance(text, str))
    return frozenset()


class PolicyTable:
    """Policies by issuer, claim and subject."""

    def __init__(self, policies: Iterable[tuple[TokenPolicy, Recipient]] = ()) -> None:
        self._by_issuer: dict[str, dict[str, dict[str, list[tuple[TokenPolicy, Recipient]]]]] = {}
        for policy, recipient in policies:
            claims = self._by_issuer.setdefault(policy.issuer, {})
            subjects = claims.setdefault(policy.subject_claim, {})
            subjects.setdefault(policy.subject, []).append((policy, recipient))

    def replaced(
        self,
        gone: Iterable[tuple[TokenPolicy, Recipient]],
        new: Iterable[tuple[TokenPolicy, Recipient]],
    ) -> PolicyTable:
        """Return a table with some policies in place of others; this one stays as it is."""
        gone, new = tuple(gone), tuple(new)
        if not gone and not new:
            return self
        table = PolicyTable()
        table._by_issuer = dict(self._by_issuer)
        places = {(policy.issuer, policy.subject_claim) for policy, _ in (*gone, *new)}
        for issuer, claim in places:
            claims = table._by_issuer[issuer] = dict(table._by_issuer.get(issuer, {}))
            claims[claim] = dict(claims.get(claim, {}))
        for policy, recipient in gone:
            subjects = table._by_issuer[policy.issuer][policy.subject_claim]
            known = subjects.pop(policy.subject, [])
            left = [entry for entry in known if entry != (policy, recipient)]
            if left:
                subjects[policy.subject] = left
        for policy, recipient in new:
            subjects = table._by_issuer[policy.issuer][policy.subject_claim]
            subjects[policy.subject] = [*subjects.get(policy.subject, ()), (policy, recipient)]
        for issuer, claim in places:
            table._forget_empty(issuer, claim)
        return table

    def _forget_empty(self, issuer: str, claim: str) -> None:
        if not self._by_issuer[issuer][claim]:
            del self._by_issuer[issuer][claim]
        if not self._by_issuer[issuer]:
            del self._by_issuer[issuer]

    def recipient(self, claims: Mapping[str, Any]) -> Recipient:
        """Return the recipient of verified claims. Raises TokenRefused.

        A token that several recipients' policies accept is refused: nobody could say whose request it is.
        """
        by_claim = self._by_issuer.get(claims["iss"], {})
        audiences = texts_of(claims.get("aud"))
        recipients: dict[str, Recipient] = {}
        knows_subject = False
        for name, subjects in by_claim.items():
            for value in claim_values(claims, name):
                for policy, recipient in subjects.get(value, ()):
                    if not policy.accepts(claims):
                        continue
                    knows_subject = True
                    if policy.audiences & audiences:
                        recipients[recipient.name] = recipient
        if not recipients:
            if knows_subject:
                raise TokenRefused("audience", "no policy of the token's subject has its audience")
            raise TokenRefused("subject", f"no policy has the token's subject{_overage(claims, by_claim)}")
        if len(recipients) > 1:
            names = ", ".join(sorted(recipients))
            raise TokenRefused("subject", f"policies of several recipients accept the token: {names}")
        return next(iter(recipients.values()))


def _overage(claims: Mapping[str, Any], by_claim: Mapping[str, Any]) -> str:
    """Explain an absent claim that a provider left out because it would be too long."""
    absent = claims.get("_claim_names")
    left_out = [name for name in by_claim if isinstance(absent, dict) and name in absent]
    if not left_out:
        return ""
    return f": the provider left out {', '.join(left_out)}, because the subject has too many of them"
