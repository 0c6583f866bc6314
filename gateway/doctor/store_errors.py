"""Refusals of object stores in words, for recipients.

In: an `Answer` of S3, Azure, Google or a server of files. Out: a `Problem` with the store's code. Nothing
else of the answer is in it: bodies of refused signatures have session tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.doctor.clock import skew_seconds
from gateway.doctor.findings import Owner, Problem
from gateway.doctor.server_errors import ServerError
from gateway.doctor.transport import Answer

CLOCK_SECONDS = 5 * 60

_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")
_EXPIRED = re.compile(rb"Request has expired|not valid in the specified time frame|Signed expiry time")
_OTHER_NETWORK = (
    "ask for the network rules of the store: the network of this machine must be allowed, and packets must "
    "leave it by the allowed way, such as a private endpoint"
)
_SIGNER = "the identity that signs URLs has lost its right or its key: look at it by `delta-gateway check`"
_MISSING = (
    "a file of the table was deleted, for example by VACUUM while it was read: try again; if it stays so, "
    "restore the table"
)
_DENIED = (
    "look at the bucket's policy, which may allow certain networks or endpoints alone, at the signer's right "
    "to read objects, and at the key that encrypts them"
)
_CHANGED = (
    "look at the secret of the signer by `delta-gateway check`; if it is right, a proxy between changes URLs "
    "or headers"
)
_CLOCKS = (
    "set the clock of this machine by NTP; if it is right, the provider looks at the clock of the server and "
    "at the life of the keys that sign"
)
_LATER = "try again later, with fewer jobs at a time"

CODES: Mapping[str, tuple[str, Owner, str]] = {
    "AccessDenied": (
        "the store denies the request",
        Owner.PROVIDER,
        _DENIED,
    ),
    "AccountIsDisabled": ("the account is disabled", Owner.PROVIDER, "enable the account"),
    "AllAccessDisabled": ("the bucket is disabled", Owner.PROVIDER, "enable the bucket"),
    "AuthenticationFailed": ("the account does not accept the signature", Owner.PROVIDER, _SIGNER),
    "AuthorizationFailure": (
        "a network rule of the account excludes this machine, or the signer has no role",
        Owner.PROVIDER,
        f"{_OTHER_NETWORK}; then look at the roles of the identity that signs",
    ),
    "AuthorizationPermissionMismatch": ("the signer has no role on the data", Owner.PROVIDER, _SIGNER),
    "AuthorizationProtocolMismatch": (
        "the account takes HTTPS alone, and the URL is http",
        Owner.PROVIDER,
        "sign https URLs",
    ),
    "AuthorizationQueryParametersError": (
        "the store does not accept the signature",
        Owner.PROVIDER,
        "look at the region of the storage by `delta-gateway check`",
    ),
    "AuthorizationSourceIPMismatch": (
        "the URL is for another address than that of this machine",
        Owner.PROVIDER,
        "allow the public address from which this machine reaches the store",
    ),
    "BlobArchived": (
        "the file is in an archive tier",
        Owner.PROVIDER,
        "move the table's files to an online tier",
    ),
    "BlobNotFound": ("a data file is missing", Owner.PROVIDER, _MISSING),
    "ContainerNotFound": (
        "the container does not exist",
        Owner.PROVIDER,
        "look at the location of the table",
    ),
    "ExpiredToken": ("the URL, or the credentials that signed it, have ended", Owner.PROVIDER, _SIGNER),
    "InvalidAccessKeyId": ("the key of the signature does not exist", Owner.PROVIDER, _SIGNER),
    "InvalidObjectState": (
        "the file is in an archive class",
        Owner.PROVIDER,
        "restore the table's files, or move them to another storage class",
    ),
    "InvalidToken": ("the session of the key that signed is not valid", Owner.PROVIDER, _SIGNER),
    "KeyBasedAuthenticationNotPermitted": (
        "the account does not accept signatures of its key",
        Owner.PROVIDER,
        "sign by an identity instead of the account's key",
    ),
    "NoSuchBucket": ("the bucket does not exist", Owner.PROVIDER, "look at the location of the table"),
    "NoSuchKey": ("a data file is missing", Owner.PROVIDER, _MISSING),
    "PermanentRedirect": (
        "the bucket is in another region",
        Owner.PROVIDER,
        "look at the region of the storage by `delta-gateway check`",
    ),
    "PublicAccessNotPermitted": (
        "the store has received no signature",
        Owner.NETWORK,
        "look for a proxy that removes the query of URLs",
    ),
    "RequestTimeTooSkewed": (
        "the clock of the signer differs from that of the store",
        Owner.PROVIDER,
        "set the clock of the server, or of this machine if it signs with vended credentials",
    ),
    "SecurityPolicyViolated": (
        "a VPC service perimeter of Google excludes this machine",
        Owner.PROVIDER,
        "allow the recipient's network in an access level or ingress rule of the perimeter",
    ),
    "ServerBusy": ("the account limits the rate of requests", Owner.PROVIDER, _LATER),
    "SignatureDoesNotMatch": (
        "the signature does not fit the request",
        Owner.PROVIDER,
        _CHANGED,
    ),
    "SlowDown": ("the store limits the rate of requests", Owner.PROVIDER, _LATER),
    "UserProjectAccessDenied": ("the signer may not charge the project", Owner.PROVIDER, _SIGNER),
    "UserProjectMissing": (
        "the requester pays for the bucket",
        Owner.PROVIDER,
        "set the project that pays in the storage's configuration",
    ),
}
STATUSES: Mapping[int, tuple[str, Owner, str]] = {
    401: ("the store does not accept the signature", Owner.PROVIDER, _SIGNER),
    403: ("the store, or something before it, denies the request", Owner.PROVIDER, _OTHER_NETWORK),
    404: ("a data file is missing", Owner.PROVIDER, _MISSING),
    429: ("the store limits the rate of requests", Owner.PROVIDER, _LATER),
    503: ("the store limits the rate of requests, or is not available", Owner.PROVIDER, _LATER),
}


def explain(answer: Answer, host: str) -> Problem:
    """Return the problem of a refused read."""
    code = _code(answer)
    name = f"{host} answers {answer.status} {code}".strip()
    meaning, owner, advice = CODES.get(code, STATUSES.get(answer.status, _unknown(answer)))
    if code.startswith("KMS."):
        meaning, owner, advice = "the key that encrypts the file cannot be used", Owner.PROVIDER, _SIGNER
    if _EXPIRED.search(answer.body):
        meaning, owner, advice = "the URL has ended", Owner.RECIPIENT, _CLOCKS
    skew = skew_seconds(answer)
    if answer.status == 403 and skew is not None and abs(skew) > CLOCK_SECONDS:  # noqa: PLR2004 - Forbidden
        side = "ahead of" if skew > 0 else "behind"
        meaning += f"; the clock of this machine is {abs(skew) / 60:.0f} minutes {side} that of the store"
    return Problem(f"{name}: {meaning}", owner, advice)


def _unknown(answer: Answer) -> tuple[str, Owner, str]:
    error = ServerError(answer)
    return error.message or "the file cannot be read", Owner.PROVIDER, "look at the log of the store"


def _code(answer: Answer) -> str:
    header = answer.headers.get("x-ms-error-code", "")
    if header.isalnum():
        return header
    found = _CODE.search(answer.body)
    return found[1].decode() if found else ""
