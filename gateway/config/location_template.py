"""Tables that are found below a location: the section that says where, and the template of their directories.

A template is a location with `{schema}` and `{table}` in the place of directories, such as
`s3://bucket/warehouse/{schema}.db/{table}/`. The part before them is the root, where a search begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gateway.config.locations import Location, decoded

SCHEMA, TABLE = "schema", "table"
ACCEPTED = "s3://bucket/warehouse/{schema}/{table}/, each placeholder in a directory of its own"
MAX_LEVELS = 16

_PLACEHOLDER = re.compile(r"\{([^{}/]*)\}")
_UNSAFE = re.compile(r"[{}\x00-\x1f\x7f]")
_PERCENT_ENCODED = ("https:", "file:")


@dataclass(frozen=True, slots=True)
class Level:
    """One directory of a template.

    Attributes:
        before: the beginning of its name; all of the name without a placeholder.
        names: what the rest of the name up to `after` names: `schema` or `table`; None for neither.
        after: the end of its name.

    """

    before: str
    names: str | None = None
    after: str = ""

    def name_in(self, directory: str) -> str | None:
        """Return the name that a directory gives; None for a directory that is not of this form."""
        if not (directory.startswith(self.before) and directory.endswith(self.after)):
            return None
        return directory[len(self.before) : len(directory) - len(self.after)] or None


@dataclass(frozen=True, slots=True)
class LocationTemplate:
    """Where tables are searched.

    Attributes:
        text: the template as the file has it.
        root: the location before the first placeholder.
        levels: the directories below the root, down to those of tables.

    """

    text: str
    root: Location
    levels: tuple[Level, ...]

    @staticmethod
    def parse(text: str) -> LocationTemplate:
        """Parse a template. Raises ValueError that names the accepted form."""
        start = text.find("{")
        cut = text.rfind("/", 0, start) if start >= 0 else -1
        if cut < 0:
            raise ValueError(f"names no {{table}}; accepted: {ACCEPTED}")
        rest = text[cut + 1 :]
        if text.lower().startswith(_PERCENT_ENCODED):
            rest = decoded(rest)
        root = Location.parse(text[:cut] or "/")
        levels = tuple(_level(part) for part in rest.rstrip("/").split("/"))
        named = [level.names for level in levels if level.names]
        if named not in ([TABLE], [SCHEMA, TABLE]):
            raise ValueError(
                f"has {{table}} once, and {{schema}} at most once before it; accepted: {ACCEPTED}"
            )
        if len(levels) > MAX_LEVELS:
            raise ValueError(f"has more than {MAX_LEVELS} directories")
        return LocationTemplate(text, root, levels)

    @property
    def names_schemas(self) -> bool:
        """Return whether a directory names the schema of a table."""
        return any(level.names == SCHEMA for level in self.levels)


def _level(part: str) -> Level:
    before, *rest = _PLACEHOLDER.split(part)
    if part in ("", ".", "..") or len(rest) not in (0, 2):
        raise ValueError(f"has a directory that cannot be searched; accepted: {ACCEPTED}")
    name, after = rest or (None, "")
    if name not in (None, SCHEMA, TABLE):
        raise ValueError(f"has a placeholder that is neither {{schema}} nor {{table}}; accepted: {ACCEPTED}")
    if _UNSAFE.search(before + after):
        raise ValueError(f"has a brace or a control character beside a placeholder; accepted: {ACCEPTED}")
    return Level(before, name, after)
