"""Errors of a table as a recipient may see them, without versions that are not shared."""

from __future__ import annotations

from gateway import _native
from gateway.access.catalog import SharedTable
from gateway.errors import InvalidParameter


def too_early(table: SharedTable) -> InvalidParameter:
    """Return the error for a timestamp before the first shared version."""
    return InvalidParameter(f"the timestamp is before the first shared version, {table.start_version}")


def shared_error(table: SharedTable, error: Exception) -> Exception:
    """Return an error as a recipient may see it, without versions and times that are not shared."""
    if table.history_shared and table.start_version == 0:
        return error
    if isinstance(error, _native.VersionNotFound):
        return _unavailable_version(table, error)
    if isinstance(error, _native.TimestampOutOfRange):
        if error.requested_ms < error.earliest_ms:
            return too_early(table)
        return InvalidParameter("the timestamp is after the last commit")
    if isinstance(error, _native.CorruptLog):
        # The names of log files contain versions.
        masked = _native.CorruptLog("the table's log is corrupt")
        masked.detail = "; ".join(filter(None, (str(error), error.detail)))
        return masked
    return error


def _unavailable_version(table: SharedTable, error: _native.VersionNotFound) -> InvalidParameter:
    earliest = max(error.earliest, table.start_version)
    if not table.history_shared:
        there = f"only the latest version is shared, {error.latest}"
    elif earliest > error.latest:
        there = "there is no shared version yet"
    else:
        there = f"the table has shared versions {earliest} to {error.latest}"
    return InvalidParameter(f"version {error.requested} is not available, {there}")
