"""Drawn tables with typed partition columns, drawn rules for them, and the truth of a rule for a file.

The truth is computed here, by Python's own types and SQL's logic of three values, from the texts of the log.
"""

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from hypothesis import strategies as st
from tables import random_logs
from tables.random_logs import START_MS, Log

from support.reference import Action

Values = tuple[str | None, ...]
UTC = dt.UTC


def boolean(text: str) -> bool:
    return {"true": True, "false": False}[text]


def instant(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


@dataclass(frozen=True)
class Kind:
    """A type of partition columns: its texts in logs, its constants as SQL, and how both are read."""

    name: str
    texts: Sequence[str]
    read: Callable[[str], Any]
    sql: Callable[[str], str]
    odd: str | None = None


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


KINDS = (
    Kind(
        "string",
        ("eu", "EU", "us", "a b", "it's", "ü", "100%", "a\\b", "😀", "~", "e"),
        str,
        quoted,
        odd="__HIVE_DEFAULT_PARTITION__",
    ),
    Kind("integer", ("0", "1", "7", "-1", "2147483647"), int, str, odd="seven"),
    Kind("long", ("0", "9007199254740993", "9007199254740992", "-5"), int, str, odd="1e2"),
    Kind(
        "date",
        ("2026-01-01", "2025-12-31", "2024-02-29", "1969-12-31"),
        dt.date.fromisoformat,
        lambda text: f"date '{text}'",
        odd="2026-01",
    ),
    Kind("boolean", ("true", "false"), boolean, str, odd="yes"),
    Kind("decimal(5,2)", ("1.50", "0.01", "-1.00", "999.99"), Decimal, str, odd="1.005"),
    Kind(
        "timestamp",
        ("2026-01-01T00:00:00.000000Z", "2025-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.000001Z"),
        instant,
        lambda text: f"TIMESTAMP '{text}'",
    ),
    Kind(
        "timestamp_ntz",
        ("2026-01-01 00:00:00", "2025-12-31 23:59:59.999999"),
        instant,
        lambda text: f"TIMESTAMP_NTZ '{text}'",
    ),
)

COLUMNS = ("region", "Day")
OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": eq,
    "<>": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


@dataclass(frozen=True)
class Condition:
    """A condition as SQL, its properties, and its truth: True, False, or None for null."""

    sql: str
    truth: Callable[[Sequence[Any]], bool | None]
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawn:
    """What a table and a rule are made of."""

    kinds: tuple[Kind, Kind]
    is_mapped: bool
    files: Sequence[Values]
    steps: Sequence[tuple[Any, ...]]
    conditions: Sequence[Condition]
    hint: Condition

    def is_inside(self, number: int) -> bool | None:
        """Whether a file belongs to the rule; None if readers may disagree."""
        readings = product(*map(readings_of, self.kinds, self.files[number]))
        truths = {any(condition.truth(row) is True for condition in self.conditions) for row in readings}
        return truths.pop() if len(truths) == 1 else None

    def is_odd(self, number: int) -> bool:
        """Whether a file has a text that readers may take for different values."""
        return any(
            text == kind.odd is not None for kind, text in zip(self.kinds, self.files[number], strict=True)
        )

    def row(self, number: int) -> list[Any]:
        """The values of a file that has no odd text."""
        return [*next(product(*map(readings_of, self.kinds, self.files[number])))]

    @property
    def properties(self) -> dict[str, str]:
        """The properties of all conditions."""
        return {name: text for one in self.conditions for name, text in one.properties.items()}


def readings_of(kind: Kind, text: str | None) -> list[Any]:
    """The values for which readers may take a text of the log: one, or any for an odd text."""
    if not text:
        return [None]
    if text != kind.odd:
        return [kind.read(text)]
    return [None, text] if kind.name == "string" else [None, *map(kind.read, kind.texts)]


@dataclass
class RuledLog(Log):
    """A log whose files have numbers; the number decides the partition values."""

    drawn: Drawn | None = None

    @property
    def of(self) -> Drawn:
        """What it is made of."""
        assert self.drawn is not None
        return self.drawn

    @property
    def physical(self) -> tuple[str, ...]:
        """The keys of partition values."""
        return tuple(f"col-{name}" if self.of.is_mapped else name for name in COLUMNS)

    @property
    def protocol(self) -> Action:
        """With column mapping."""
        protocol = dict(random_logs.Log.protocol.fget(self))  # type: ignore[attr-defined]
        for name in ("readerFeatures", "writerFeatures"):
            protocol[name] = [*protocol[name], "columnMapping"]
        return protocol

    @property
    def metadata(self) -> Action:
        """With the drawn partition columns."""
        metadata: Action = dict(random_logs.Log.metadata.fget(self))  # type: ignore[attr-defined]
        kinds = {"id": "long"} | dict(zip(COLUMNS, (kind.name for kind in self.of.kinds), strict=True))
        stored = dict(zip(COLUMNS, self.physical, strict=True))
        fields = [
            {
                "name": name,
                "type": kind,
                "nullable": True,
                "metadata": {
                    "delta.columnMapping.id": index,
                    "delta.columnMapping.physicalName": stored.get(name, name),
                }
                if self.of.is_mapped
                else {},
            }
            for index, (name, kind) in enumerate(kinds.items(), 1)
        ]
        mode = {"delta.columnMapping.mode": "name"} if self.of.is_mapped else {}
        return metadata | {
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": list(COLUMNS),
            "configuration": metadata["configuration"] | mode,
        }

    def add(self, number: int, vector: Action | None, data_change: bool) -> Action:
        """The add of a file."""
        add: Action = {
            "path": f"f{number}.parquet",
            "partitionValues": dict(zip(self.physical, self.of.files[number], strict=True)),
            "size": 100 + number,
            "modificationTime": START_MS,
            "dataChange": data_change,
            "stats": '{"numRecords":10}',
        }
        return add | ({"deletionVector": vector} if vector else {})

    def carry_out(self, step: tuple[Any, ...]) -> None:
        """One step."""
        match step:
            case ("commit", added, removed, changing):
                self.commit(self.actions(dict(added), set(removed), changing))
            case _:
                random_logs.carry_out(self, step)

    def actions(self, added: Mapping[int, Action | None], removed: set[int], changing: str) -> list[Action]:
        """Removes of live files, then adds, or in their place files of change data."""
        data_change = changing != "no change"
        live = dict(self.live)
        actions: list[Action] = []
        touched = []
        for number in sorted(removed | set(added)):
            path = f"f{number}.parquet"
            if path in live:
                if number in added and random_logs.deletion_vector_id(added[number]) == live[path]:
                    continue
                old = random_logs.removal(self, self.live[path, live[path]], data_change)
                if changing == "bare files":
                    old = {name: old[name] for name in old if name not in random_logs.DISPENSABLE}
                actions.append({"remove": old})
                touched.append(number)
        for number, vector in added.items():
            actions.append({"add": self.add(number, vector, data_change)})
            touched.append(number)
        if changing == "change files":
            for number in dict.fromkeys(touched):
                path = f"_change_data/cdc-{self.next_version}-f{number}.parquet"
                values = dict(zip(self.physical, self.of.files[number], strict=True))
                cdc = {"path": path, "partitionValues": values, "size": 7, "dataChange": False}
                actions.append({"cdc": cdc})
        return actions


VECTORS: list[Action | None] = [None, None, random_logs.VECTORS[-1]]


@st.composite
def conditions(draw: st.DrawFn, kinds: tuple[Kind, Kind], prefix: str, depth: int = 2) -> Condition:
    """A condition over the two columns."""
    shape = draw(st.integers(0, 8 if depth else 5))
    if shape >= 6:
        children = [draw(conditions(kinds, f"{prefix}{n}", depth - 1)) for n in range(1 if shape == 8 else 2)]
        properties = {name: text for child in children for name, text in child.properties.items()}
        if shape == 8:
            (child,) = children
            return Condition(f"NOT ({child.sql})", lambda row: negated(child.truth(row)), properties)
        word, join = ("AND", both) if shape == 6 else ("OR", either)
        text = f" {word} ".join(f"({child.sql})" for child in children)
        return Condition(text, lambda row: join(*(child.truth(row) for child in children)), properties)
    column = draw(st.integers(0, 1))
    kind = kinds[column]
    spelled = draw(st.sampled_from([COLUMNS[column], COLUMNS[column].upper(), f"`{COLUMNS[column]}`"]))
    first, second = (draw(st.sampled_from(kind.texts)) for _ in range(2))
    one, two = kind.read(first), kind.read(second)
    if shape == 0:
        is_null = draw(st.booleans())
        return Condition(
            f"{spelled} IS {'' if is_null else 'NOT '}NULL", lambda row: (row[column] is None) == is_null
        )
    if shape == 1:
        return Condition(
            f"{spelled} IN ({kind.sql(first)}, {kind.sql(second)})",
            lambda row: None if row[column] is None else row[column] in (one, two),
        )
    if shape == 2 and kind.name != "boolean":
        return Condition(
            f"{spelled} BETWEEN {kind.sql(first)} AND {kind.sql(second)}",
            lambda row: None if row[column] is None else ordered(one) <= ordered(row[column]) <= ordered(two),
        )
    operator = draw(st.sampled_from([*OPERATORS])) if kind.name != "boolean" else "="
    constant, properties = kind.sql(first), {}
    if kind.name in ("string", "integer", "long") and draw(st.booleans()):
        constant, properties = f"recipient.{prefix}", {prefix: first}
    compare = OPERATORS[operator]
    return Condition(
        f"{spelled} {operator} {constant}",
        lambda row: None if row[column] is None else compare(ordered(row[column]), ordered(one)),
        properties,
    )


def ordered(value: Any) -> Any:
    """Strings are compared by their bytes."""
    return value.encode() if isinstance(value, str) else value


def negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def either(one: bool | None, other: bool | None) -> bool | None:
    return negated(both(negated(one), negated(other)))


@st.composite
def tables(draw: st.DrawFn) -> Drawn:
    """A table and a rule of one or two conditions."""
    kinds = (draw(st.sampled_from(KINDS)), draw(st.sampled_from(KINDS)))
    is_odd = draw(st.integers(0, 9)) == 0

    def value(kind: Kind) -> st.SearchStrategy[str | None]:
        odd = [kind.odd] if is_odd and kind.odd is not None else []
        return st.sampled_from([None, "", *kind.texts, *odd])

    files = draw(st.lists(st.tuples(*map(value, kinds)), min_size=1, max_size=8))
    numbers = st.integers(0, len(files) - 1)
    commit = st.tuples(
        st.just("commit"),
        st.lists(st.tuples(numbers, st.sampled_from(VECTORS)), max_size=5, unique_by=lambda added: added[0]),
        st.lists(numbers, max_size=3),
        st.sampled_from(["files", "files", "bare files", "change files", "no change"]),
    )
    checkpoint = st.tuples(st.just("checkpoint"), st.sampled_from(random_logs.FORMS), st.just("right"))
    whole = ("commit", [(number, None) for number in range(len(files))], [], "files")
    steps = draw(st.lists(st.one_of(commit, commit, checkpoint), max_size=6))
    rules = [draw(conditions(kinds, f"p{n}")) for n in range(draw(st.integers(1, 2)))]
    hint = draw(conditions(kinds, "h").filter(lambda condition: not condition.properties))
    return Drawn(kinds, draw(st.booleans()), files, [whole, *steps], rules, hint)
