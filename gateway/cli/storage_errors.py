"""Errors of tables and of answers of stores as sentences for the operator."""

from __future__ import annotations

import time

from gateway.storage.refusals import Refusal, explained, refusal, seconds_ahead
from gateway.tables.native import (
    LogError,
    StorageDenied,
    StorageUnavailable,
    TableNotFound,
    UnsupportedFeature,
)


def explain(
    kind: str, status: int | None, body: str, date: str | None = None, code: str | None = None
) -> Refusal:
    """Return what an answer of a store means. `date` and `code` (Azure) are values of its headers."""
    return refusal(kind, status, body, code=code, ahead_seconds=seconds_ahead(date or "", time.time()))


def explain_error(kind: str, error: LogError) -> str:
    """Return what an error of a table means, for the operator."""
    if isinstance(error, UnsupportedFeature) and error.feature == "catalogManaged":
        return f"{error}: the configuration file names it by `catalog` of the table"
    detail = error.detail or ""
    is_answer = kind != "file" and isinstance(error, (StorageDenied, StorageUnavailable, TableNotFound))
    if is_answer and (said := explained(kind, detail)):
        return f"{error}: {said}"
    # The rest of an answer is not shown.
    detail = detail.partition("<?xml")[0].partition("<Error")[0].strip()
    return f"{error}: {detail}" if detail else str(error)
