"""What refusals of object stores mean, and what the operator does: for logs, commands and the doctor.

In: the status, the body and some headers of an answer of S3, Azure or Google. Out: a `Refusal`. No part of an
answer is in it but its code and its region: bodies of refused signatures have session tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum
from http import HTTPStatus

SKEW_SECONDS = 300
CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_REGION = re.compile(r"<Region>([a-z0-9-]{1,32})</Region>")
_ANSWERED = re.compile(r"answered ([345][0-9]{2})\b")
_LISTING = "to a listing, "
_NO_STORE = (
    "another server than a store may be at the endpoint; the operator looks at its host, its port and its "
    "path, then at whether the store has started"
)
_IAM = "signBlob of IAM"
_SIGN_BLOB = (
    "the project's owner enables the API iamcredentials.googleapis.com and grants "
    "roles/iam.serviceAccountTokenCreator on the service account to the identity that signs for it"
)
_ENDED = re.compile(r"Request has expired|not valid in the specified time frame|Signed expiry time")


class Kind(Enum):
    """What a refusal is about, whatever the store."""

    RIGHT = "the identity has no right"
    NETWORK = "a rule of networks excludes the caller, or something on the way changes requests"
    CREDENTIALS = "a key, a token or a signature is not accepted"
    CLOCK = "the clock of the caller, or a URL that has ended"
    SETTING = "the storage's configuration does not fit the store"
    PLACE = "the bucket, the container or the account is absent or disabled"
    FILE = "a data file is absent, or cannot be read where it is"
    BUSY = "the store limits the rate, or is not available"
    OTHER = "a refusal without a known reason"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The meaning of a refusal, and who does what."""

    kind: Kind
    meaning: str
    advice: str
    status: int | None = None
    code: str = ""

    @property
    def name(self) -> str:
        """Status and code, such as `403 AccessDenied`. The code of some stores is the status."""
        parts = dict.fromkeys(str(part) for part in (self.status, self.code) if part)
        return " ".join(parts) or "an error"

    def __str__(self) -> str:
        """Return name, meaning and advice on one line."""
        return f"{self.name}: {self.meaning}; {self.advice}"


