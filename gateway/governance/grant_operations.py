"""Operations on grants for parts of shares, with conditions, and on the properties of recipients.

In: the database, and a function that parses conditions. Out: changed records. A recipient has at most one
grant for a place: another one replaces it. No change leaves a condition that cannot be parsed, such as one
that names a property that is removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from gateway.catalog.grants import MAX_CONDITION_BYTES, Grant, Rule, grant_text, place_text
from gateway.config.checks import MAX_NAME_LENGTH, MAX_PROPERTIES, MAX_PROPERTY_LENGTH
from gateway.config.recipients import EVERY_SHARE
from gateway.governance import rows
from gateway.governance.recipient_changes import RecipientChanges
from gateway.governance.recipient_names import check_comment, check_name, check_share
from gateway.governance.recipient_records import RecipientError, RecipientRecord

Parse = Callable[[Rule], object]
"""Parses a rule. Raises ValueError with the reason."""

_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
_PLACE = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern})){{0,2}}")


def place_of(text: str, known_shares: Iterable[str], condition: str | None = None) -> Grant:
    """Return the grant for `SHARE`, `SHARE.SCHEMA` or `SHARE.SCHEMA.TABLE`. Raises RecipientError.

    A name with a dot stands in backticks; the text of a known share needs none.
    """
    if text == EVERY_SHARE or text.casefold() in {share.casefold() for share in known_shares}:
        return Grant.of(text, None, None, condition)
    if not _PLACE.fullmatch(text):
        raise RecipientError(f"{text!r} is none of SHARE, SHARE.SCHEMA and SHARE.SCHEMA.TABLE")
    parts = [_plain(part) for part in _PART.findall(text)]
    schema, table = (*parts[1:], None, None)[:2]
    return checked(Grant.of(parts[0], schema, table, condition))


def share_of(text: str, known_shares: Iterable[str]) -> str:
    """Return the name of a share from the text of a place that is all of it, as it is spelled there."""
    is_known = text.casefold() in {share.casefold() for share in known_shares}
    return text if is_known else _plain(text)


def _plain(part: str) -> str:
    return part[1:-1].replace("``", "`") if part.startswith("`") else part


def checked(grant: Grant) -> Grant:
    """Return a grant of valid names and texts. Raises RecipientError."""
    for what, name in (("share", grant.share), ("schema", grant.schema), ("table", grant.table)):
        if name is not None:
            check_share(name, f"{what} name")
    if grant.table is not None and grant.schema is None:
        raise RecipientError("a grant for a table names its schema")
    if grant.condition is not None:
        check_condition(grant.condition)
    return grant


def check_condition(condition: str) -> None:
    """Check the text of a condition. Raises RecipientError."""
    try:
        size = len(condition.encode())
    except UnicodeEncodeError:
        raise RecipientError("condition: expected UTF-8 text") from None
    if not condition.strip() or size > MAX_CONDITION_BYTES or "\0" in condition:
        raise RecipientError(f"condition: expected 1 to {MAX_CONDITION_BYTES} bytes")


def grant_parts(
    database: RecipientChanges,
    name: str,
    grants: Iterable[Grant],
    parse: Parse,
    *,
    allow_absent: bool = False,
) -> RecipientRecord:
    """Give grants to a recipient; each replaces the one for the same place. Raises RecipientNotFound.

    `allow_absent`: of shares that are configured later, too.
    """
    given = [checked(grant) for grant in grants]
    with database.changing("updateSharePermissions", name) as (connection, detail, record):
        database.check_shares([grant.share for grant in given], allow_absent=allow_absent)
        for grant in given:
            _check_rule(grant, record.properties, parse)
            rows.put_grant(connection, record, grant)
        detail["granted"] = "; ".join(map(grant_text, given))
        return rows.read_one(connection, name)


def apply_grants(
    database: RecipientChanges,
    name: str,
    *,
    given: Iterable[Grant],
    taken: Iterable[Grant],
    properties: Mapping[str, str | None],
    parse: Parse,
) -> RecipientRecord:
    """Give grants, take others back by their places, and change properties, in one change.

    So no request meets a condition with the properties of another time. The shares may be absent. Properties
    whose text is None are removed, and those that are not named stay. Raises RecipientNotFound, and
    RecipientError also for a condition that needs a property that is not there.
    """
    added, removed = [checked(grant) for grant in given], [*taken]
    for key, text in properties.items():
        _check_property(key, text)
    with database.changing("updateSharePermissions", name) as (connection, detail, record):
        for grant in removed:
            rows.delete_grant(connection, record, grant)
        for grant in added:
            rows.put_grant(connection, record, grant)
        changed_properties = _changed_properties(record, properties)
        rows.update(connection, name, properties=rows.properties_text(changed_properties))
        result = rows.read_one(connection, name)
        for grant in result.grants:
            _check_rule(grant, result.properties, parse)
        changed = {key for key, _ in {*record.properties} ^ {*result.properties}}
        for what, texts in (
            ("granted", map(grant_text, added)),
            ("revoked", map(place_text, removed)),
            # Texts may be personal; their names say what has changed.
            ("properties", sorted(changed)),
        ):
            if text := "; ".join(texts):
                detail[what] = text
        return result


def revoke_parts(database: RecipientChanges, name: str, grants: Iterable[Grant]) -> RecipientRecord:
    """Take the grants for these places back, with any condition. Raises RecipientError for other places."""
    taken = [checked(grant) for grant in grants]
    with database.changing("updateSharePermissions", name) as (connection, detail, record):
        for grant in taken:
            if not rows.delete_grant(connection, record, grant):
                raise record.not_granted(place_text(grant), grant)
        detail["revoked"] = "; ".join(map(place_text, taken))
        return rows.read_one(connection, name)


def set_properties(
    database: RecipientChanges, name: str, changes: Mapping[str, str | None], parse: Parse
) -> RecipientRecord:
    """Set properties of a recipient, or remove those whose text is None; the others stay.

    Raises RecipientNotFound, and RecipientError where a condition of its grants needs a removed one.
    """
    for key, text in changes.items():
        _check_property(key, text)
    with database.changing("updateRecipient", name) as (connection, detail, record):
        properties = _changed_properties(record, changes)
        absent = [key for key, text in changes.items() if text is None and key not in dict(record.properties)]
        if absent:
            raise RecipientError(f"{record.name!r} has no property {absent[0]!r}")
        for grant in record.grants:
            _check_rule(grant, properties.items(), parse)
        rows.update(connection, name, properties=rows.properties_text(properties))
        # Texts may be personal; their names say what has changed.
        detail["properties"] = " ".join(sorted(changes))
        return rows.read_one(connection, name)


def _changed_properties(record: RecipientRecord, changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return the properties of a recipient after changes. Raises RecipientError for too many."""
    unchanged = {key: text for key, text in record.properties if key not in changes}
    properties = unchanged | {key: text for key, text in changes.items() if text is not None}
    if len(properties) > MAX_PROPERTIES:
        raise RecipientError(f"a recipient has at most {MAX_PROPERTIES} properties")
    return properties


def _check_property(key: str, text: str | None) -> None:
    check_name(key, "property name")
    if len(key) > MAX_NAME_LENGTH:
        raise RecipientError(f"property name: expected at most {MAX_NAME_LENGTH} characters")
    if text is not None:
        check_comment(text)
        if not text:
            # Compared with `<>` it would grant more than any other text.
            raise RecipientError(f"property {key!r}: expected a text; a property without one is removed")
        if len(text) > MAX_PROPERTY_LENGTH:
            raise RecipientError(f"property {key!r}: expected at most {MAX_PROPERTY_LENGTH} characters")


def _check_rule(grant: Grant, properties: Iterable[tuple[str, str]], parse: Parse) -> None:
    if grant.condition is None:
        return
    try:
        parse(Rule((grant.condition,), tuple(sorted(properties))))
    except ValueError as reason:
        raise RecipientError(f"the condition for {place_text(grant)}: {reason}") from None
