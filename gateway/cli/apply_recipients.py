"""The recipients of `delta-gateway apply`: all that `export` writes, and the texts of new ones.

In: the recipients of a file, and those of the database. Out: steps, each as a line of the plan and as a call.
A new recipient has no token: `delta-gateway recipient rotate` issues one. No recipient is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.authentication.policies import TokenPolicy
from gateway.catalog.grants import Grant, grant_text, place_text
from gateway.config.errors import shown_key
from gateway.database.schema import recipient_key
from gateway.governance.credentials import Policies
from gateway.governance.grant_operations import apply_grants, checked
from gateway.governance.recipient_names import check_network
from gateway.governance.recipient_records import TEXTS, NewRecipient, RecipientRecord
from gateway.governance.recipient_store import RecipientDatabase
from gateway.governance.rows import ReadRecipients
from gateway.governance.share_records import ShareError
from gateway.tables.rules import native_rule

KEYS = frozenset({"name", *TEXTS, "shares", "properties", "networks", "oidc", "forbidBearerTokens"})
GRANT_KEYS = frozenset({"share", "schema", "table", "condition"})
POLICY_KEYS = frozenset({"name", "issuer", "subject", "subjectClaim", "audiences", "claims"})


def nothing_of(_database: RecipientDatabase) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class RecipientStep:
    """One change of a recipient, as a line of the plan and as a call.

    `before` is the recipient in the plan; None: it is new. `added` has the policies and the description of
    one that is added, in place of a call: `make` adds all of them at once.
    """

    line: str
    call: Callable[[RecipientDatabase], object] = nothing_of
    before: RecipientRecord | None = None
    added: tuple[str, Mapping[str, TokenPolicy], NewRecipient] | None = None


def make(database: RecipientDatabase, steps: Sequence[RecipientStep]) -> None:
    """Make all steps of a plan. Call it within `together`."""
    database.add_all(
        {
            name: (Policies(policies), new)
            for name, policies, new in (planned.added for planned in steps if planned.added)
        }
    )
    for step in steps:
        step.call(database)


def plan_recipients(
    stored: ReadRecipients, wanted: Iterable[Any], *, removes: bool
) -> Iterator[RecipientStep]:
    """Iterate over the steps; without `removes` grants and policies that the file does not have stay.

    Raises ShareError, and RecipientUnreadable for a recipient of the file that is there and cannot be read.
    """
    known = {recipient_key(record.name): record for record in stored.records}
    recipients = [_Wanted.of(document) for document in wanted]
    keys = [recipient_key(recipient.name) for recipient in recipients]
    if len({*keys}) < len(keys):
        raise ShareError("a recipient is listed twice (names are case-insensitive)")
    stored.check_whole(keys)
    for recipient, key in zip(recipients, keys, strict=True):
        record = known.get(key)
        if record is None:
            yield _added(recipient)
            yield from _with_parts(recipient.name, (), {}, recipient, removes=False)
            if recipient.forbids_bearer_tokens:
                yield _with_bearer_tokens(recipient.name, forbidden=True)
        else:
            for step in _changed(record, recipient, removes=removes):
                yield replace(step, before=record)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A recipient of a file, as far as it is applied."""

    name: str
    texts: Mapping[str, str]
    shares: tuple[str, ...]
    """Those that are granted as a whole."""
    parts: tuple[Grant, ...]
    """Grants for parts of shares, or with conditions."""
    properties: Mapping[str, str]
    networks: tuple[str, ...] | None
    """None: they stay as they are."""
    policies: Mapping[str, TokenPolicy]
    forbids_bearer_tokens: bool | None
    """None: it stays as it is."""

    @staticmethod
    def of(document: Any) -> _Wanted:
        """Read a recipient. Raises ShareError."""
        if not isinstance(document, dict) or not isinstance(document.get("name"), str):
            raise ShareError("recipients: expected maps with a name")
        name = document["name"]
        _check_keys(name, "", document, KEYS)
        grants = [_grant(name, grant) for grant in _list(document, "shares")]
        if len({*map(_place, grants)}) < len(grants):
            raise ShareError(f"recipient {name!r}: shares has one place twice")
        forbids = document.get("forbidBearerTokens")
        if not isinstance(forbids, bool | None):
            raise ShareError(f"recipient {name!r}: forbidBearerTokens is true or false")
        return _Wanted(
            name,
            {text: str(document.get(text) or "") for text in TEXTS},
            tuple(grant.share for grant in grants if grant.is_whole_share),
            tuple(grant for grant in grants if not grant.is_whole_share),
            _properties(name, document.get("properties") or {}),
            tuple(str(check_network(str(network))) for network in _list(document, "networks")) or None,
            _policies(name, _list(document, "oidc")),
            forbids,
        )


