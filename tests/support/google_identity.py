"""Services of Google that give out tokens and signatures, for tests.

Token exchanges of service accounts and of federated identities, impersonation, signatures by IAM, and the
metadata server of a machine. Assertions and signatures are verified and made by `cryptography`.
"""

import base64
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from support.access_boundary import Boundary
from support.google_storage import GoogleStorage
from support.http_service import HttpService, Request, Response, json_response, serving

EMAIL = "reader@tests.iam.gserviceaccount.com"
GRANT_OF_ASSERTION = "urn:ietf:params:oauth:grant-type:jwt-bearer"
GRANT_OF_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
AUDIENCE = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/tests"

UNUSABLE = {
    "type": "external_account",
    "audience": "a",
    "subject_token_type": "t",
    "token_url": "https://t",
    "credential_source": {"none": "n"},
}
"""A file of Google that is whole, and names no source that there is."""


@cache
def account_key() -> rsa.RSAPrivateKey:
    """The key of the account, made once: that takes some 0.1 s."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class GoogleIdentity:
    """One service account, its key, and the services that know it."""

    storage: GoogleStorage
    """The store that accepts the tokens and the signatures."""
    email: str = EMAIL
    key: rsa.RSAPrivateKey = field(default_factory=account_key, repr=False)
    seconds: int = 3600
    """The lifetime of a token."""
    subject_tokens: set[str] = field(default_factory=set)
    """The tokens of other providers that are exchanged."""
    has_account: bool = True
    """Whether the machine has a service account."""
    failures: list[Response] = field(default_factory=list)
    """The next answers."""
    downscoped_life: dict[str, int] = field(default_factory=dict)
    """`expires_in` of tokens with a boundary; Google may leave it out."""
    signatures: int = 0
    """The number of signatures by IAM."""
    service: HttpService | None = None
    _pool_tokens: set[str] = field(default_factory=set, repr=False)

    @property
    def url(self) -> str:
        """The URL of the services."""
        assert self.service is not None
        return self.service.url

    @property
    def private_key(self) -> str:
        """The key in PEM form."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    def service_account_file(self, directory: Path, **changes: Any) -> Path:
        """Writes the file of the service account."""
        document = {
            "type": "service_account",
            "project_id": "tests",
            "private_key_id": "the-id-of-the-key",
            "private_key": self.private_key,
            "client_email": self.email,
            "client_id": "1",
            "token_uri": f"{self.url}/token",
        }
        return _written(directory / "service-account.json", document | changes)

    def external_account_file(self, directory: Path, *, impersonates: bool) -> Path:
        """Writes the file of a federated identity, whose own token is in a file beside it."""
        subject = directory / "subject-token"
        subject.write_text("the-token-of-another-provider")
        self.subject_tokens.add(subject.read_text())
        document = {
            "type": "external_account",
            "audience": AUDIENCE,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{self.url}/v1/token",
            "credential_source": {"file": str(subject)},
        }
        if impersonates:
            path = f"/v1/projects/-/serviceAccounts/{self.email}:generateAccessToken"
            document["service_account_impersonation_url"] = self.url + path
        return _written(directory / "external-account.json", document)

    def environment(self) -> dict[str, str]:
        """The variables of a machine with the metadata server."""
        host = self.url.partition("://")[2]
        return {"GCE_METADATA_HOST": host, "GCE_METADATA_IP": host, "GCE_METADATA_ROOT": host}

    def answer(self, request: Request) -> Response:
        """Answers one call of any of the services."""
        if self.failures:
            return self.failures.pop(0)
        path = unquote(request.path)
        if path == "/token":
            return self._assertion(request)
        if path == "/v1/token":
            return self._exchange(request)
        if path == f"/v1/projects/-/serviceAccounts/{self.email}:generateAccessToken":
            return self._impersonation(request)
        if path == f"/v1/projects/-/serviceAccounts/{self.email}:signBlob":
            return self._signature(request)
        return self._metadata(request)

    def _assertion(self, request: Request) -> Response:
        form = request.form
        head, _, signature = form.get("assertion", "").rpartition(".")
        try:
            signed = _base64url(signature)
            self.key.public_key().verify(signed, head.encode(), padding.PKCS1v15(), hashes.SHA256())
            claims = json.loads(_base64url(head.partition(".")[2]))
        except (InvalidSignature, ValueError):
            return google_error("invalid_grant", "Invalid JWT Signature.")
        now = time.time()
        if form.get("grant_type") != GRANT_OF_ASSERTION or claims["iss"] != self.email:
            return google_error("invalid_grant", "Invalid issuer.")
        if not now - 300 < claims["iat"] <= now + 300 or claims["exp"] < now:
            return google_error("invalid_grant", "Invalid JWT: Token must be a short-lived token.")
        return json_response(self._grant() | {"expires_in": self.seconds, "token_type": "Bearer"})

    def _exchange(self, request: Request) -> Response:
        form = request.form
        if "options" in form:
            return self._downscoped(form)
        if form.get("grant_type") != GRANT_OF_EXCHANGE or form.get("audience") != AUDIENCE:
            return google_error("invalid_request", 'Invalid value for "audience".')
        if form.get("subject_token") not in self.subject_tokens:
            return google_error("invalid_grant", "The subject token is not accepted.")
        granted = self._grant()
        self._pool_tokens.add(granted["access_token"])
        kind = "urn:ietf:params:oauth:token-type:access_token"
        return json_response(
            granted | {"issued_token_type": kind, "token_type": "Bearer", "expires_in": self.seconds}
        )

    def _downscoped(self, form: dict[str, str]) -> Response:
        """Exchanges a token for one with an access boundary, which ends with it."""
        source = form.get("subject_token", "")
        if form.get("grant_type") != GRANT_OF_EXCHANGE or source not in self.storage.tokens:
            return google_error("invalid_grant", "The subject token is not accepted.")
        if source in self.storage.boundaries:
            return google_error("invalid_request", "The subject token is downscoped already.")
        try:
            boundary = Boundary.parse(json.loads(unquote(form["options"])))
        except (ValueError, KeyError, TypeError):
            return google_error("invalid_request", "Invalid access boundary.")
        token = self._grant()["access_token"]
        self.storage.boundaries[token] = boundary
        kind = "urn:ietf:params:oauth:token-type:access_token"
        granted = {"access_token": token, "issued_token_type": kind, "token_type": "Bearer"}
        return json_response(granted | self.downscoped_life)

    def _impersonation(self, request: Request) -> Response:
        if request.bearer not in self.storage.tokens:
            return iam_error("Permission 'iam.serviceAccounts.getAccessToken' denied")
        ends = datetime.now(UTC) + timedelta(seconds=self.seconds)
        token = self._grant()["access_token"]
        return json_response({"accessToken": token, "expireTime": ends.strftime("%Y-%m-%dT%H:%M:%SZ")})

    def _signature(self, request: Request) -> Response:
        if request.bearer not in self.storage.tokens:
            return iam_error("Permission 'iam.serviceAccounts.signBlob' denied")
        self.signatures += 1
        text = base64.b64decode(json.loads(request.body)["payload"], validate=True)
        signature = self.key.sign(text, padding.PKCS1v15(), hashes.SHA256())
        return json_response({"keyId": "1", "signedBlob": base64.b64encode(signature).decode()})

    def _metadata(self, request: Request) -> Response:
        if request.headers.get("metadata-flavor") != "Google":
            return Response(403)
        flavor = {"Metadata-Flavor": "Google", "Content-Type": "application/json"}
        path = request.path.removeprefix("/computeMetadata/v1").rstrip("/")
        accounts = "/instance/service-accounts"
        if path == "":
            return Response(200, b"instance/\nproject/\n", flavor | {"Content-Type": "application/text"})
        if path == "/project/project-id":
            return Response(200, b"tests", flavor | {"Content-Type": "application/text"})
        if path == "/universe/universe-domain" or not self.has_account:
            return Response(404, b"", flavor)
        account = path.removeprefix(f"{accounts}/").partition("/")[2]
        if account == "token":
            document = self._grant() | {"expires_in": self.seconds, "token_type": "Bearer"}
        elif account == "email":
            return Response(200, self.email.encode(), flavor | {"Content-Type": "application/text"})
        elif account == "" and path.startswith(accounts):
            document = {"email": self.email, "scopes": ["cloud-platform"], "aliases": ["default"]}
        else:
            return Response(404, b"", flavor)
        return Response(200, json.dumps(document).encode(), flavor)

    def _grant(self) -> dict[str, Any]:
        token = f"ya29.{secrets.token_hex(16)}"
        self.storage.tokens.add(token)
        return {"access_token": token}


def google_error(error: str, description: str) -> Response:
    """An error of a token endpoint."""
    return json_response({"error": error, "error_description": description}, 400)


def iam_error(message: str) -> Response:
    """An error of IAM."""
    return json_response({"error": {"code": 403, "message": message, "status": "PERMISSION_DENIED"}}, 403)


def _base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


@contextmanager
def running(identity: GoogleIdentity) -> Iterator[GoogleIdentity]:
    """Runs the services until the block ends; the store accepts the account's signatures."""
    identity.storage.public_keys[identity.email] = identity.key.public_key()
    with serving(identity.answer) as identity.service:
        yield identity
