"""Projections: tables with fewer rows and columns of a source, which `delta-gateway project` keeps.

The directory of a projection has a name made from its rule, so a changed rule is another table: no version
mixes two rules, and the server shows nothing until the new one is written and proved.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from gateway.config.errors import Invalid, shown
from gateway.config.locations import Location
from gateway.config.operation import setting
from gateway.config.secret import Secret

RULE_VERSION = 2
"""Part of the directory's name. It changes with the meaning of a function."""

WORK_DIRECTORY = "data"
"""The table in a projection's directory that the job writes: its files, and versions before their proof."""

MIN_SALT_BYTES = 16
MAX_COLUMNS = 10_000
MAX_CONDITION_CHARACTERS = 65_536
_NAME_DIGITS = 32
RULE_NAME = re.compile(rf"[0-9a-f]{{{_NAME_DIGITS}}}")
_NOT_IN_A_COLUMN = re.compile(r"[\x00-\x1f\x7f ,;{}()=]")
_CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


@dataclass(frozen=True, slots=True)
class ProjectedColumn:
    """A column of a projection. A text in its place is a column of the source, unchanged.

    Attributes:
        name: name in the projection.
        column: name in the source, if it differs.
        function: what is shown in place of the value: `sha256`, the SHA-256 of its text with the projection's
            salt, in hexadecimal digits; `prefix`, the first characters of a text; `floor`, a whole or decimal
            number rounded down to a multiple of `step`; `month` and `year`, the first day of the month or
            year of a date or a time in UTC. Null stays null.
        length: number of characters of `prefix`.
        step: number whose multiples `floor` shows.

    """

    TEXT_FIELD: ClassVar[str] = "name"
    REFUSES_UNKNOWN_KEYS: ClassVar[bool] = True

    name: str
    column: str | None = None
    function: Literal["sha256", "prefix", "floor", "month", "year"] | None = setting(None, protects=True)
    length: int | None = setting(None, minimum=1)
    step: int | None = setting(None, minimum=1)

    def __post_init__(self) -> None:
        if _NOT_IN_A_COLUMN.search(self.name) or self.name.casefold() in _CHANGE_COLUMNS:
            raise Invalid("name", f"{shown(self.name)} cannot be a column: give `name` and `column`")
        for field, function in (("length", "prefix"), ("step", "floor")):
            if (getattr(self, field) is None) == (self.function == function):
                raise Invalid(field, f"belongs to the function {function}, which needs it")

    @property
    def source(self) -> str:
        return self.column if self.column is not None else self.name


@dataclass(frozen=True, slots=True)
class MinimumGroup:
    """How many rows share each combination of values at least. A version in which fewer do is not published.

    Attributes:
        columns: columns of the projection whose values are combined, with null as a value.
        rows: least number of rows of each combination that is there.

    """

    REFUSES_UNKNOWN_KEYS: ClassVar[bool] = True

    columns: tuple[str, ...] = setting(protects=True)
    rows: int = setting(minimum=2)

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise Invalid("columns", "expected columns, each once")


@dataclass(frozen=True, slots=True)
class Projection:
    """A rule by which `delta-gateway project` keeps the table, from a source that is not shared.

    The table is in a directory below `location`, whose name is made from this rule. See
    [Projections](projections.md).

    Attributes:
        source: root of the source, a Delta table, in the forms of a table's location.
        columns: columns of the table: names, or maps with the keys below.
        where: condition in Spark SQL over columns of the source. Rows for which it is not true are left out.
        partition_by: columns that the table is partitioned by.
        minimum_group: how many rows share values at least, or no version is published.
        publish_every_seconds: least time between two versions with other rows. Without it each run publishes
            what has changed, and a version tells which rows came or went between two runs.
        salt: at least 16 bytes of random text for `sha256`. Equal values have equal hashes in all projections
            with one salt.

    """

    REFUSES_UNKNOWN_KEYS: ClassVar[bool] = True

    source: Location
    columns: tuple[ProjectedColumn, ...] = setting(protects=True)
    where: str | None = setting(None, protects=True)
    partition_by: tuple[str, ...] = ()
    minimum_group: MinimumGroup | None = setting(None, protects=True)
    publish_every_seconds: int | None = setting(None, minimum=1, protects=True)
    salt: Secret | None = setting(None, protects=True)

    def __post_init__(self) -> None:
        names = [column.name.casefold() for column in self.columns]
        if not names or len(names) > MAX_COLUMNS:
            raise Invalid("columns", f"expected 1 to {MAX_COLUMNS:,} columns")
        if len(set(names)) != len(names):
            raise Invalid("columns", "has a name twice (names are case-insensitive)")
        if self.where is not None and not (
            self.where.strip() and len(self.where) <= MAX_CONDITION_CHARACTERS
        ):
            raise Invalid("where", f"expected a condition of at most {MAX_CONDITION_CHARACTERS:,} characters")
        self._check_partitions()
        for name in self.minimum_group.columns if self.minimum_group is not None else ():
            if name not in [column.name for column in self.columns]:
                raise Invalid("minimum_group", f"'{name}' is not in `columns`")
        self._check_salt()

    def root(self, base: Location) -> Location:
        """Return the directory of the table below a directory; a directory of that name itself."""
        name = self.name
        if base.key.rpartition("/")[2] == name:
            return base
        return replace(base, key=f"{base.key.rstrip('/')}/{name}" if base.key else name)

    @property
    def name(self) -> str:
        """Return the name of the rule: 32 hexadecimal digits. It does not show the salt."""
        columns = [
            [column.name, column.source, column.function, column.length, column.step]
            for column in self.columns
        ]
        group = self.minimum_group
        # A version of another minimum stays where it was.
        minimum = None if group is None else [group.columns, group.rows]
        rule = [RULE_VERSION, self.source.url, columns, self.where, self.partition_by, minimum]
        key = self.salt.reveal().encode() if self.salt is not None else b""
        # Without a salt the rule is public, and so is its name. A salt is random, so no name reveals it.
        return hmac.new(key, json.dumps(rule).encode(), hashlib.sha256).hexdigest()[:_NAME_DIGITS]

    def _check_partitions(self) -> None:
        names = [column.name for column in self.columns]
        for name in self.partition_by:
            if name not in names:
                raise Invalid("partition_by", f"'{name}' is not in `columns`")
        if len(set(self.partition_by)) != len(self.partition_by):
            raise Invalid("partition_by", "has a column twice")
        if len(self.partition_by) == len(names):
            raise Invalid("partition_by", "leaves no column for the files")

    def _check_salt(self) -> None:
        is_hashed = any(column.function == "sha256" for column in self.columns)
        if is_hashed and self.salt is None:
            raise Invalid("salt", "must be given for the function sha256")
        if not is_hashed and self.salt is not None:
            raise Invalid("salt", "has no effect: no column has the function sha256")
        if self.salt is not None and len(self.salt.reveal().encode()) < MIN_SALT_BYTES:
            raise Invalid("salt", f"expected at least {MIN_SALT_BYTES} bytes of random text")