def _check_keys(recipient: str, where: str, document: Mapping[Any, Any], keys: frozenset[str]) -> None:
    """Raise ShareError for an unknown key, and for one without a value: a condition is never left out so."""
    for key, value in document.items():
        problem = "unknown key" if key not in keys else "no value for" if value is None else None
        if problem is not None:
            raise ShareError(f"recipient {recipient!r}: {problem} {shown_key(str(key))}{where}")


def _grant(recipient: str, document: Any) -> Grant:
    """Read a grant: the name of a share, or a map as in the configuration."""
    if isinstance(document, str):
        document = {"share": document}
    if not isinstance(document, dict) or not isinstance(document.get("share"), str):
        raise ShareError(f"recipient {recipient!r}: a grant is a share's name, or a map with `share`")
    _check_keys(recipient, " of a grant", document, GRANT_KEYS)
    texts = [document.get(key) for key in ("schema", "table", "condition")]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise ShareError(f"recipient {recipient!r}: schema, table and condition of a grant are texts")
    return checked(Grant.of(document["share"], *texts))


def _place(grant: Grant) -> tuple[str, str | None, str | None]:
    return grant.share, grant.schema, grant.table


def _properties(recipient: str, document: Any) -> Mapping[str, str]:
    is_map = isinstance(document, dict)
    if not is_map or not all(isinstance(word, str) for pair in document.items() for word in pair):
        raise ShareError(f"recipient {recipient!r}: properties is a map of texts")
    for key, text in document.items():
        if not text:
            raise ShareError(f"recipient {recipient!r}: property {key!r}: expected a text")
    return {**document}


def _added(recipient: _Wanted) -> RecipientStep:
    new: Any = {
        "shares": recipient.shares,
        "networks": recipient.networks or (),
        "allow_absent": True,
        **recipient.texts,
    }
    line = f"+ recipient {recipient.name}, without a token"
    return RecipientStep(line, added=(recipient.name, recipient.policies, new))


def _changed(record: RecipientRecord, wanted: _Wanted, *, removes: bool) -> Iterator[RecipientStep]:
    name = record.name
    before, after = {*record.shares}, {*wanted.shares}
    # A grant with a condition for all of a share takes the place of the one without.
    narrowed = {grant.share for grant in wanted.parts if grant.schema is None}
    new, gone = sorted(after - before), sorted(before - after - narrowed) if removes else []
    if new:
        yield RecipientStep(
            f"~ recipient {name}: + {', '.join(new)}",
            lambda database: database.grant(name, new, allow_absent=True),
        )
    if gone:
        yield RecipientStep(
            f"~ recipient {name}: - {', '.join(gone)}", lambda database: database.revoke(name, shares=gone)
        )
    yield from _with_parts(name, record.grants, dict(record.properties), wanted, removes=removes)
    networks = wanted.networks
    if networks is not None and {*record.networks} != {*networks}:
        yield RecipientStep(
            f"~ recipient {name}: networks {', '.join(networks)}",
            lambda database: database.allow(name, networks),
        )
    stored = {policy.name: policy.policy for policy in record.policies}
    for policy_name, policy in stored.items():
        if (removes or policy_name in wanted.policies) and wanted.policies.get(policy_name) != policy:
            yield _without_policy(name, policy_name)
    for policy_name, policy in wanted.policies.items():
        if stored.get(policy_name) != policy:
            yield _with_policy(name, policy_name, policy)
    forbids = wanted.forbids_bearer_tokens
    if forbids is not None and forbids != record.forbids_bearer_tokens:
        yield _with_bearer_tokens(name, forbidden=forbids)