_NO_RIGHT = "the store denies the request: the identity has no right"
_OTHER_REGION = "the bucket is in another region"
TABLE: Mapping[Kind, Mapping[str, tuple[str, str]]] = {
    Kind.RIGHT: {
        "AccessDenied": (
            _NO_RIGHT,
            "the bucket's owner grants s3:ListBucket on the bucket, s3:GetObject on the objects and "
            "kms:Decrypt on the key of encrypted ones, and looks at policies for certain networks. If the "
            "bucket's requester pays, the operator sets `requesterPays`",
        ),
        "gs:AccessDenied": (
            _NO_RIGHT,
            "the bucket's owner grants roles/storage.objectViewer on the bucket to the identity that reads "
            "and to the service account that signs",
        ),
        "AuthorizationPermissionMismatch": (
            "the identity has no role on the data",
            "the account's owner grants Storage Blob Data Reader on the data, and Storage Blob Delegator on "
            "the account",
        ),
        "KMS KeyVaultEncryptionKeyNotFound KeyVaultAccessTokenCannotBeAcquired KeyVaultVaultNotFound": (
            "the key that encrypts the file cannot be used",
            "its owner enables the key, and grants its use",
        ),
    },
    Kind.NETWORK: {
        "AuthorizationFailure": (
            "a network rule of the account excludes this machine, or the identity has no role",
            "the account's owner allows the network of this machine, whose packets leave it by the allowed "
            "way, such as a private endpoint, and then looks at its roles",
        ),
        "AuthorizationSourceIPMismatch": (
            "the URL is for another address than this machine's",
            "the account's owner allows the public address from which this machine reaches the store",
        ),
        "PublicAccessNotPermitted": (
            "the store has received no credentials that it knows",
            "look for a proxy that removes the query of URLs",
        ),
        "SecurityPolicyViolated": (
            "a VPC service perimeter of Google excludes this machine",
            "its owner allows the network of this machine in an access level or an ingress rule",
        ),
        "403": (
            "the store, or something before it, denies the request: the identity has no right, or a network "
            "rule excludes this machine",
            "the store's owner looks at its rights, then at its network rules; packets of this machine must "
            "leave its network by the allowed way, such as a private endpoint",
        ),
    },
    Kind.CREDENTIALS: {
        "AuthenticationFailed InvalidAuthenticationInfo": (
            "the account does not accept the key or the token: it was replaced, or the clock of this machine "
            "is wrong",
            "the operator replaces the key, sets the clock by NTP, and looks at `tenantId`",
        ),
        "AuthenticationRequired 401": (
            "the store does not accept the credentials",
            "the operator renews the identity that `delta-gateway check` names",
        ),
        "ExpiredToken": (
            "the credentials, or the URL that they signed, have ended",
            "the operator renews them where they come from, and sets the clock by NTP",
        ),
        "gs:InvalidArgument": (
            "Google does not accept the key of the URL",
            "the operator replaces the HMAC key",
        ),
        "InvalidAccessKeyId XAdminUserNotFound": (
            "the access key does not exist, or is disabled",
            "the operator replaces it",
        ),
        "InvalidToken": ("the session token does not belong to the access key", "the operator replaces both"),
        "KeyBasedAuthenticationNotPermitted": (
            "the account does not allow access by its key (allowSharedKeyAccess is false)",
            "the operator removes accountKey and gives an identity",
        ),
        "SignatureDoesNotMatch": (
            "the signature does not fit the request: the secret does not belong to the access key, or "
            "something on the way changes requests",
            "the operator replaces the secret and looks at proxies",
        ),
    },
    Kind.CLOCK: {
        "RequestTimeTooSkewed OutOfRangeInput": (
            "the clock of the signer differs from the clock of the store",
            "the operator sets the clock, for example by NTP",
        ),
        "gs:ExpiredToken": (
            "the URL has ended, or the clock of this machine is wrong",
            "the operator sets the clock, for example by NTP",
        ),
    },
    Kind.SETTING: {
        "AuthorizationHeaderMalformed AuthorizationQueryParametersError IllegalLocationConstraintException "
        "PermanentRedirect s3:301": (_OTHER_REGION, "the operator sets `region`"),
        "AuthorizationProtocolMismatch": (
            "the account accepts only HTTPS",
            "the operator gives an https:// endpoint",
        ),
        "UserProjectAccessDenied": (
            "the identity may not charge the project",
            "its owner grants serviceusage.services.use on `userProject`",
        ),
        "UserProjectMissing": ("the bucket's requester pays", "the operator sets `userProject`"),
        "301": ("the store is at another address", "the operator looks at the endpoint"),
        "NotImplemented MethodNotAllowed 405 501": (
            "the store lacks a part of the API that the gateway needs",
            "the operator looks at the endpoint, then takes another store or another version of it",
        ),
    },
    Kind.PLACE: {
        "AccountIsDisabled": ("the account is disabled", "its owner enables it"),
        "AllAccessDisabled": ("the bucket is disabled", "its owner enables it"),
        "ContainerNotFound FilesystemNotFound ResourceNotFound "
        "ContainerBeingDeleted FilesystemBeingDeleted": (
            "the container does not exist",
            "the operator looks at the location and the account",
        ),
        "NoSuchBucket": ("the bucket does not exist", "the operator looks at the location and the endpoint"),
    },
    Kind.FILE: {
        "NoSuchKey BlobNotFound PathNotFound 404": (
            "a data file is missing",
            "it was deleted, for example by VACUUM while it was read: try again; if it stays so, restore the "
            "table",
        ),
        "InvalidObjectState BlobArchived BlobBeingRehydrated": (
            "the file is in an archive tier",
            "the bucket's owner moves the table's files to an online tier",
        ),
        "DecompressiveTranscoding": (
            "the file is stored with a content encoding, which Google undoes when it sends the file",
            "the bucket's owner stores the table's files without one",
        ),
    },
    Kind.BUSY: {
        "SlowDown ServerBusy 429": (
            "the store limits the rate of requests",
            "try again later, with fewer jobs at a time",
        ),
        "503": ("the store limits the rate of requests, or is not available", "try again later"),
        "InternalError 500 502 504": (
            "the store, or something before it, has failed",
            "try again later; if it stays so, look at the status of the store and at proxies",
        ),
    },
    Kind.OTHER: {
        "400": (
            "the store does not understand the request",
            "the operator looks at the endpoint and the region",
        ),
        "": ("the store gives no known reason", "look at the storage's own log"),
    },
}
"""By kind: codes and statuses, with `store:` before those of one store, the meaning and the advice."""
_KNOWN = {
    code: Refusal(kind, *texts)
    for kind, group in TABLE.items()
    for codes, texts in group.items()
    for code in codes.split(" ")
}


