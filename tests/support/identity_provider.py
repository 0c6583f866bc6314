"""An identity provider of the tests: discovery, keys and signed tokens with any header and claims."""

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

AUDIENCE = "https://sharing.example.com"
CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1()}


@asynccontextmanager
async def hanging_server() -> AsyncIterator[str]:
    """The URL of a server that answers nothing."""
    ending = asyncio.Event()

    async def hang(_request: web.Request) -> web.Response:
        await ending.wait()
        return web.Response()

    app = web.Application()
    app.router.add_get("/{path:.*}", hang)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))
        ending.set()


@cache
def private_key(algorithm: str, name: str) -> Any:
    """A key of a name; the same one for each call."""
    if algorithm in CURVES:
        return ec.generate_private_key(CURVES[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_jwk(algorithm: str, name: str, **changes: Any) -> dict[str, Any]:
    """The public half of a key, as an entry of a key set; a change to None removes a parameter."""
    described = json.loads(
        jwt.get_algorithm_by_name(algorithm).to_jwk(private_key(algorithm, name).public_key())
    )
    described = {**described, "kid": name, "use": "sig", **changes}
    described.pop("key_ops", None) if "key_ops" not in changes else None
    return {key: value for key, value in described.items() if value is not None}


def signed(
    claims: Mapping[str, Any],
    *,
    algorithm: str = "RS256",
    name: str = "k1",
    header: Mapping[str, Any] | None = None,
) -> str:
    """A token; a header parameter of None is left out."""
    headers = {"kid": name, **(header or {})}
    return jwt.encode(dict(claims), private_key(algorithm, name), algorithm, headers=headers)


def unsigned(header: Mapping[str, Any], claims: Mapping[str, Any], *rest: str) -> str:
    """A token with any parts after its header and claims."""
    parts = [urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, claims)]
    return ".".join([*parts, *rest])


@dataclass
class IdentityProvider:
    """A provider on a socket of this machine.

    Attributes:
        keys: the published key set.
        requests: paths of the requests so far.
        changes: of the discovery document.
        status: of every answer.
        headers: of the key set.
        port: port of the server; a second start has that of the first one.

    """

    keys: list[dict[str, Any]] = field(default_factory=lambda: [public_jwk("RS256", "k1")])
    requests: list[str] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    port: int | None = None
    server: TestServer = field(init=False)

    @property
    def issuer(self) -> str:
        """The issuer's URL."""
        return f"http://127.0.0.1:{self.port}/realm"

    def claims(self, now_seconds: float, **changes: Any) -> dict[str, Any]:
        """The claims of a token that is valid for an hour; a change to None removes a claim."""
        claims = {
            "iss": self.issuer,
            "sub": "alice",
            "aud": AUDIENCE,
            "iat": int(now_seconds),
            "exp": int(now_seconds) + 3600,
            "jti": "id-1",
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    async def start(self) -> None:
        """Start the server."""
        app = web.Application()
        self.add_routes(app)
        self.server = TestServer(app, port=self.port)
        await self.server.start_server()
        self.port = self.server.port or 0

    def add_routes(self, app: web.Application) -> None:
        """Add what the provider answers."""
        app.router.add_get("/realm/.well-known/openid-configuration", self._discovery)
        app.router.add_get("/keys", self._keys)

    async def close(self) -> None:
        """Stop the server."""
        await self.server.close()

    async def _discovery(self, request: web.Request) -> web.Response:
        self.requests.append(request.path)
        document = {"issuer": self.issuer, "jwks_uri": str(self.server.make_url("/keys")), **self.changes}
        return web.json_response(document, status=self.status)

    async def _keys(self, request: web.Request) -> web.Response:
        self.requests.append(request.path)
        return web.json_response({"keys": self.keys}, status=self.status, headers=self.headers)
