"""What is kept and what a run has done: targets, options and outcomes, as values."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config.projections import Projection

OUTCOMES = ("unchanged", "changed", "whole", "checked", "failed", "postponed")
"""How a projection can end in a run."""

UP_TO_DATE = ("unchanged", "changed", "whole")
"""Outcomes after which the projection has all of its source."""

POSTPONED = "the time of this run was used up before this projection"


@dataclass(frozen=True)
class Target:
    """A projection to keep.

    Attributes:
        names: full names of the shared tables.
        source, root: locations as Spark writes them.
        first_version: the first version that is shared; None without history.

    """

    names: tuple[str, ...]
    projection: Projection
    source: str
    root: str
    first_version: int | None = None


@dataclass(frozen=True)
class Options:
    """What a run does beside its updates.

    Attributes:
        check: checks the rule against the source, and writes nothing.
        whole: proves all rows, and not the changed ones alone.
        optimize_hours, vacuum_hours: after which small files are put together and unneeded ones removed; 0
            for never.

    """

    check: bool = False
    whole: bool = False
    optimize_hours: int = 24
    vacuum_hours: int = 168


@dataclass
class Outcome:
    """What a run has done.

    Attributes:
        how: the outcome of a run without an error.
        version, source_version: the published version and that of the source; -1 without any.
        rows: number of rows of the published version.
        changed_rows: rows that were added and removed.
        seconds: time of the work.
        remark: why all was written where changes were expected, or why none were.
        error: why the projection is not up to date; its published version is the one before.
        failure: the name of the error's class.

    """

    names: tuple[str, ...]
    how: str = "unchanged"
    version: int = -1
    source_version: int = -1
    rows: int = 0
    changed_rows: int = 0
    seconds: float = 0.0
    remark: str = ""
    error: str | None = None
    failure: str = ""

    @property
    def outcome(self) -> str:
        """Return one of `OUTCOMES`."""
        return "failed" if self.error is not None else self.how

    def __str__(self) -> str:
        """Describe the outcome in one line, without values of the rows."""
        names = ", ".join(self.names)
        if self.error is not None:
            return f"{names}: failed: {self.error}"
        if self.how == "checked":
            return f"{names}: the rule fits the source"
        if self.how == "postponed":
            return f"{names}: postponed: {self.remark or POSTPONED}"
        remark = f" ({self.remark})" if self.remark else ""
        written = {
            "unchanged": "nothing to do",
            "changed": f"{self.changed_rows} changed rows",
            "whole": f"written whole{remark}",
        }
        return (
            f"{names}: {written[self.how]}; version {self.version} is version {self.source_version} of the "
            f"source, {self.rows} rows, {self.seconds:.1f} s"
        )