def refusal(
    store: str,
    status: int | None,
    body: str,
    *,
    code: str | None = None,
    ahead_seconds: float | None = None,
) -> Refusal:
    """Return the meaning of an answer of a store: `s3`, `azure` or `gs`.

    `code` is from Azure's header; `ahead_seconds`: the clock of this machine is ahead of the answer.
    """
    match = CODE.search(body)
    name = code if code is not None and code.isalnum() else (match[1] if match else "")
    # `KMS.DisabledException` and its siblings are one.
    if name == "PermanentRedirect":
        # The native client takes a redirect for a bad request, as its own client drops the body.
        status = HTTPStatus.MOVED_PERMANENTLY.value
    names = [f"{store}:{name}", name, name.partition(".")[0]]
    # Of an unknown code with 404, what is absent is not known to be a file.
    if not name or status != HTTPStatus.NOT_FOUND:
        names += [f"{store}:{status}", str(status)]
    known = next((_KNOWN[key] for key in names if key and key in _KNOWN), _KNOWN[""])
    meant = replace(known, status=status, code=name)
    if _ENDED.search(body):
        return replace(
            meant,
            kind=Kind.CLOCK,
            meaning="the URL has ended",
            advice="set the clock of this machine by NTP; if it is right, the operator looks at the clock of "
            "the server and at the life of the keys that sign",
        )
    ahead = ahead_seconds or 0.0
    if status == HTTPStatus.FORBIDDEN and abs(ahead) > SKEW_SECONDS:
        side = "ahead of" if ahead > 0 else "behind"
        meaning = f"the clock of this machine is {abs(ahead) / 60:.0f} minutes {side} the store's clock"
        return replace(meant, kind=Kind.CLOCK, meaning=meaning, advice="set it by NTP")
    region = _REGION.search(body)
    if region is not None and meant.meaning == _OTHER_REGION:
        return replace(meant, meaning=f"the bucket is in the region {region[1]}")
    return meant


def explained(store: str, detail: str) -> str:
    """Return what the answer of a store in the detail of an error means; empty for a detail without one."""
    answered, code = _ANSWERED.search(detail), CODE.search(detail)
    status = int(answered[1]) if answered else None
    if detail.startswith(_IAM):
        return f"the IAM service {f'answers {status}' if status else 'signs no URL'}: {_SIGN_BLOB}"
    meant = refusal(store, status, detail)
    if detail.startswith(_LISTING) and meant.kind in {Kind.FILE, Kind.OTHER}:
        # A 404 without the code of an absent bucket: no file was asked for.
        return f"the store answers {meant.name}: {_NO_STORE}"
    return f"the store answers {meant}" if answered or code else ""


def refuses_credentials(store: str, detail: str) -> bool:
    """Return whether the answer in the detail of an error is about credentials: others may be accepted."""
    answered = _ANSWERED.search(detail)
    return refusal(store, int(answered[1]) if answered else None, detail).kind is Kind.CREDENTIALS


def seconds_ahead(date: str, now_seconds: float) -> float | None:
    """Return the seconds that a clock is ahead of a `Date` header; None for a text that is no date."""
    try:
        sent = parsedate_to_datetime(date)
    except (TypeError, ValueError, OverflowError):
        return None
    return now_seconds - sent.replace(tzinfo=sent.tzinfo or UTC).timestamp()