def _with_parts(
    name: str, grants: Sequence[Grant], properties: Mapping[str, str], wanted: _Wanted, *, removes: bool
) -> Iterator[RecipientStep]:
    """Iterate over the step for grants of parts and for properties, if they differ."""
    stored = {_place(grant): grant for grant in grants}
    given = [grant for grant in wanted.parts if stored.get(_place(grant)) != grant]
    places = {*map(_place, wanted.parts), *((share, None, None) for share in wanted.shares)}
    taken = [grant for place, grant in stored.items() if removes and place not in places]
    changed: dict[str, str | None] = {
        key: text for key, text in wanted.properties.items() if properties.get(key) != text
    }
    if removes:
        changed |= dict.fromkeys(properties.keys() - wanted.properties.keys())
    if not given and not taken and not changed:
        return
    changes = [f"+ {grant_text(grant)}" for grant in given]
    changes += [f"- {place_text(grant)}" for grant in taken]
    if changed:
        changes.append(f"properties {', '.join(sorted(changed))}")
    yield RecipientStep(
        f"~ recipient {name}: {'; '.join(changes)}",
        lambda database: apply_grants(
            database, name, given=given, taken=taken, properties=changed, parse=native_rule
        ),
    )


def _with_bearer_tokens(name: str, *, forbidden: bool) -> RecipientStep:
    return RecipientStep(
        f"~ recipient {name}: bearer tokens {'forbidden' if forbidden else 'allowed'}",
        lambda database: database.forbid_bearer_tokens(name, forbidden=forbidden),
    )


def _with_policy(name: str, policy_name: str, policy: TokenPolicy) -> RecipientStep:
    return RecipientStep(
        f"~ recipient {name}: + policy {policy_name}",
        lambda database: database.add_policy(name, policy_name, policy, allow_absent=True),
    )


def _without_policy(name: str, policy_name: str) -> RecipientStep:
    return RecipientStep(
        f"~ recipient {name}: - policy {policy_name}",
        lambda database: database.remove_policy(name, policy_name),
    )


def _policies(recipient: str, documents: list[Any]) -> Mapping[str, TokenPolicy]:
    policies = dict(_policy(recipient, policy) for policy in documents)
    if len(policies) < len(documents):
        raise ShareError(f"recipient {recipient!r}: oidc has a name twice")
    return policies


def _policy(recipient: str, document: Any) -> tuple[str, TokenPolicy]:
    try:
        _check_keys(recipient, " of a policy", document, POLICY_KEYS)
        policy = TokenPolicy(
            str(document["issuer"]),
            str(document.get("subjectClaim", "sub")),
            str(document["subject"]),
            frozenset(str(audience) for audience in _listed(document["audiences"])),
            tuple(sorted((str(name), str(text)) for name, text in document.get("claims", {}).items())),
        )
        return str(document["name"]), policy
    except (KeyError, TypeError, AttributeError):
        raise ShareError(
            f"recipient {recipient!r}: a policy has name, issuer, subject and audiences, a list"
        ) from None


def _listed(value: Any) -> list[Any]:
    """Return a list. Raises TypeError: a text is no list of its characters."""
    if not isinstance(value, list):
        raise TypeError
    return value


def _list(document: Mapping[str, Any], key: str) -> list[Any]:
    value = document.get(key) or []
    if not isinstance(value, list):
        raise ShareError(f"recipient {document['name']!r}: {key} is a list")
    return value
