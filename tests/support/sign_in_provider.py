"""An identity provider of the tests at which users sign in by code, with any ID token; and the console."""

import base64
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlsplit

import msgspec
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry, generate_latest

from gateway.admin.administration import ReloadResult
from gateway.admin.app import create_admin_app
from gateway.admin.setup import administer
from gateway.authentication.credential_table import token_hash
from gateway.config import Config
from gateway.console.app import add_console
from gateway.console.questions import ActivityAnswer
from gateway.console.site import Site
from gateway.telemetry.activity import Activity
from gateway.telemetry.metrics import AdminMetrics
from gateway.web.connections import AppRunner
from support.identity_provider import IdentityProvider, signed

CLIENT, SECRET = "console", "the secret: of 100% & the console"
OPERATOR_TOKEN, VIEWER_TOKEN = "the-token-of-the-operators", "the-token-of-the-viewers"
START, CALLBACK, PAGE = "/console/sign-in/provider", "/console/sign-in/callback", "/console/configuration"


@dataclass
class SignInProvider(IdentityProvider):
    """A provider on a socket of this machine.

    Attributes:
        claim_changes: of the ID token; a change to None removes a claim.
        make_token: makes the ID token of its claims.
        forms: of the token requests, with the client and the secret of the request as `client`.
        token_answer: answers token requests in place of a token, with a status.

    """

    claim_changes: dict[str, Any] = field(default_factory=dict)
    make_token: Callable[[Mapping[str, Any]], Any] = signed
    forms: list[dict[str, str]] = field(default_factory=list)
    token_answer: tuple[int, Any] | None = None
    now_seconds: float = 0.0
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def add_routes(self, app: web.Application) -> None:
        super().add_routes(app)
        app.router.add_post("/token", self._token)

    async def start(self) -> None:
        await super().start()
        for name, path in (
            ("authorization", "authorize?tenant=1"),
            ("token", "token"),
            ("end_session", "end"),
        ):
            self.changes.setdefault(f"{name}_endpoint", str(self.server.make_url("/")) + path)

    def authorize(self, location: str) -> dict[str, str]:
        """Sign the user of a browser in that was led to a location; the parameters of the answer."""
        query = dict(parse_qsl(urlsplit(location).query))
        assert query["tenant"] == "1"
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        code = secrets.token_urlsafe(8)
        self.codes[code] = query
        return {"code": code, "state": query["state"]}

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs(await request.text()).items()}
        scheme, _, pair = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            client, _, secret = base64.b64decode(pair).decode().partition(":")
            form["client"] = f"basic {unquote_plus(client)} {unquote_plus(secret)}"
        elif "client_secret" in form:
            form["client"] = f"form {form['client_id']} {form['client_secret']}"
        else:
            form["client"] = f"public {form['client_id']}"
        self.forms.append(form)
        if self.token_answer is not None:
            status, answer = self.token_answer
            return web.json_response(answer, status=status)
        # A code is redeemed once, by whom it was given to, for the address to which it was sent.
        query = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            query is None
            or query["code_challenge"] != challenge
            or query["redirect_uri"] != form["redirect_uri"]
            or form["grant_type"] != "authorization_code"
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        changes = {"aud": query["client_id"], "nonce": query["nonce"], **self.claim_changes}
        token = self.make_token(self.claims(self.now_seconds, **changes))
        return web.json_response({"access_token": "opaque", "token_type": "Bearer", "id_token": token})


