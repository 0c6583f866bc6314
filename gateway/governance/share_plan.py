"""The steps from the stored shares to those of a file.

In: what is stored, and what is wanted. Out: steps, in an order in which each is valid: none for equal states.
Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.catalog.stored_shares import StoredShare, StoredShares
from gateway.governance.share_edits import of_document
from gateway.governance.share_records import ShareError

Verb = Literal["add", "change", "remove"]


@dataclass(frozen=True, slots=True)
class Step:
    """One share that is added, changed or removed.

    Attributes:
        verb: what is done.
        name: the name of the share.
        share: its next state; None for a removal.
        lines: what differs, for people.
        before: its state in the plan; None for an addition.

    """

    verb: Verb
    name: str
    share: StoredShare | None
    lines: tuple[str, ...] = field(default=(), compare=False)
    before: StoredShare | None = field(default=None, compare=False)


def plan(stored: StoredShares, wanted: Iterable[StoredShare], *, removes: bool) -> list[Step]:
    """Return the steps to the wanted shares; without `removes` other shares, and what they have, stay.

    A table or a schema that the file does not have is removed from a share only with `removes`, too.
    """
    steps, names = [], set()
    for share in wanted:
        names.add(share.key)
        before = stored.get(share.key)
        after = share if before is None or removes else _joined(before, share)
        if before is None or _comparable(before) != _comparable(after):
            lines = tuple(_differences(before, after))
            steps.append(Step("add" if before is None else "change", share.name, after, lines, before))
    others = [share for key, share in stored.items() if key not in names] if removes else []
    gone = [Step("remove", share.name, None, before=share) for share in others]
    # Removed first: their names, ids and directories may be those of others.
    return [*gone, *steps]


def _joined(before: StoredShare, after: StoredShare) -> StoredShare:
    """Return a share with what it has now and the other state does not."""
    earlier = dict(_parts(before))
    merged = earlier | dict(_parts(after))
    schemas: dict[str, dict[str, Any]] = {}
    for (schema, table), value in merged.items():
        if table is None:
            schemas[schema] = {"tables": [], **_discovered(earlier.get((schema, None), {})), **value}
    for (schema, table), value in merged.items():
        if table is not None:
            tables = schemas[schema]["tables"]
            if not isinstance(tables, list):
                name = schemas[schema]["name"]
                raise ShareError(
                    f"{after.name}.{name} would have listed tables and discovered ones; remove those that "
                    "are there, or give --remove"
                )
            tables.append(value)
    options = {**_discovered(before.options), **after.options}
    return of_document({"name": after.name, **options, "schemas": list(schemas.values())})


def _discovered(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the option of discovered tables; none without them."""
    return {key: value for key, value in options.items() if key == "tables"}


def _parts(share: StoredShare) -> Iterator[tuple[tuple[str, str | None], dict[str, Any]]]:
    """Iterate over schemas and tables by their keys, each as its map in the file, without its parts."""
    for schema in share.document()["schemas"]:
        # Discovered tables are a part of their schema.
        tables = schema.pop("tables") if isinstance(schema["tables"], list) else []
        key = schema["name"].casefold()
        yield (key, None), schema
        for table in tables:
            yield (key, table["name"].casefold()), table


def _comparable(share: StoredShare) -> tuple[str, Mapping[str, Any], dict[Any, Any]]:
    """Return a share for comparisons: the order of its schemas and tables does not count."""
    return share.name, dict(share.options), dict(_parts(share))


def _differences(before: StoredShare | None, after: StoredShare) -> Iterator[str]:
    options = {} if before is None else before.options
    earlier = {} if before is None else dict(_parts(before))
    later = dict(_parts(after))
    if before is not None and (before.name, _described(options)) != (after.name, _described(after.options)):
        yield "its description"
    yield from _discovery_differences("the share", options, after.options)
    for place in [*earlier, *(place for place in later if place not in earlier)]:
        name = (later.get(place) or earlier[place])["name"]
        shown = f"schema {name}" if place[1] is None else f"table {place[0]}.{name}"
        if place not in later:
            yield f"- {shown}"
        elif place not in earlier:
            yield f"+ {shown}"
        elif _described(earlier[place]) != _described(later[place]):
            yield f"~ {shown}"
        yield from _discovery_differences(shown, earlier.get(place, {}), later.get(place, {}))


def _discovery_differences(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over what differs in discovered tables, which may be those of a whole warehouse."""
    earlier, later = _discovered(before), _discovered(after)
    if earlier != later:
        sign = "-" if not later else "~" if earlier else "+"
        yield f"{sign} tables of {name} that are discovered in {(later or earlier)['tables']['discover']}"


def _described(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without discovered tables."""
    return {key: value for key, value in options.items() if key != "tables"}
