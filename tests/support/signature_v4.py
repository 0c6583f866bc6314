"""Verifies signatures of version 4 from a received request: of AWS, and of Google by HMAC and by RSA.

Written from the public descriptions and without the signers of the gateway. The canonical request is rebuilt
from the bytes of the request, so a signer that encodes a key in another way is found.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, unquote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from support.http_service import Request

LONGEST = timedelta(days=7)
CLOCK_SKEW = timedelta(minutes=15)
UNRESERVED = "-_.~"


class SignatureRefused(Exception):
    """Raised when a request is not signed as its service demands, with the service's error code."""


@dataclass(frozen=True)
class Dialect:
    """What differs between AWS and Google."""

    algorithm: str
    parameters: str
    key_prefix: str
    service: str
    terminator: str


AWS = Dialect("AWS4-HMAC-SHA256", "X-Amz-", "AWS4", "s3", "aws4_request")
GOOGLE_HMAC = Dialect("GOOG4-HMAC-SHA256", "X-Goog-", "GOOG4", "storage", "goog4_request")
GOOGLE_RSA = Dialect("GOOG4-RSA-SHA256", "X-Goog-", "", "storage", "goog4_request")


@dataclass(frozen=True)
class Keys:
    """Whose signatures are accepted: secrets by access id, public keys by e-mail address."""

    secrets: Mapping[str, str]
    public_keys: Mapping[str, rsa.RSAPublicKey]


@dataclass(frozen=True)
class Signed:
    """What a signed request says of itself."""

    dialect: Dialect
    credential: str
    date: str
    signed_headers: str
    signature: str
    canonical_query: str
    payload_hash: str

    @property
    def signer(self) -> str:
        """The access id or the e-mail address."""
        return self.credential.rsplit("/", 4)[0]

    @property
    def scope(self) -> str:
        """The date, region, service and terminator."""
        return self.credential[len(self.signer) + 1 :]

    @property
    def moment(self) -> datetime:
        """When it was signed."""
        try:
            return datetime.strptime(self.date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise SignatureRefused("InvalidDate") from None


def verify(request: Request, keys: Keys, *, now: datetime | None = None, service: str | None = None) -> str:
    """Return who signed a request, by its query or its header. Raises SignatureRefused.

    `service` is another service of AWS than S3.
    """
    now = now or datetime.now(UTC)
    signed = _of_header(request) if "authorization" in request.headers else _of_query(request, now)
    if "authorization" in request.headers and abs(signed.moment - now) > CLOCK_SKEW:
        raise SignatureRefused("RequestTimeTooSkewed")
    scope = signed.scope.split("/")
    known = [service or signed.dialect.service, signed.dialect.terminator]
    if scope[0] != signed.date[:8] or scope[2:] != known:
        raise SignatureRefused("AuthorizationQueryParametersError")
    text = string_to_sign(request, signed)
    if signed.dialect is GOOGLE_RSA:
        _verify_rsa(signed, text, keys.public_keys)
        return signed.signer
    secret = keys.secrets.get(signed.signer)
    if secret is None:
        raise SignatureRefused("InvalidAccessKeyId")
    if not hmac.compare_digest(hmac_signature(signed, secret, text), signed.signature):
        raise SignatureRefused("SignatureDoesNotMatch")
    return signed.signer


def string_to_sign(request: Request, signed: Signed) -> str:
    """The text that is signed, rebuilt from the request."""
    names = signed.signed_headers.split(";")
    if "host" not in names or any(name not in request.headers for name in names):
        raise SignatureRefused("SignatureDoesNotMatch")
    headers = "".join(f"{name}:{' '.join(request.headers[name].split())}\n" for name in names)
    canonical = "\n".join(
        [
            request.method,
            quote(unquote(request.path, errors="strict"), safe=f"/{UNRESERVED}"),
            signed.canonical_query,
            headers,
            signed.signed_headers,
            signed.payload_hash,
        ]
    )
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    return f"{signed.dialect.algorithm}\n{signed.date}\n{signed.scope}\n{digest}"


def hmac_signature(signed: Signed, secret: str, text: str) -> str:
    """The signature by a secret, in hexadecimal digits."""
    key = (signed.dialect.key_prefix + secret).encode()
    for word in signed.scope.split("/"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _verify_rsa(signed: Signed, text: str, public_keys: Mapping[str, rsa.RSAPublicKey]) -> None:
    key = public_keys.get(signed.signer)
    if key is None:
        raise SignatureRefused("InvalidSecurity")
    try:
        key.verify(bytes.fromhex(signed.signature), text.encode(), padding.PKCS1v15(), hashes.SHA256())
    except (InvalidSignature, ValueError):
        raise SignatureRefused("SignatureDoesNotMatch") from None


def _of_query(request: Request, now: datetime) -> Signed:
    parameters = _parameters(request)
    values = dict(parameters)
    algorithm = values.get("X-Amz-Algorithm") or values.get("X-Goog-Algorithm")
    dialect = next((known for known in (AWS, GOOGLE_HMAC, GOOGLE_RSA) if known.algorithm == algorithm), None)
    if dialect is None:
        raise SignatureRefused("AccessDenied")
    prefix = dialect.parameters
    try:
        signed = Signed(
            dialect,
            values[f"{prefix}Credential"],
            values[f"{prefix}Date"],
            values[f"{prefix}SignedHeaders"],
            values[f"{prefix}Signature"],
            _canonical_query(parameters, without=f"{prefix}Signature"),
            "UNSIGNED-PAYLOAD",
        )
        lifetime = timedelta(seconds=int(values[f"{prefix}Expires"]))
    except (KeyError, ValueError):
        raise SignatureRefused("AuthorizationQueryParametersError") from None
    if not timedelta(0) < lifetime <= LONGEST:
        raise SignatureRefused("AuthorizationQueryParametersError")
    if signed.moment - CLOCK_SKEW > now:
        raise SignatureRefused("RequestNotYetValid")
    if signed.moment + lifetime < now:
        raise SignatureRefused("ExpiredToken")
    return signed


_HEADER = re.compile(r"(\S+) Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]+)")


def _of_header(request: Request) -> Signed:
    found = _HEADER.fullmatch(request.headers["authorization"])
    if found is None or found[1] != AWS.algorithm:
        raise SignatureRefused("AccessDenied")
    return Signed(
        AWS,
        found[2],
        request.headers.get("x-amz-date", ""),
        found[3],
        found[4],
        _canonical_query(_parameters(request)),
        request.headers.get("x-amz-content-sha256") or hashlib.sha256(request.body).hexdigest(),
    )


def _parameters(request: Request) -> list[tuple[str, str]]:
    return parse_qsl(request.raw_query, keep_blank_values=True, errors="strict")


def _canonical_query(parameters: list[tuple[str, str]], without: str = "") -> str:
    # Names and values are encoded once more by one rule: the encoding of the request is not trusted.
    encoded = sorted(
        (quote(name, safe=UNRESERVED), quote(value, safe=UNRESERVED))
        for name, value in parameters
        if name != without
    )
    return "&".join(f"{name}={value}" for name, value in encoded)
