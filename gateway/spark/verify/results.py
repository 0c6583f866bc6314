"""What is verified and what was found: the options of a run, and the result of each table, as values."""

import datetime as dt
from dataclasses import dataclass, field


@dataclass(frozen=True)
class VerifyOptions:
    """The options of a verification.

    `predicates`: how many are drawn per table. `change_versions`: how many of the latest versions' change
    data are compared; 0 for none. `shown_rows`: how many differing rows are shown; 0 keeps every value of the
    tables out of the report. `connector`: shares are read through Spark's official connector, which does not
    name files. `directory`: files are compared by directory access, too, where a table offers it.
    `incremental`: a table is left alone while it has the version of its last proof, unless that is older
    than `prove_again_after`, and change data are compared since that version. `budget`: no table begins
    after this time. `reader`: a name of the profile's recipient, whose proofs are not those of others.
    `late_ms`: age of a version from which on it is a difference that the server does not answer it.
    """

    predicates: int = 3
    change_versions: int = 20
    shown_rows: int = 10
    parallel: int = 4
    seed: int = 1
    connector: bool = False
    directory: bool = False
    incremental: bool = False
    prove_again_after: dt.timedelta = dt.timedelta(days=7)
    budget: dt.timedelta | None = None
    reader: str = ""
    late_ms: int = 600_000

    def what(self) -> dict[str, object]:
        """Return the options that decide what is compared."""
        names = ("predicates", "connector", "directory", "reader")
        return {**{name: getattr(self, name) for name in names}, "changes": self.change_versions > 0}


OUTCOMES = ("equal", "unproved", "different", "failed", "unchanged", "postponed")


@dataclass(frozen=True)
class Check:
    """One comparison. `skipped` is the reason why it was not made; `differences` is empty if it passed.

    `is_expected`: whether the configuration or the table's own log is that reason, and not the server. Where
    it is not, the table is not proved.
    `remark`: a further observation, such as that delta-spark itself reads other rows with data skipping on.
    """

    name: str
    seconds: float
    differences: tuple[str, ...] = ()
    skipped: str | None = None
    remark: str | None = None
    is_expected: bool = True

    @property
    def passed(self) -> bool:
        """Return whether the comparison was made and found no difference."""
        return not self.differences and self.skipped is None


@dataclass
class TableResult:
    """The result of all comparisons of one table."""

    table: str
    version: int | None = None
    rows: int = 0
    bytes: int = 0
    files: int = 0
    seconds: float = 0.0
    checks: list[Check] = field(default_factory=list)
    error: str | None = None
    table_id: str | None = None
    commit_mark: str | None = None
    subject: str = ""
    unchanged_since: dt.datetime | None = None
    """The time of the proof of this version, for which the table is left alone."""
    postponed: bool = False
    """Whether the time was used up before this table."""

    @property
    def is_wrong(self) -> bool:
        """Return whether something differs or failed."""
        return self.error is not None or any(check.differences for check in self.checks)

    @property
    def equal(self) -> bool:
        """Return whether nothing differs and nothing failed."""
        return not self.is_wrong

    @property
    def outcome(self) -> str:
        """Return one of `OUTCOMES`."""
        # What was found before a failure stays a difference.
        if any(check.differences for check in self.checks):
            return "different"
        if self.error is not None:
            return "failed"
        if self.postponed:
            return "postponed"
        if self.unchanged_since is not None:
            return "unchanged"
        return "equal" if all(check.is_expected for check in self.checks) else "unproved"
