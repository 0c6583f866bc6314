"""Services of Azure that give out tokens, for tests: Entra ID, the metadata service of a VM, App Service.

Azurite accepts their tokens: it checks all of a token but the signature.
"""

import base64
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.http_service import HttpService, Request, Response, json_response, serving

TENANT = "0f7d4c8e-5b1a-4f0e-9a52-3c1a6d7e8f90"
CLIENT = "6a1e2b3c-4d5e-4f60-8a7b-9c0d1e2f3a4b"
OBJECT = "b2c3d4e5-f607-4182-93a4-b5c6d7e8f901"
AUDIENCE = "https://storage.azure.com"
RESOURCE = f"{AUDIENCE}/"
SCOPE = f"{AUDIENCE}/.default"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def token(seconds: int) -> str:
    """An access token of the tests' identity."""
    now = int(time.time())
    claims = {
        "aud": AUDIENCE,
        "iss": f"https://sts.windows.net/{TENANT}/",
        "iat": now,
        "nbf": now - 60,
        "exp": now + seconds,
        "oid": OBJECT,
        "sub": OBJECT,
        "tid": TENANT,
        "appid": CLIENT,
        "ver": "1.0",
        # Two tokens of one second differ.
        "jti": secrets.token_hex(8),
    }
    words = [_base64url(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims)]
    return ".".join([*words, _base64url(secrets.token_bytes(32))])


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@dataclass
class Identities:
    """Who gets tokens, and the services that give them."""

    client_secret: str = field(default="the-secret-of-the-client", repr=False)
    federated_tokens: set[str] = field(default_factory=set)
    """The tokens of workload identities that are accepted."""
    seconds: int = 3600
    """The lifetime of a token."""
    header: str = "the-header-of-the-app-service"
    failures: list[Response] = field(default_factory=list)
    """The next answers to requests for tokens."""
    granted: list[str] = field(default_factory=list)
    """The tokens, in order."""
    service: HttpService | None = None

    @property
    def url(self) -> str:
        """The URL of the services."""
        assert self.service is not None
        return self.service.url

    def environment(self) -> dict[str, str]:
        """The variables of App Service."""
        return {"IDENTITY_ENDPOINT": f"{self.url}/msi/token", "IDENTITY_HEADER": self.header}

    def answer(self, request: Request) -> Response:
        """Answers one call of any of the services."""
        if request.path == "/metadata/identity/oauth2/token":
            return self._metadata(request)
        if request.path == "/msi/token":
            return self._app_service(request)
        if request.path.endswith("/openid-configuration"):
            return self._configuration(request)
        if request.path == f"/{TENANT}/oauth2/v2.0/token":
            return self._entra(request)
        return json_response({"error": "invalid_tenant", "error_description": "AADSTS90002"}, 400)

    def _configuration(self, request: Request) -> Response:
        authority = f"{self.url}/{request.path.split('/')[1]}"
        return json_response(
            {
                "issuer": f"{authority}/v2.0",
                "token_endpoint": f"{authority}/oauth2/v2.0/token",
                "authorization_endpoint": f"{authority}/oauth2/v2.0/authorize",
                "device_authorization_endpoint": f"{authority}/oauth2/v2.0/devicecode",
            }
        )

    def _entra(self, request: Request) -> Response:
        form = request.form
        if self.failures:
            return self.failures.pop(0)
        if form.get("grant_type") != "client_credentials" or form.get("scope") != SCOPE:
            return entra_error("invalid_scope", 1002012, 400)
        if form.get("client_id") != CLIENT:
            return entra_error("unauthorized_client", 700016, 400)
        if "client_assertion" in form:
            if form["client_assertion"] not in self.federated_tokens:
                return entra_error("invalid_client", 700213, 401)
            if form.get("client_assertion_type") != ASSERTION:
                return entra_error("invalid_request", 900144, 400)
        elif form.get("client_secret") != self.client_secret:
            return entra_error("invalid_client", 7000215, 401)
        return json_response(self._grant() | {"expires_in": self.seconds, "ext_expires_in": self.seconds})

    def _metadata(self, request: Request) -> Response:
        if request.headers.get("metadata") != "true" or "x-forwarded-for" in request.headers:
            return json_response({"error": "invalid_request"}, 400)
        return self._managed(request)

    def _app_service(self, request: Request) -> Response:
        if request.headers.get("x-identity-header") != self.header:
            return json_response({"statusCode": 401, "message": "unauthorized"}, 401)
        return self._managed(request)

    def _managed(self, request: Request) -> Response:
        if self.failures:
            return self.failures.pop(0)
        if request.query.get("resource", "").rstrip("/") != AUDIENCE:
            return json_response({"error": "invalid_resource"}, 400)
        if request.query.get("client_id", CLIENT) != CLIENT:
            return json_response({"error": "invalid_request", "error_description": "Identity not found"}, 400)
        # Text and not a number, as the services answer.
        expires = {"expires_on": str(int(time.time()) + self.seconds), "expires_in": str(self.seconds)}
        return json_response(self._grant() | expires | {"resource": RESOURCE, "client_id": CLIENT})

    def _grant(self) -> dict[str, Any]:
        # The store accepts it for longer: the end that a client sees is rounded down.
        self.granted.append(granted := token(self.seconds + 600))
        return {"token_type": "Bearer", "access_token": granted}


def entra_error(error: str, number: int, status: int) -> Response:
    """An error of Entra ID."""
    description = f"AADSTS{number}: the tests refuse this request. Trace ID: 1"
    return json_response({"error": error, "error_description": description, "error_codes": [number]}, status)


THROTTLED = Response(429, b'{"error": "temporarily_unavailable"}', {"Retry-After": "0"})


@contextmanager
def running(identities: Identities, pair: Path | None = None) -> Iterator[Identities]:
    """Runs the services until the block ends, with TLS if a file has certificate and key."""
    with serving(identities.answer, pair) as identities.service:
        yield identities
