"""The recipients of `delta-gateway apply`: whole shares, networks, policies and the comment of new ones.

In: the recipients of a file, and those of the database. Out: steps, each as a line of the plan and as a call.
A new recipient has no token: `delta-gateway recipient rotate` issues one. No recipient is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.access.federation import FederationPolicy
from gateway.access.share_records import ShareError

if TYPE_CHECKING:
    from gateway.access.recipient_records import RecipientRecord
    from gateway.access.recipient_store import RecipientDatabase

KEYS = frozenset({"name", "comment", "shares", "properties", "networks", "oidc", "forbidBearerTokens"})


@dataclass(frozen=True, slots=True)
class RecipientStep:
    """One change of a recipient, as a line of the plan and as a call."""

    line: str
    make: Callable[[RecipientDatabase], object]


def plan_recipients(
    records: Iterable[RecipientRecord], wanted: Iterable[Any], *, removes: bool
) -> Iterator[RecipientStep]:
    """Iterate over the steps; without `removes` grants and policies that the file does not have stay."""
    known = {record.name.lower(): record for record in records}
    for document in wanted:
        recipient = _Wanted.of(document)
        record = known.get(recipient.name.lower())
        if record is None:
            yield _added(recipient)
        else:
            yield from _changed(record, recipient, removes=removes)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A recipient of a file, as far as it is applied."""

    name: str
    comment: str
    shares: tuple[str, ...]
    networks: tuple[str, ...] | None
    """None: they stay as they are."""
    policies: Mapping[str, FederationPolicy]

    @staticmethod
    def of(document: Any) -> _Wanted:
        """Read a recipient. Raises ShareError."""
        if not isinstance(document, dict) or not isinstance(document.get("name"), str):
            raise ShareError("recipients: expected maps with a name")
        name = document["name"]
        unknown = sorted(str(key) for key in document.keys() - KEYS)
        if unknown:
            raise ShareError(f"recipient {name!r}: unknown key {unknown[0]!r}")
        parts = [one for one in _list(document, "shares") if not isinstance(one, str)]
        for key in ("properties", "forbidBearerTokens"):
            if document.get(key):
                raise ShareError(
                    f"recipient {name!r}: {key} is not applied; take it out, and use `recipient`"
                )
        if parts:
            raise ShareError(f"recipient {name!r}: grants for parts are not applied; take them out")
        return _Wanted(
            name,
            str(document.get("comment") or ""),
            tuple(_list(document, "shares")),
            tuple(str(one) for one in _list(document, "networks")) if document.get("networks") else None,
            dict(_policy(name, one) for one in _list(document, "oidc")),
        )


def _added(recipient: _Wanted) -> RecipientStep:
    def make(database: RecipientDatabase) -> object:
        return database.add_federated(
            recipient.name,
            recipient.policies,
            shares=recipient.shares,
            networks=recipient.networks or (),
            comment=recipient.comment,
            allow_absent=True,
        )

    return RecipientStep(f"+ recipient {recipient.name}, without a token", make)


def _changed(record: RecipientRecord, wanted: _Wanted, *, removes: bool) -> Iterator[RecipientStep]:
    name = record.name
    before = {share.casefold() for share in record.shares}
    after = {share.casefold() for share in wanted.shares}
    new, gone = sorted(after - before), sorted(before - after) if removes else []
    if new:
        yield RecipientStep(
            f"~ recipient {name}: + {', '.join(new)}",
            lambda database: database.grant(name, new, allow_absent=True),
        )
    if gone:
        yield RecipientStep(
            f"~ recipient {name}: - {', '.join(gone)}", lambda database: database.revoke(name, shares=gone)
        )
    networks = wanted.networks
    if networks is not None and {*record.networks} != {*networks}:
        yield RecipientStep(
            f"~ recipient {name}: networks {', '.join(networks)}",
            lambda database: database.allow(name, networks),
        )
    stored = {policy.name: policy.policy for policy in record.policies}
    for policy_name in stored if removes else ():
        if stored[policy_name] != wanted.policies.get(policy_name):
            yield _without_policy(name, policy_name)
    for policy_name, policy in wanted.policies.items():
        if policy_name not in stored or (removes and stored[policy_name] != policy):
            yield _with_policy(name, policy_name, policy)


def _with_policy(name: str, policy_name: str, policy: FederationPolicy) -> RecipientStep:
    return RecipientStep(
        f"~ recipient {name}: + policy {policy_name}",
        lambda database: database.add_policy(name, policy_name, policy, allow_absent=True),
    )


def _without_policy(name: str, policy_name: str) -> RecipientStep:
    return RecipientStep(
        f"~ recipient {name}: - policy {policy_name}",
        lambda database: database.remove_policy(name, policy_name),
    )


def _policy(recipient: str, document: Any) -> tuple[str, FederationPolicy]:
    try:
        policy = FederationPolicy(
            str(document["issuer"]),
            str(document.get("subjectClaim") or "sub"),
            str(document["subject"]),
            frozenset(str(one) for one in document["audiences"]),
            tuple(sorted((str(name), str(text)) for name, text in (document.get("claims") or {}).items())),
        )
        return str(document["name"]), policy
    except (KeyError, TypeError, AttributeError):
        raise ShareError(
            f"recipient {recipient!r}: a policy has name, issuer, subject and audiences"
        ) from None


def _list(document: Mapping[str, Any], key: str) -> list[Any]:
    value = document.get(key) or []
    if not isinstance(value, list):
        raise ShareError(f"recipient {document['name']!r}: {key} is a list")
    return value
