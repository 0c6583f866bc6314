"""The steps from the stored shares to the shares of a file.

In: the stored and the wanted shares. Out: steps, in an order in which each is valid; none for equal states.
Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gateway.catalog.stored_shares import StoredSchema, StoredShare, StoredShares, StoredTable
from gateway.governance.share_records import ShareError

Verb = Literal["add", "change", "remove"]
_Place = tuple[str, str | None]
_Part = StoredSchema | StoredTable


@dataclass(frozen=True, slots=True)
class Step:
    """One share that is added, changed or removed.

    Attributes:
        verb: the kind of change.
        name: the name of the share.
        share: its next state; None for a removal.
        lines: the differences, for people.
        before: its state in the plan; None for an addition.

    """

    verb: Verb
    name: str
    share: StoredShare | None
    lines: tuple[str, ...] = field(default=(), compare=False)
    before: StoredShare | None = field(default=None, compare=False)


def plan(stored: StoredShares, wanted: Iterable[StoredShare], *, removes: bool) -> list[Step]:
    """Return the steps to the wanted shares. Without `removes` other shares, schemas and tables stay."""
    steps, names = [], set()
    for share in wanted:
        names.add(share.key)
        before = stored.get(share.key)
        after = share if before is None or removes else _joined(before, share)
        if before is None or _comparable(before) != _comparable(after):
            lines = tuple(_differences(before, after))
            steps.append(Step("add" if before is None else "change", share.name, after, lines, before))
    removed = [
        Step("remove", share.name, None, before=share)
        for key, share in stored.items()
        if removes and key not in names
    ]
    # Removed first: other shares may take their names, ids and directories.
    return [*removed, *steps]


def _joined(before: StoredShare, after: StoredShare) -> StoredShare:
    """Return the next state of a share with the schemas, tables, volumes and discovery that it lacks."""
    schemas = {schema.key: schema for schema in before.schemas}
    for schema in after.schemas:
        earlier = schemas.get(schema.key)
        schemas[schema.key] = schema if earlier is None else _joined_schema(after.name, earlier, schema)
    return StoredShare(after.name, _joined_options(before, after), tuple(schemas.values()))


def _joined_schema(share: str, before: StoredSchema, after: StoredSchema) -> StoredSchema:
    options = _joined_options(before, after)
    if "volumes" in before.options:
        options["volumes"] = _joined_volumes(before.options["volumes"], after.options.get("volumes") or [])
    tables = {table.key: table for table in (*before.tables, *after.tables)}
    if tables and "tables" in options:
        raise ShareError(
            f"{share}.{after.name} would have listed tables and discovered ones; remove those that "
            "are there, or give --remove"
        )
    return StoredSchema(after.name, options, tuple(tables.values()))


def _joined_volumes(before: Any, after: Any) -> Any:
    """Return volumes with those of a stored schema that they lack, in its order; anything else as it is."""
    if not isinstance(before, list) or not isinstance(after, list):
        return after
    named = [*map(_volume_key, after)]
    kept = [volume for volume in before if _volume_key(volume) not in named]
    order = {_volume_key(volume): place for place, volume in enumerate(before)}
    return sorted([*kept, *after], key=lambda volume: order.get(_volume_key(volume), len(order)))


def _volume_key(volume: Any) -> str:
    return str(volume.get("name")).casefold() if isinstance(volume, Mapping) else ""


def _joined_options(before: StoredShare | StoredSchema, after: StoredShare | StoredSchema) -> dict[str, Any]:
    return {**_discovered(before.options), **after.options}


def _discovered(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the option of discovered tables; none without them."""
    return {key: value for key, value in options.items() if key == "tables"}


def _parts(share: StoredShare) -> dict[_Place, _Part]:
    """Return schemas, without their tables, and tables by their keys."""
    parts: dict[_Place, _Part] = {}
    for schema in share.schemas:
        parts[schema.key, None] = replace(schema, tables=())
        parts |= {(schema.key, table.key): table for table in schema.tables}
    return parts


def _comparable(share: StoredShare) -> tuple[str, Mapping[str, Any], dict[_Place, _Part]]:
    """Return a share for comparisons: the order of its schemas and tables does not count."""
    return share.name, share.options, _parts(share)


def _differences(before: StoredShare | None, after: StoredShare) -> Iterator[str]:
    if before is not None and _described(before) != _described(after):
        yield "its description"
    yield from _discovery_differences("the share", before, after)
    earlier = {} if before is None else _parts(before)
    later = _parts(after)
    for place in [*earlier, *(place for place in later if place not in earlier)]:
        part, former = later.get(place), earlier.get(place)
        name = (part or earlier[place]).name
        shown = f"schema {name}" if place[1] is None else f"table {place[0]}.{name}"
        if part is None:
            yield f"- {shown}"
        elif former is None:
            yield f"+ {shown}"
        elif _described(former) != _described(part):
            yield f"~ {shown}"
        yield from _discovery_differences(shown, former, part)


def _discovery_differences(
    name: str, before: StoredShare | _Part | None, after: StoredShare | _Part | None
) -> Iterator[str]:
    """Iterate over the differences of discovered tables, which may be a whole warehouse."""
    earlier, later = ({} if part is None else _discovered(part.options) for part in (before, after))
    if earlier != later:
        sign = "-" if not later else "~" if earlier else "+"
        yield f"{sign} tables of {name} that are discovered in {(later or earlier)['tables']['discover']}"


def _described(part: StoredShare | _Part) -> tuple[str, str, dict[str, Any]]:
    """Return the name, the location and the options of a part without discovered tables."""
    options = {key: value for key, value in part.options.items() if key != "tables"}
    return part.name, part.location if isinstance(part, StoredTable) else "", options
