"""Errors of object stores in words: what they mean and who mends them.

In: the status and the body of an answer, or the detail of a native error. Out: a sentence. No part of an
answer is in it but its code and its region: bodies of refused signatures have session tokens.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from http import HTTPStatus

from gateway.doctor.clock import seconds_ahead
from gateway.tables.native import LogError, StorageDenied, StorageUnavailable, TableNotFound

_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_REGION = re.compile(r"<Region>([a-z0-9-]{1,32})</Region>")
_STATUS = re.compile(r"\b([345][0-9]{2})(?: [A-Z][a-z]+|:)")
SKEW_SECONDS = 300

_CLOCK = "the clock of this machine differs from that of the store; the operator sets the clock"
_REGION_ADVICE = "the bucket is in another region; the operator sets `region`"
S3: Mapping[str, str] = {
    "AccessDenied": (
        "the identity has no right; the bucket's owner grants s3:ListBucket on the bucket, s3:GetObject on "
        "the objects and kms:Decrypt on the key of encrypted ones. If the bucket's requester pays, the "
        "operator sets `requesterPays`"
    ),
    "AllAccessDisabled": "the owner has disabled the bucket",
    "AuthorizationHeaderMalformed": _REGION_ADVICE,
    "AuthorizationQueryParametersError": _REGION_ADVICE,
    "ExpiredToken": "the credentials have ended; the operator looks at where they come from",
    "IllegalLocationConstraintException": _REGION_ADVICE,
    "InvalidAccessKeyId": "the access key does not exist, or is disabled; the operator replaces it",
    "InvalidToken": "the session token does not belong to the access key; the operator replaces both",
    "KMS.DisabledException": "the key that encrypts the objects is disabled; the bucket's owner enables it",
    "NoSuchBucket": "there is no such bucket; the operator looks at the location and the endpoint",
    "NoSuchKey": "a data file is missing",
    "PermanentRedirect": _REGION_ADVICE,
    "RequestTimeTooSkewed": _CLOCK,
    "SignatureDoesNotMatch": (
        "the secret does not belong to the access key, or something on the way changes requests; the "
        "operator replaces the secret and looks at proxies"
    ),
    "SlowDown": "the store limits the rate of requests; try again later",
}
AZURE: Mapping[str, str] = {
    "AccountIsDisabled": "the account is disabled; its owner enables it",
    "AuthenticationFailed": (
        "the account does not accept the key or the token: it was replaced, or the clock of this machine is "
        "wrong; the operator looks at both"
    ),
    "AuthorizationFailure": (
        "a network rule of the account excludes the caller, or the identity has no role; the account's owner "
        "looks at the account's networking, then at its roles"
    ),
    "AuthorizationPermissionMismatch": (
        "the identity has no role on the data; the account's owner grants Storage Blob Data Reader, and "
        "Storage Blob Delegator on the account"
    ),
    "AuthorizationProtocolMismatch": "the account takes HTTPS alone; the operator gives an https:// endpoint",
    "BlobNotFound": "a data file is missing",
    "ContainerNotFound": "there is no such container; the operator looks at the location and the account",
    "InvalidAuthenticationInfo": (
        "the account does not accept the token; the operator looks at tenantId, and at the clock of this "
        "machine"
    ),
    "KeyBasedAuthenticationNotPermitted": (
        "the account does not allow access by its key (allowSharedKeyAccess is false); the operator removes "
        "accountKey and gives an identity"
    ),
    "PublicAccessNotPermitted": "the request had no credentials that the account knows",
    "ServerBusy": "the account limits the rate of requests; try again later",
}
GOOGLE: Mapping[str, str] = {
    **S3,
    "AccessDenied": (
        "the identity has no right; the bucket's owner grants roles/storage.objectViewer on the bucket to "
        "the identity that reads and to the service account that signs"
    ),
    "AuthenticationRequired": "Google does not accept the token; the operator looks at the identity",
    "ExpiredToken": "the URL has ended, or the clock of this machine is wrong",
    "InvalidArgument": "Google does not accept the key of the URL; the operator looks at the HMAC key",
    "UserProjectAccessDenied": (
        "the identity may not charge the project; its owner grants serviceusage.services.use on `userProject`"
    ),
    "UserProjectMissing": "the bucket's requester pays; the operator sets `userProject`",
}
_SIGN_BLOB = (
    "the project's owner enables the API iamcredentials.googleapis.com and grants "
    "roles/iam.serviceAccountTokenCreator on the service account to the identity that signs for it"
)
CODES: Mapping[str, Mapping[str, str]] = {"s3": S3, "azure": AZURE, "gs": GOOGLE}


def explain(
    kind: str, status: int | None, body: str, date: str | None = None, code: str | None = None
) -> str:
    """Return what an answer of a store means. `date` is its header, `code` that of Azure's header."""
    found = _CODE.search(body)
    code = code if code is not None and code.isalnum() else (found[1] if found else None)
    name = " ".join(str(part) for part in (status, code) if part is not None) or "an error"
    skew = seconds_ahead(date or "", time.time()) or 0.0
    if status == HTTPStatus.FORBIDDEN and abs(skew) > SKEW_SECONDS:
        side = "ahead of" if skew > 0 else "behind"
        return f"{name}: the clock of this machine is {abs(skew) / 60:.0f} minutes {side} that of the store"
    meaning = CODES.get(kind, S3).get(code or "") or _of_status(kind, status)
    region = _REGION.search(body)
    if region is not None and meaning == _REGION_ADVICE:
        meaning = f"the bucket is in the region {region[1]}; the operator sets `region`"
    return f"{name}: {meaning}"


def explain_error(kind: str, error: LogError) -> str:
    """Return what an error of a table means, for the operator."""
    detail = error.detail or ""
    is_answer = kind != "file" and isinstance(error, (StorageDenied, StorageUnavailable, TableNotFound))
    status = _STATUS.search(detail) if is_answer else None
    if detail.startswith("signBlob of IAM"):
        name = f"answers {status[1]}" if status else "signs no URL"
        return f"{error}: the IAM service {name}: {_SIGN_BLOB}"
    if is_answer and (status or _CODE.search(detail)):
        return f"{error}: the store answers {explain(kind, int(status[1]) if status else None, detail)}"
    # The rest of an answer is not shown.
    detail = detail.partition("<?xml")[0].partition("<Error")[0].strip()
    return f"{error}: {detail}" if detail else str(error)


def _of_status(kind: str, status: int | None) -> str:
    known = {
        301: _REGION_ADVICE if kind == "s3" else "the store is at another address",
        400: "the store does not understand the request; look at the endpoint and the region",
        401: "the store does not accept the credentials",
        403: "the identity may not read the data files, or a network rule excludes this machine",
        404: "a data file is missing",
        429: "the store limits the rate of requests; try again later",
        503: "the store limits the rate of requests, or is not available; try again later",
    }
    return known.get(status or 0, "look at the storage's own log")
