"""Errors of a table as a recipient may see them, without versions and files that are not shared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway import _native
from gateway.catalog.catalog import SharedTable
from gateway.errors import InvalidParameter
from gateway.storage.refusals import explained
from gateway.times import utc_text


@contextmanager
def naming(table: SharedTable, parameter: str) -> Iterator[None]:
    """Raise errors about a version or a time with the name of the parameter that has it."""
    try:
        yield
    except _native.VersionNotFound as error:
        raise _unavailable_version(table, parameter, error) from None
    except _native.TimestampOutOfRange as error:
        raise _out_of_range(table, parameter, error) from None


def too_early(table: SharedTable, parameter: str) -> InvalidParameter:
    """Return the error for a timestamp before the first shared version."""
    return InvalidParameter(f"{parameter} is before the first shared version, {table.start_version}")


def shared_error(table: SharedTable, error: Exception) -> Exception:
    """Return an error as a recipient may see it, without versions, times and files that are not shared.

    One of a store has a note for the operator: what its answer means, and what to do.
    """
    said = explained(table.location.kind, getattr(error, "detail", None) or "")
    # Several requests may have the same error.
    if said and not hasattr(error, "__notes__"):
        error.add_note(said)
    if isinstance(error, _native.VersionNotFound):
        return _unavailable_version(table, "version", error)
    if isinstance(error, _native.TimestampOutOfRange):
        return _out_of_range(table, "the timestamp", error)
    if isinstance(error, _native.Contradiction):
        return error
    if _is_shared_whole(table) and table.rule is None:
        return error
    # The names of log files contain versions and the number of a checkpoint's parts, and reasons may count or
    # quote files outside of a rule.
    if isinstance(error, _native.CorruptLog):
        masked = _native.CorruptLog("the table's log is corrupt")
        masked.detail = "; ".join(filter(None, (str(error), error.detail)))
        return masked
    if isinstance(error, _native.FileReplaced):
        return _native.FileReplaced("the table was replaced or cleaned up while it was read; try again")
    return error


def _is_shared_whole(table: SharedTable) -> bool:
    return table.history_shared and table.start_version == 0


def _unavailable_version(
    table: SharedTable, parameter: str, error: _native.VersionNotFound
) -> InvalidParameter:
    earliest = max(error.earliest, table.start_version)
    if not table.history_shared:
        there = f"only the latest version is shared, {error.latest}"
    elif earliest > error.latest:
        there = "there is no shared version yet"
    else:
        shared = "" if _is_shared_whole(table) else "shared "
        there = f"the table has {shared}versions {earliest} to {error.latest}"
    return InvalidParameter(f"{parameter} {error.requested} is not available, {there}")


def _out_of_range(table: SharedTable, parameter: str, error: _native.TimestampOutOfRange) -> InvalidParameter:
    is_early = error.requested_ms < error.earliest_ms
    if is_early and not _is_shared_whole(table):
        return too_early(table, parameter)
    side = "before the first" if is_early else "after the last"
    latest = _time(error.latest_ms)
    there = f"from {_time(error.earliest_ms)} to {latest}" if _is_shared_whole(table) else f"until {latest}"
    return InvalidParameter(
        f"{parameter} {_time(error.requested_ms)} is {side} commit, the table has commits {there}"
    )


def _time(at_ms: int) -> str:
    return utc_text(at_ms, timespec="milliseconds")