class ConsoleClient:
    """A browser without pages: a client of the console that keeps cookies and follows no redirect."""

    def __init__(self, client: TestClient[Any, Any]) -> None:
        self.client = client
        self.base = str(client.make_url("")).rstrip("/")

    @property
    def redirect_url(self) -> str:
        """The address that the provider has."""
        return self.base + CALLBACK

    async def get(self, path: str, **options: Any) -> ClientResponse:
        """Open a page."""
        return await self.client.get(path, allow_redirects=False, **options)

    async def post(self, path: str, form: Mapping[str, str]) -> ClientResponse:
        """Send a form, as one of the console."""
        headers = {"Origin": self.base}
        return await self.client.post(path, data=form, headers=headers, allow_redirects=False)

    async def begin(self, target: str = PAGE) -> str:
        """Begin a sign-in; where the browser is led."""
        started = await self.get(START, params={"next": target})
        assert started.status == 303, await started.text()
        return started.headers["Location"]

    async def sign_in(self, provider: SignInProvider, **changes: str) -> ClientResponse:
        """Sign in at the provider; the answer of the console. The changes are those of the parameters."""
        parameters = {**provider.authorize(await self.begin()), **changes}
        return await self.get(CALLBACK, params=parameters)

    async def auth_failures(self) -> float:
        """How often somebody has failed to authenticate, by the metrics."""
        page = await (
            await self.get("/metrics", headers={"Authorization": f"Bearer {OPERATOR_TOKEN}"})
        ).text()
        found = re.search(r"^delta_gateway_admin_auth_failures_total (\S+)$", page, re.MULTILINE)
        assert found, page
        return float(found[1])

    def cookie(self, name: str) -> Any:
        """The cookie of a name; None without it."""
        kept = [cookie for cookie in self.client.session.cookie_jar if cookie.key == name]
        return kept[0] if kept else None


@asynccontextmanager
async def console_client(
    config: Callable[[], Config], now_ms: Callable[[], int], *, activity: Activity | None = None
) -> AsyncIterator[ConsoleClient]:
    """Serve the console of a configuration, without processes that serve recipients.

    `activity`: what one such process remembers.
    """

    async def reload() -> ReloadResult:
        return ReloadResult(None)

    async def ask(question: Any, *, one: bool = False, seconds: float) -> list[Any]:
        assert seconds
        if activity is not None and question["type"] == "AskRanks":
            return [activity.figures(question["figure"])]
        if activity is not None and question["type"] == "AskActivity":
            return [msgspec.to_builtins(ActivityAnswer((), tuple(activity.streams())))]
        # No process answers, but that of one that shares nothing.
        return [{"places": [], "total": 0}] if one and question["type"] == "AskPlaces" else []

    settings, registry = config().gateway.admin, CollectorRegistry()
    assert settings is not None
    administration = administer(
        settings,
        config,
        audit=None,
        metrics_page=lambda: generate_latest(registry),
        reload=reload,
        had_database=lambda: False,
        metrics=AdminMetrics(registry),
        now_ms=now_ms,
    )
    app = create_admin_app(administration)
    add_console(app, Site(administration, config, ask, 1, settings.viewer_token_sha256, now_ms))
    async with TestClient(AdminServer(app)) as client:
        yield ConsoleClient(client)


class AdminServer(TestServer):
    """A server with the connections of the admin listener, where a client that leaves cancels nothing."""

    async def _make_runner(self, **options: Any) -> AppRunner:
        return AppRunner(self.app, **options)


def admin_section(provider: SignInProvider, redirect_url: str, **changes: Any) -> dict[str, Any]:
    """The section of the configuration with a provider; a change to None leaves a key out."""
    oidc = {
        "issuer": provider.issuer,
        "clientId": CLIENT,
        "redirectUrl": redirect_url,
        "operatorValues": ["operators"],
        "viewerValues": ["viewers"],
        "allowPrivateAddresses": True,
        **changes,
    }
    return {
        "tokenSha256": token_hash(OPERATOR_TOKEN).hex(),
        "viewerTokenSha256": token_hash(VIEWER_TOKEN).hex(),
        "oidc": {name: value for name, value in oidc.items() if value is not None},
    }


def secret_file(directory: Path) -> str:
    """A file with the client's secret."""
    file = directory / "client-secret"
    file.write_text(f"{SECRET}\n")
    return str(file)
