"""Tokens of a real OAuth server with the claims that Entra ID, Okta and Kubernetes write."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import tools
import yaml
from support.gateway_app import PREFIX, PipelineServer, serve
from support.processes import free_port, wait_for_port
from support.sign_in_provider import CALLBACK, PAGE, console_client

from gateway.config import Config, loads

SERVER = "no.nav.security.mock.oauth2.StandaloneMockOAuth2ServerKt"
AUDIENCE = "api://sharing"
TENANT, APP, OBJECT = "7d1c-tenant", "0aa1-client", "5e5e-object"
GROUP = "9c9c-group"
ACCOUNT = "system:serviceaccount:reporting:reader"

ENTRA_APP = {
    "aud": AUDIENCE, "azp": APP, "azpacr": "1", "oid": OBJECT, "sub": OBJECT, "tid": TENANT,
    "roles": ["Sharing.Read"], "uti": "u", "ver": "2.0",
}  # fmt: skip
ENTRA_USER = {
    "aud": AUDIENCE, "azp": APP, "oid": OBJECT, "sub": "pairwise", "tid": TENANT, "ver": "2.0",
    "scp": "Sharing.Read User.Read", "groups": ["other", GROUP], "preferred_username": "a@example.com",
}  # fmt: skip
ENTRA_V1 = {
    "aud": AUDIENCE, "appid": APP, "appidacr": "1", "idp": "https://sts.windows.net/t/", "oid": OBJECT,
    "sub": OBJECT, "tid": TENANT, "ver": "1.0",
}  # fmt: skip
ENTRA_OVERAGE = {
    **ENTRA_USER, "groups": None, "_claim_names": {"groups": "src1"},
    "_claim_sources": {"src1": {"endpoint": "https://graph.example.com/users/5e5e/getMemberObjects"}},
}  # fmt: skip
OKTA = {
    "ver": 1, "aud": AUDIENCE, "cid": APP, "sub": APP, "scp": ["sharing.read", "other"], "groups": [GROUP],
    "auth_time": 1_795_000_000,
}  # fmt: skip
KUBERNETES = {
    "aud": ["https://kubernetes.default.svc", AUDIENCE], "sub": ACCOUNT,
    "kubernetes.io": {
        "namespace": "reporting",
        "pod": {"name": "reader-0", "uid": "u1"},
        "serviceaccount": {"name": "reader", "uid": "u2"},
        "warnafter": 1_795_000_000,
    },
}  # fmt: skip
TOKENS = {
    "entra-app": ENTRA_APP,
    "entra-user": ENTRA_USER,
    "entra-v1": ENTRA_V1,
    "entra-overage": ENTRA_OVERAGE,
    "okta": OKTA,
    "kubernetes": KUBERNETES,
}

OPERATORS, VIEWER = "gateway-operators", "viewer@example.com"
CONSOLE_USERS: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "entra-app-roles": (
        {"oid": OBJECT, "tid": TENANT, "ver": "2.0", "roles": ["Other", OPERATORS], "sub": "pairwise"},
        "roles", "operator",
    ),
    "entra-groups-overage": (
        {"oid": OBJECT, "tid": TENANT, "_claim_names": {"groups": "src1"}, "sub": "pairwise"}, "groups", None,
    ),
    "okta-groups": ({"groups": ["Everyone", OPERATORS], "ver": 1, "amr": ["pwd"]}, "groups", "operator"),
    "keycloak-roles": (
        {"realm_access": {"roles": ["offline_access", OPERATORS]}, "azp": "keycloak-roles", "typ": "ID"},
        "realm_access.roles", "operator",
    ),
    "google-email": (
        {"email": VIEWER, "email_verified": True, "hd": "example.com", "azp": "google-email"},
        "email", "viewer",
    ),
    "google-unverified": ({"email": VIEWER, "email_verified": False}, "email", None),
    "google-domain": ({"hd": "example.com"}, "hd", "viewer"),
}  # fmt: skip
"""Claims of ID tokens by the id of the client, the claim that decides on the role, and the role."""


@dataclass(frozen=True)
class OAuthServer:
    """A running server; the scope of a request chooses the claims of its token."""

    port: int

    @property
    def issuer(self) -> str:
        """The issuer's URL."""
        return f"http://127.0.0.1:{self.port}/provider"

    async def token(self, name: str) -> str:
        """Return a token of a name."""
        form = {"grant_type": "client_credentials", "scope": name}
        basic = {"Authorization": aiohttp.encode_basic_auth("client", "secret")}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.issuer}/token", data=form, headers=basic) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return str((await answer.json())["access_token"])


