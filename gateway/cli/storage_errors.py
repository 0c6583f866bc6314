"""Errors of tables and of answers of stores as sentences for the operator."""

from __future__ import annotations

import re
import time

from gateway.storage.refusals import CODE, Refusal, refusal, seconds_ahead
from gateway.tables.native import LogError, StorageDenied, StorageUnavailable, TableNotFound

_STATUS = re.compile(r"\b([345][0-9]{2})(?: [A-Z][a-z]+|:)")
_SIGN_BLOB = (
    "the project's owner enables the API iamcredentials.googleapis.com and grants "
    "roles/iam.serviceAccountTokenCreator on the service account to the identity that signs for it"
)


def explain(
    kind: str, status: int | None, body: str, date: str | None = None, code: str | None = None
) -> Refusal:
    """Return what an answer of a store means. `date` is its header, `code` that of Azure's header."""
    return refusal(kind, status, body, code=code, ahead_seconds=seconds_ahead(date or "", time.time()))


def explain_error(kind: str, error: LogError) -> str:
    """Return what an error of a table means, for the operator."""
    detail = error.detail or ""
    is_answer = kind != "file" and isinstance(error, (StorageDenied, StorageUnavailable, TableNotFound))
    status = _STATUS.search(detail) if is_answer else None
    if detail.startswith("signBlob of IAM"):
        name = f"answers {status[1]}" if status else "signs no URL"
        return f"{error}: the IAM service {name}: {_SIGN_BLOB}"
    if is_answer and (status or CODE.search(detail)):
        return f"{error}: the store answers {explain(kind, int(status[1]) if status else None, detail)}"
    # The rest of an answer is not shown.
    detail = detail.partition("<?xml")[0].partition("<Error")[0].strip()
    return f"{error}: {detail}" if detail else str(error)
