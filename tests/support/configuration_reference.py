"""The configuration reference: tables of all keys, made from the classes that validate them.

A key's type, default and accepted range come from its field, its unit from its name, and its meaning from
the `Attributes` section of its class.
`python3 tests/support/configuration_reference.py docs/configuration-reference.md`
rewrites the tables in the page; a test compares the page with the code.
"""

import collections.abc
import dataclasses
import re
import sys
import textwrap
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gateway.config.effects import EFFECTS, Effect
from gateway.config.known_keys import forms_of, known_keys, types_of
from gateway.config.location_template import LocationTemplate
from gateway.config.locations import Location
from gateway.config.operation import RecipientLimits
from gateway.config.recipients import RecipientEntry
from gateway.config.secret import Secret
from gateway.config.sections import Config

TYPE_NAMES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "text",
    datetime: "time",
    Location: "location",
    LocationTemplate: "location with placeholders",
    Path: "file name",
    Secret: "secret",
}
UNITS = {"_seconds": "s", "_ms": "ms", "_bytes": "bytes", "_bytes_per_second": "bytes/s"}
"""The unit of a field by the longest suffix of its name that is here."""

_SECONDS_OF = {"s": 1.0, "ms": 0.001}
_PERIODS = (("d", 86_400), ("h", 3600), ("min", 60))
_MIB = 1024 * 1024
_TABLE_HEAD = "| key | type | default | unit | meaning |\n| --- | --- | --- | --- | --- |\n"


@dataclass(frozen=True)
class Key:
    """A key of the file as the reference shows it.

    Attributes:
        path: the whole key, such as `gateway.recipients[].name`.
        type: the accepted values.
        default: the value without the key, or `required`.
        unit: unit of the number; empty without one.
        meaning: effect of the key.

    """

    path: str
    type: str
    default: str
    unit: str
    meaning: str

    @property
    def name(self) -> str:
        """The last word of the key."""
        return self.path.rpartition(".")[2]

    def row(self) -> str:
        """The key as a row of a Markdown table."""
        meaning = self.meaning[0].upper() + self.meaning[1:]
        return f"| `{self.name}` | {self.type} | {self.default} | {self.unit} | {meaning} |\n"


@dataclass(frozen=True)
class Section:
    """A map of the file: its place, its description and its keys that are no maps."""

    path: str
    description: str
    keys: tuple[Key, ...]

    def markdown(self) -> str:
        """The section as a heading, its description and a table."""
        title = f"`{self.path}`" if self.path else "Top level"
        return f"### {title}\n\n{self.description}\n\n{_TABLE_HEAD}{''.join(key.row() for key in self.keys)}"


def sections(kind: Any = Config, path: str = "") -> Iterator[Section]:
    """Yield the section of a class and those of the classes that its fields name, parents first."""
    hints, meanings = types_of(kind), attributes(kind)
    keys, inner = [], []
    for name, field in known_keys(kind).items():
        hint = hints[field.name]
        place = f"{path}.{name}" if path else name
        below = nested(hint)
        is_text = below is not None and hasattr(below, "TEXT_FIELD")
        if below is None or is_text or (kind, below) == (RecipientEntry, RecipientLimits):
            keys.append(key(place, field, hint, meanings[field.name]))
        if below is not None and (is_text or (kind, below) != (RecipientEntry, RecipientLimits)):
            inner.append((below, f"{place}[]" if is_list(hint) else place))
    if keys:
        yield Section(path, description(kind), tuple(keys))
    for below, place in inner:
        yield from sections(below, place)


def keys() -> Iterator[str]:
    """Yield every key of the file that is no map."""
    return (key.path for section in sections() for key in section.keys)


def key(path: str, field: dataclasses.Field[Any], hint: Any, meaning: str) -> Key:
    """Describe the key of a field."""
    return Key(path, type_of(hint, field.metadata), default_of(field), unit_of(field.name), meaning)