@pytest.fixture(scope="module")
def oauth_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuthServer]:
    jars = tools.CACHE / "oauth2_server"
    if not jars.exists():
        pytest.skip("the OAuth server is not installed: the part `spark` of tests/run.py does it")
    mappings = [
        {
            "requestParam": "scope",
            "match": name,
            "claims": {key: value for key, value in claims.items() if value is not None},
        }
        for name, claims in TOKENS.items()
    ]
    mappings += [
        {"requestParam": "client_id", "match": name, "claims": {"sub": "user", **claims}}
        for name, (claims, *_) in CONSOLE_USERS.items()
    ]
    callback = {"issuerId": "provider", "tokenExpiry": 3600, "requestMappings": mappings}
    port = free_port()
    variables = {
        **os.environ,
        "SERVER_PORT": str(port),
        "JSON_CONFIG": json.dumps({"interactiveLogin": False, "tokenCallbacks": [callback]}),
    }
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", SERVER]
    log_file: Path = tmp_path_factory.mktemp("oauth-server") / "log"
    with (
        log_file.open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=variables) as process,
    ):
        try:
            wait_for_port(port, process)
            yield OAuthServer(port)
        finally:
            process.terminate()


def policy(claim: str, subject: str, **claims: str) -> dict[str, Any]:
    """A policy without its issuer."""
    return {"subjectClaim": claim, "subject": subject, "audiences": [AUDIENCE], "claims": claims}


CASES = [
    ("entra-app", policy("azp", APP, tid=TENANT), None),
    ("entra-app", policy("oid", OBJECT), None),
    ("entra-app", policy("roles", "Sharing.Read"), None),
    ("entra-app", policy("azp", APP, tid="another"), "subject"),
    ("entra-app", policy("appid", APP), "subject"),
    ("entra-app", policy("groups", GROUP), "subject"),
    ("entra-app", policy("azp", APP) | {"audiences": ["sharing"]}, "audience"),
    ("entra-user", policy("groups", GROUP), None),
    ("entra-user", policy("oid", OBJECT, scp="Sharing.Read"), None),
    ("entra-user", policy("oid", OBJECT, scp="Sharing"), "subject"),
    ("entra-user", policy("oid", OBJECT, scp="Sharing.Read User.Read"), "subject"),
    ("entra-v1", policy("appid", APP, ver="1.0"), None),
    ("entra-v1", policy("azp", APP), "subject"),
    ("entra-overage", policy("groups", GROUP), "subject"),
    ("okta", policy("cid", APP, scp="sharing.read"), None),
    ("okta", policy("groups", GROUP), None),
    ("okta", policy("cid", APP, ver="1"), "subject"),
    ("kubernetes", policy("sub", ACCOUNT), None),
    ("kubernetes", policy("sub", "system:serviceaccount:reporting"), "subject"),
    ("kubernetes", policy("kubernetes.io", "reporting"), "subject"),
    ("kubernetes", policy("kubernetes.io.namespace", "reporting"), "subject"),
]


async def test_the_policies_of_providers_accept_their_tokens_and_no_others(
    oauth_server: OAuthServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.federation")
    tokens = {name: await oauth_server.token(name) for name in TOKENS}
    for name, described, refusal in CASES:
        issuer = {"issuer": oauth_server.issuer, "allowPrivateAddresses": True}
        recipient = {
            "name": "acme",
            "shares": ["sales"],
            "oidc": [described | {"issuer": oauth_server.issuer}],
        }
        section = {"oidc": {"issuers": [issuer]}, "recipients": [recipient]}
        client, _ = await serve(f"shares: [{{name: sales}}]\ngateway: {json.dumps(section)}\n")
        try:
            caplog.clear()
            headers = {"Authorization": f"Bearer {tokens[name]}"}
            answer = await client.get(f"{PREFIX}/shares", headers=headers)
            assert answer.status == (200 if refusal is None else 401), (name, described, caplog.text)
            server = client.server
            assert isinstance(server, PipelineServer)
            page = server.pipeline.recorder._metrics.page().decode()
            counted = f'delta_gateway_refused_requests_total{{reason="{refusal}"}} 1.0'
            assert refusal is None or counted in page, (name, described)
            assert ("left out groups" in caplog.text) == (name == "entra-overage")
        finally:
            await client.close()


@pytest.mark.parametrize("name", CONSOLE_USERS)
async def test_a_user_of_the_provider_has_a_role_in_the_console(oauth_server: OAuthServer, name: str) -> None:
    _, claim, role = CONSOLE_USERS[name]
    oidc = {
        "issuer": oauth_server.issuer,
        "clientId": name,
        "rolesClaim": claim,
        "operatorValues": [OPERATORS],
        "viewerValues": [VIEWER, "example.com"],
        "allowPrivateAddresses": True,
    }
    redirect_url = f"http://127.0.0.1:1{CALLBACK}"

    def config() -> Config:
        admin = {"tokenSha256": "a" * 64, "oidc": {**oidc, "redirectUrl": redirect_url}}
        return loads(yaml.safe_dump({"version": 1, "gateway": {"admin": admin}}), needs_readers=False)

    async with console_client(config, lambda: round(time.time() * 1000)) as console:
        redirect_url = console.redirect_url
        location = await console.begin()
        async with aiohttp.ClientSession() as browser:
            led_back = await browser.get(location, allow_redirects=False)
        assert led_back.headers["Location"].startswith(redirect_url)
        answer = await console.get(led_back.headers["Location"].removeprefix(console.base))
        assert answer.status == (403 if role is None else 200), await answer.text()
        page = await console.get(PAGE)
        if role is None:
            assert page.status == 303
        else:
            assert f'<span class="role">{role}</span>' in await page.text()