def attributes(kind: Any) -> dict[str, str]:
    """Map the fields of a section to their meanings, from the `Attributes` sections of its docstrings.

    A key of several forms has the meaning of the first.
    """
    docs = [(form.__doc__ or "").partition("Attributes:\n")[2] for form in reversed(forms_of(kind))]
    listed = "".join(textwrap.indent(textwrap.dedent(text), "    ") for text in docs)
    entries = re.findall(r"^ *(\w+): (.*(?:\n {5,}.*)*)", listed, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def description(kind: Any) -> str:
    """Return the docstring of a section up to its `Attributes` section."""
    return textwrap.dedent(f"    {forms_of(kind)[0].__doc__}".partition("Attributes:")[0]).strip()


def nested(hint: Any) -> Any:
    """Return the section that a type holds: `Ssl` of `Ssl | None`, `Share` of `tuple[Share, ...]`."""
    for option in (hint, *typing.get_args(hint)):
        first, *forms = forms_of(option)
        if isinstance(first, type) and dataclasses.is_dataclass(first) and first not in TYPE_NAMES:
            return option if forms else first
    return None


def is_list(hint: Any) -> bool:
    """Return whether a type is a list in the file."""
    return typing.get_origin(hint) is tuple


def type_of(hint: Any, metadata: typing.Mapping[str, Any]) -> str:
    """Name the accepted values of a type within the limits of its field."""
    if (below := nested(hint)) is not None:
        if not hasattr(below, "TEXT_FIELD"):
            return "map"
        return "list of texts or maps" if is_list(hint) else "text or map"
    if not is_list(hint) and any(
        typing.get_origin(form) is typing.Literal for form in (hint, *typing.get_args(hint))
    ):
        return "text"
    if typing.get_origin(hint) is collections.abc.Mapping:
        return "map of texts"
    if is_list(hint) and typing.get_origin(typing.get_args(hint)[0]) is typing.Literal:
        return "list of text"
    options = [option for option in (*typing.get_args(hint), hint) if option in TYPE_NAMES]
    (name,) = {TYPE_NAMES[option] for option in options}
    name = f"list of {name if name == TYPE_NAMES[str] else f'{name}s'}" if is_list(hint) else name
    minimum, maximum = metadata.get("minimum"), metadata.get("maximum")
    if minimum is not None and maximum is not None:
        return f"{name}, {_number(minimum)} to {_number(maximum)}"
    if minimum is not None:
        return f"{name}, {_number(minimum)} or more"
    return name


def default_of(field: dataclasses.Field[Any]) -> str:
    """Show the default of a field; a duration or size in a larger unit as well."""
    value = field.default
    if value is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "required"
    if value is None:
        return ""
    if isinstance(value, tuple) and value:
        return f"`[{', '.join(map(str, value))}]`"
    if value == () or value is dataclasses.MISSING:
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (int, float)):
        return f"`{_number(value)}`{_in_larger_unit(value, unit_of(field.name))}"
    return f"`{value}`"


def unit_of(name: str) -> str:
    """Return the unit that the name of a field ends with."""
    suffixes = [suffix for suffix in UNITS if name.endswith(suffix)]
    if name.endswith("requests_per_second"):
        return "1/s"
    if name.endswith("_per_minute"):
        return "1/min"
    return UNITS[max(suffixes, key=len)] if suffixes else ""


def effects() -> str:
    """Render the table of the keys that a reload does not apply from the next request."""
    rows = {effect: [row for row, of in EFFECTS.items() if of is effect] for effect in Effect}
    listed = (
        f"| {', '.join(f'`{row}`' for row in rows[effect])} | {effect} |\n"
        for effect in reversed(Effect)
        if effect is not Effect.AT_ONCE
    )
    return (
        "| changed key | takes effect |\n| --- | --- |\n"
        f"{''.join(listed)}| every other key | {Effect.AT_ONCE} |\n"
    )


def updated(page: str) -> str:
    """Return a page with its generated regions replaced. Raises ValueError when one is not there."""
    page = _replaced(page, "keys", "\n".join(section.markdown() for section in sections()))
    return _replaced(page, "effects", effects())


def main(path: Path) -> None:
    """Rewrite the generated regions of a page."""
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")


def _replaced(page: str, name: str, text: str) -> str:
    begin = f"<!-- begin {name}: generated by tests/support/configuration_reference.py -->\n"
    end = f"<!-- end {name} -->"
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"the page has no region '{name}'")
    return f"{before}{begin}\n{text}\n{end}{after}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _in_larger_unit(value: float, unit: str) -> str:
    if unit == "bytes" and value >= _MIB:
        return f" ({_number(value / _MIB)} MiB)"
    seconds = value * _SECONDS_OF.get(unit, 0)
    for name, length in _PERIODS:
        if seconds >= length and seconds % length == 0:
            return f" ({_number(seconds / length)} {name})"
    return ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
