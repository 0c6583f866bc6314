"""Sign-in to the console by an identity provider, through real sockets, with providers of any honesty."""

import asyncio
import html
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import jwt
import pytest
import yaml
from aiohttp import ClientResponse, web
from support.gateway_app import Clock
from support.identity_provider import hanging_server, public_jwk, signed, unsigned
from support.sign_in_provider import (
    CALLBACK,
    CLIENT,
    OPERATOR_TOKEN,
    PAGE,
    SECRET,
    START,
    ConsoleClient,
    SignInProvider,
    admin_section,
    console_client,
    secret_file,
)

from gateway.config import Config, ConfigError, ConsoleOidc, loads
from gateway.console.identities import MAX_NAME_LENGTH, identity_of
from gateway.console.sessions import COOKIE, Role
from gateway.oidc import provider_requests, sign_in_provider
from gateway.oidc.provider_requests import FetchError
from gateway.oidc.sign_in_flow import FLOW_SECONDS, NAME, SignInFailed
from gateway.oidc.sign_in_provider import MAX_HINT_LENGTH, ProviderMetadata

NOW_MS = 1_790_000_000_000
KEYS = [{"id": "k1", "secret": "a secret of all replicas"}]
SECURE_URL = "https://console.example.com/console/sign-in/callback"


class Setting:
    """A provider, and consoles whose configuration tests change."""

    def __init__(self, provider: SignInProvider, stack: AsyncExitStack) -> None:
        self.provider = provider
        self.stack = stack
        self.clock = Clock(NOW_MS)
        self.changes: dict[str, Any] = {}
        self.token_keys: list[Any] = []
        self.redirect_url = "http://127.0.0.1:1/console/sign-in/callback"

    def config(self) -> Config:
        admin = admin_section(self.provider, self.redirect_url, **self.changes)
        return loads(
            yaml.safe_dump({"version": 1, "gateway": {"admin": admin, "tokenKeys": self.token_keys}}),
            needs_readers=False,
        )

    async def console(self) -> ConsoleClient:
        """Start a console, to which the provider leads back."""
        client = await self.stack.enter_async_context(console_client(self.config, self.clock))
        self.redirect_url = client.redirect_url
        return client


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    provider = SignInProvider(now_seconds=NOW_MS / 1000, claim_changes={"groups": ["operators"]})
    await provider.start()
    async with AsyncExitStack() as stack:
        yield Setting(provider, stack)
    await provider.close()


@pytest.fixture
async def console(setting: Setting) -> ConsoleClient:
    return await setting.console()


async def status_of_page(console: ConsoleClient) -> int:
    return (await console.get(PAGE)).status


async def refusal(response: ClientResponse) -> str:
    """What the page to sign in says, where a token can be used."""
    page = await response.text()
    assert 'name="secret"' in page
    found = re.search(r'role="alert">([^<]+)<', page)
    assert found, page
    return html.unescape(found[1])


async def test_a_user_signs_in_by_code_with_pkce_state_and_nonce(
    setting: Setting, console: ConsoleClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    location = await console.begin()
    query = dict(parse_qsl(urlsplit(location).query))
    assert (query["client_id"], query["redirect_uri"]) == (CLIENT, console.redirect_url)
    assert query["scope"].split() == ["openid", "profile", "email"]
    flow = console.cookie(NAME)
    assert (flow["samesite"], flow["path"], flow["max-age"]) == ("Lax", "/", str(FLOW_SECONDS))
    assert flow["httponly"]
    for secret in (query["state"], query["nonce"], PAGE):
        assert secret not in flow.value
    answer = setting.provider.authorize(location)
    signed_in = await console.get(CALLBACK, params=answer)
    assert signed_in.status == 200
    # Not a redirect: the cookie of the session is not sent with one that another site began.
    assert f'content="0; url={PAGE}"' in await signed_in.text()
    session = console.cookie(COOKIE)
    assert (session["samesite"], session["path"]) == ("Strict", "/console")
    assert session["httponly"]
    assert console.cookie(NAME) is None
    page = await (await console.get(PAGE)).text()
    assert "alice" in page
    assert "Read the configuration again" in page, "the form of an operator"
    assert "console:operator:oidc:alice signs in to the console: subject alice, from 127.0.0.1" in caplog.text
    # The access log of the test's own server is none of the gateway.
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("gateway")]
    (form,) = setting.provider.forms
    assert form["client"] == f"public {CLIENT}"
    for secret in (answer["code"], answer["state"], form["code_verifier"], session.value):
        assert secret not in "".join(messages)


async def test_a_viewer_looks_and_a_user_without_a_role_is_refused(
    setting: Setting, console: ConsoleClient, caplog: pytest.LogCaptureFixture
) -> None:
    setting.provider.claim_changes["groups"] = ["viewers", "others"]
    assert (await console.sign_in(setting.provider)).status == 200
    assert "Read the configuration again" not in await (await console.get(PAGE)).text()
    console.client.session.cookie_jar.clear()
    setting.provider.claim_changes["groups"] = ["others"]
    refused = await console.sign_in(setting.provider)
    assert refused.status == 403
    assert "has no role in this console" in await refusal(refused)
    assert "others" not in await refused.text()
    assert await status_of_page(console) == 303
    assert "no value in groups of alice has a role" in caplog.text


async def test_a_sign_in_ends_a_session_from_before(setting: Setting, console: ConsoleClient) -> None:
    await console.sign_in(setting.provider)
    first = console.cookie(COOKIE).value
    await console.sign_in(setting.provider)
    assert console.cookie(COOKIE).value != first
    console.client.session.cookie_jar.update_cookies({COOKIE: first})
    async with aiohttp.ClientSession() as other:
        answer = await other.get(
            console.base + PAGE, headers={"Cookie": f"{COOKIE}={first}"}, allow_redirects=False
        )
        assert answer.status == 303


async def test_with_tls_no_other_host_can_set_the_cookie(setting: Setting, console: ConsoleClient) -> None:
    setting.redirect_url = SECURE_URL
    started = await console.get(START)
    cookie = started.headers["Set-Cookie"]
    assert cookie.startswith(f"__Host-{NAME}=")
    assert {"HttpOnly", "Path=/", "SameSite=Lax", "Secure"} <= {part.strip() for part in cookie.split(";")}
    assert "Domain" not in cookie
    # Browsers send it by TLS alone; the listener may have a proxy before it that ends TLS.
    answer = setting.provider.authorize(started.headers["Location"])
    header = {"Cookie": cookie.partition(";")[0]}
    ended = await console.get(CALLBACK, params=answer, headers=header)
    assert ended.status == 200
    cookies = {value.partition("=")[0]: value for value in ended.headers.getall("Set-Cookie")}
    assert "Secure" in cookies[COOKIE]
    assert "Max-Age=0" in cookies[f"__Host-{NAME}"]


@pytest.mark.parametrize(
    ("headers", "is_secure"),
    [
        ({"Origin": "https://console.example.com", "Sec-Fetch-Site": "same-origin"}, True),
        # Without TLS a browser would not keep such a cookie.
        ({"Origin": "http://localhost:8083", "Sec-Fetch-Site": "same-origin"}, False),
        ({"Sec-Fetch-Site": "same-origin"}, False),
    ],
)
async def test_a_sign_in_by_a_token_at_a_proxy_with_tls_has_a_cookie_for_tls_alone(
    console: ConsoleClient, headers: Mapping[str, str], is_secure: bool
) -> None:
    form = {"secret": OPERATOR_TOKEN}
    answer = await console.client.post("/console/sign-in", data=form, headers=headers, allow_redirects=False)
    assert answer.status == 303
    parts = {part.strip() for part in answer.headers["Set-Cookie"].split(";")}
    assert ("Secure" in parts) == is_secure
    assert {"HttpOnly", "SameSite=Strict"} <= parts


CHANGED_CLAIMS: Mapping[str, Mapping[str, Any]] = {
    "another issuer": {"iss": "https://idp.example.com"},
    "another client": {"aud": "another"},
    "another client among several": {"aud": [CLIENT, "another"]},
    "issued to another client": {"azp": "another"},
    "issued to another client among several": {"aud": [CLIENT, "another"], "azp": "another"},
    "without an audience": {"aud": None},
    "ended": {"iat": NOW_MS // 1000 - 7200, "exp": NOW_MS // 1000 - 3600},
    "without an end": {"exp": None},
    "without a time of issue": {"iat": None},
    "of the future": {"iat": NOW_MS // 1000 + 3600},
    "too long": {"exp": NOW_MS // 1000 + 90_000},
    "another nonce": {"nonce": "another"},
    "without a nonce": {"nonce": None},
    "a nonce of another type": {"nonce": ["a"]},
}


@pytest.mark.parametrize("name", CHANGED_CLAIMS)
async def test_an_id_token_of_other_claims_signs_nobody_in(
    setting: Setting, console: ConsoleClient, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    setting.provider.claim_changes |= CHANGED_CLAIMS[name]
    refused = await console.sign_in(setting.provider)
    assert refused.status == 503
    assert "sign in with a token" in await refusal(refused)
    assert "the ID token is refused" in caplog.text
    assert console.cookie(COOKIE) is None
    assert console.cookie(NAME) is None


TOKENS: Mapping[str, Any] = {
    "no signature": lambda claims: unsigned({"alg": "none"}, claims, ""),
    "the algorithm none with a signature": lambda claims: unsigned(
        {"alg": "none", "kid": "k1"}, claims, "AA"
    ),
    "a symmetric signature by the client's secret": lambda claims: jwt.encode(
        dict(claims), SECRET, "HS256", headers={"kid": "k1"}
    ),
    "another key of the same id": lambda claims: signed(claims, name="other", header={"kid": "k1"}),
    "an unknown key": lambda claims: signed(claims, name="other"),
    "an encrypted token": lambda claims: unsigned({"alg": "RSA-OAEP"}, claims, "AA", "AA", "AA"),
    "a critical parameter": lambda claims: signed(claims, header={"crit": ["exp"], "exp": 1}),
    "no token": lambda _claims: "token",
    "a number": lambda _claims: 7,
    "nothing": lambda _claims: None,
}


@pytest.mark.parametrize("name", TOKENS)
async def test_an_id_token_that_the_provider_did_not_sign_signs_nobody_in(
    setting: Setting, console: ConsoleClient, name: str, tmp_path: Path
) -> None:
    setting.changes["clientSecretFile"] = secret_file(tmp_path)
    setting.provider.make_token = TOKENS[name]
    refused = await console.sign_in(setting.provider)
    assert refused.status == 503
    assert "sign in with a token" in await refusal(refused)
    assert await status_of_page(console) == 303


async def test_a_key_that_the_provider_changes_is_fetched(setting: Setting, console: ConsoleClient) -> None:
    assert (await console.sign_in(setting.provider)).status == 200
    setting.provider.keys = [public_jwk("ES256", "k2")]
    setting.provider.make_token = lambda claims: signed(claims, algorithm="ES256", name="k2")
    # An unknown key is looked for once in 30 seconds: here by another console.
    other = await setting.console()
    assert (await other.sign_in(setting.provider)).status == 200


@pytest.mark.parametrize(
    ("secret_post", "client"),
    [(False, f"basic {CLIENT} {SECRET}"), (True, f"form {CLIENT} {SECRET}")],
    ids=["basic", "form"],
)
async def test_a_client_with_a_secret_sends_it_as_the_provider_takes_it(
    setting: Setting,
    console: ConsoleClient,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    secret_post: bool,
    client: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    setting.changes["clientSecretFile"] = secret_file(tmp_path)
    if secret_post:
        methods = ["client_secret_basic", "client_secret_post"]
        setting.provider.changes["token_endpoint_auth_methods_supported"] = methods
    assert (await console.sign_in(setting.provider)).status == 200
    assert setting.provider.forms[0]["client"] == client
    assert SECRET not in caplog.text
    assert SECRET not in repr(setting.config())


async def test_an_answer_without_the_browser_that_began_signs_nobody_in(
    setting: Setting, console: ConsoleClient
) -> None:
    answer = setting.provider.authorize(await console.begin())
    async with aiohttp.ClientSession() as stranger:
        # Whoever has the address of the answer, as by a link of an attacker who has begun the sign-in.
        refused = await stranger.get(console.base + CALLBACK, params=answer, allow_redirects=False)
        assert refused.status == 400
        assert f"Sign in at {console.base}/console/sign-in." in await refusal(refused)
    other = await console.get(CALLBACK, params={**answer, "state": "another"})
    assert other.status == 400
    assert setting.provider.forms == [], "no code was redeemed"
    # The failed answer has ended the sign-in of the browser.
    assert (await console.get(CALLBACK, params=answer)).status == 400


async def test_an_answer_is_taken_once(setting: Setting, console: ConsoleClient) -> None:
    location = await console.begin()
    kept = console.cookie(NAME).value
    answer = setting.provider.authorize(location)
    assert (await console.get(CALLBACK, params=answer)).status == 200
    assert (await console.get(CALLBACK, params=answer)).status == 400
    again = await console.get(CALLBACK, params=answer, headers={"Cookie": f"{NAME}={kept}"})
    assert again.status == 400
    assert "used before" in await refusal(again)


async def test_a_sign_in_that_takes_too_long_begins_again(setting: Setting, console: ConsoleClient) -> None:
    answer = setting.provider.authorize(await console.begin())
    kept = {"Cookie": f"{NAME}={console.cookie(NAME).value}"}
    setting.clock.now_ms += FLOW_SECONDS * 1000
    assert (await console.get(CALLBACK, params=answer, headers=kept)).status == 400
    setting.clock.now_ms -= 1
    assert (await console.get(CALLBACK, params=answer, headers=kept)).status == 200


@pytest.mark.parametrize(("keys", "status"), [(KEYS, 200), ([], 400)], ids=["with keys", "without keys"])
async def test_another_replica_ends_a_sign_in_by_the_same_keys(
    setting: Setting, keys: list[Any], status: int
) -> None:
    setting.token_keys = keys
    one, other = await setting.console(), await setting.console()
    answer = setting.provider.authorize(await one.begin())
    cookie = {"Cookie": f"{NAME}={one.cookie(NAME).value}"}
    assert (await other.get(CALLBACK, params=answer, headers=cookie)).status == status


async def test_a_sign_in_begun_by_another_client_is_not_taken(
    setting: Setting, console: ConsoleClient
) -> None:
    setting.token_keys = KEYS
    answer = setting.provider.authorize(await console.begin())
    setting.changes["clientId"] = "another"
    assert (await console.get(CALLBACK, params=answer)).status == 400


@pytest.mark.parametrize(
    ("announced", "named", "status"),
    [
        (False, None, 200),
        (False, "right", 200),
        (True, "right", 200),
        (True, None, 400),
        (True, "https://idp.example.com", 400),
        (False, "https://idp.example.com", 400),
        (False, "", 400),
    ],
)
async def test_an_answer_of_another_provider_is_refused(
    setting: Setting, console: ConsoleClient, announced: bool, named: str | None, status: int
) -> None:
    setting.provider.changes["authorization_response_iss_parameter_supported"] = announced
    changes = {} if named is None else {"iss": setting.provider.issuer if named == "right" else named}
    assert (await console.sign_in(setting.provider, **changes)).status == status
    assert len(setting.provider.forms) == (status == 200), "another provider's code is sent nowhere"


@pytest.mark.parametrize(
    ("parameters", "status", "shown", "logged"),
    [
        ({"error": "access_denied"}, 403, "did not let you in", "access_denied"),
        (
            {"error": "invalid_scope", "error_description": "a\nb\u2028"},
            503,
            "an error",
            "'invalid_scope': 'a\\n",
        ),
        ({"code": ""}, 503, "an error", "None"),
        ({"code": "x" * 4097}, 400, "an error", "given twice or is too long"),
        ({"error": "<script>"}, 503, "an error", "<script>"),
    ],
    ids=["denied", "error", "nothing", "too long", "markup"],
)
async def test_an_error_of_the_provider_is_said_on_the_page_to_sign_in(
    setting: Setting,
    console: ConsoleClient,
    caplog: pytest.LogCaptureFixture,
    *,
    parameters: Mapping[str, str],
    status: int,
    shown: str,
    logged: str,
) -> None:
    state = setting.provider.authorize(await console.begin())["state"]
    refused = await console.get(CALLBACK, params={"state": state, **parameters})
    assert refused.status == status
    assert shown in await refusal(refused)
    assert logged in caplog.text
    assert "<script>" not in await refused.text()
    assert all("\n" not in record.getMessage() for record in caplog.records)
    assert setting.provider.forms == []


@pytest.mark.parametrize(
    ("answer", "status", "shown"),
    [
        ((400, {"error": "invalid_grant"}), 400, "Sign in again"),
        ((401, {"error": "invalid_client"}), 503, "sign in with a token"),
        ((500, "no object"), 503, "sign in with a token"),
        ((200, {"access_token": "a"}), 503, "sign in with a token"),
        ((302, {}), 503, "sign in with a token"),
        ((200, {"id_token": "x" * 300_000}), 503, "sign in with a token"),
    ],
)
async def test_a_token_endpoint_that_refuses_signs_nobody_in(
    setting: Setting, console: ConsoleClient, answer: tuple[int, Any], status: int, shown: str
) -> None:
    setting.provider.token_answer = answer
    refused = await console.sign_in(setting.provider)
    assert refused.status == status
    assert shown in await refusal(refused)


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "https://idp.example.com"},
        {"authorization_endpoint": None},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": "http://idp.example.com/authorize"},
        {"authorization_endpoint": "https://idp.example.com/a\r\nSet-Cookie: a=b"},
        {"token_endpoint": "http://192.0.2.1/token"},
        {"token_endpoint": 7},
        {"padding": "x" * 300_000},
    ],
    ids=lambda changes: next(iter(changes.items()))[0],
)
async def test_a_hostile_discovery_document_leads_nowhere(
    setting: Setting, console: ConsoleClient, changes: Mapping[str, Any]
) -> None:
    setting.provider.changes |= changes
    refused = await console.get(START)
    assert refused.status == 503
    assert "sign in with a token" in await refusal(refused)
    assert console.cookie(NAME) is None


@pytest.mark.parametrize("host", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "localhost", "[::1]", "127.1"])
def test_a_discovery_document_cannot_send_the_server_to_an_inner_address(host: str) -> None:
    settings = ConsoleOidc("https://idp.example.com", CLIENT, SECURE_URL, viewer_values=("v",))
    good = {
        "authorization_endpoint": "https://idp.example.com/authorize",
        "token_endpoint": "https://idp.example.com/token",
        "end_session_endpoint": f"https://{host}/end",
    }
    assert ProviderMetadata.parse(good, settings).end_session_endpoint is None
    for name in ("authorization_endpoint", "token_endpoint"):
        with pytest.raises(FetchError, match="private address"):
            ProviderMetadata.parse({**good, name: f"https://{host}/"}, settings)


async def test_a_provider_that_is_down_or_hangs_leaves_the_sign_in_by_token(
    setting: Setting, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_requests, "FETCH_SECONDS", 0.2)
    async with hanging_server() as hanging:
        for issuer in (hanging, "http://127.0.0.1:1/"):
            setting.changes["issuer"] = issuer
            refused, again = await asyncio.gather(console.get(START), console.get(START))
            assert (refused.status, again.status) == (503, 503)
            assert "does not answer as it should" in await refusal(refused)
    signed_in = await console.post("/console/sign-in", {"secret": OPERATOR_TOKEN, "next": PAGE})
    assert (signed_in.status, signed_in.headers["Location"]) == (303, PAGE)
    assert await status_of_page(console) == 200


async def test_the_last_discovery_document_is_used_while_the_provider_is_down(
    setting: Setting, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in_provider, "LIFE_SECONDS", 0.0)
    await console.begin()
    fetched = len(setting.provider.requests)
    setting.provider.status = 503
    await console.begin()
    assert len(setting.provider.requests) == fetched + 1
    # It is tried again after a time, not with each request.
    await console.begin()
    assert len(setting.provider.requests) == fetched + 1


async def test_refused_codes_of_an_address_are_limited(setting: Setting, console: ConsoleClient) -> None:
    setting.provider.token_answer = (400, {"error": "invalid_grant"})
    statuses = [(await console.sign_in(setting.provider)).status for _ in range(12)]
    assert statuses[:10] == [400] * 10
    assert 429 in statuses[10:]
    assert await console.auth_failures() == len(statuses)
    assert len(setting.provider.forms) < 12


async def test_an_outage_of_the_provider_is_no_attempt_of_its_users(
    setting: Setting, console: ConsoleClient
) -> None:
    setting.provider.token_answer = (500, {})
    assert {(await console.sign_in(setting.provider)).status for _ in range(15)} == {503}
    assert await console.auth_failures() == 0
    setting.provider.token_answer = None
    assert (await console.sign_in(setting.provider)).status == 200


async def test_few_codes_are_redeemed_at_once(
    setting: Setting, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in_provider, "CONCURRENT_CODES", 1)
    hanging, ending = asyncio.Event(), asyncio.Event()
    token = setting.provider._token

    async def slow(request: web.Request) -> web.Response:
        hanging.set()
        await ending.wait()
        return await token(request)

    monkeypatch.setattr(setting.provider, "_token", slow)
    await setting.provider.close()
    setting.provider.changes.clear()
    await setting.provider.start()
    first = setting.provider.authorize(await console.begin())
    cookie = {"Cookie": f"{NAME}={console.cookie(NAME).value}"}
    waiting = asyncio.ensure_future(console.get(CALLBACK, params=first, headers=cookie))
    await hanging.wait()
    assert (await console.sign_in(setting.provider)).status == 503
    ending.set()
    assert (await waiting).status == 200


async def test_a_reload_ends_the_sessions_that_began_by_other_settings(
    setting: Setting, console: ConsoleClient
) -> None:
    await console.sign_in(setting.provider)
    assert await status_of_page(console) == 200
    setting.changes["operatorValues"] = ["others"]
    assert await status_of_page(console) == 303
    setting.changes.clear()
    assert await status_of_page(console) == 303, "it has ended for good"
    await console.sign_in(setting.provider)
    assert await status_of_page(console) == 200


async def signed_out(console: ConsoleClient) -> ClientResponse:
    page = await (await console.get(PAGE)).text()
    found = re.search(r'name="token" value="([^"]+)"', page)
    assert found
    return await console.post("/console/sign-out", {"token": found[1]})


async def test_a_sign_out_ends_the_session_and_leads_to_that_of_the_provider(
    setting: Setting, console: ConsoleClient
) -> None:
    await console.sign_in(setting.provider)
    session = console.cookie(COOKIE).value
    ended = await signed_out(console)
    assert ended.status == 200
    found = re.search(r'content="0; url=([^"]+)"', await ended.text())
    assert found
    address = urlsplit(html.unescape(found[1]))
    assert address.path == "/end"
    hints = dict(parse_qsl(address.query))
    assert hints["client_id"] == CLIENT
    assert jwt.decode(hints["id_token_hint"], options={"verify_signature": False})["sub"] == "alice"
    assert console.cookie(COOKIE) is None
    kept = {"Cookie": f"{COOKIE}={session}"}
    assert (await console.get(PAGE, headers=kept)).status == 303


async def test_a_sign_out_needs_no_provider_that_has_one(setting: Setting, console: ConsoleClient) -> None:
    setting.provider.changes["end_session_endpoint"] = None
    await console.sign_in(setting.provider)
    ended = await signed_out(console)
    assert (ended.status, ended.headers["Location"]) == (303, "/console/sign-in")


async def test_a_long_id_token_is_no_hint(setting: Setting, console: ConsoleClient) -> None:
    setting.provider.claim_changes["groups"] = ["operators", "x" * MAX_HINT_LENGTH]
    await console.sign_in(setting.provider)
    page = await (await signed_out(console)).text()
    assert "id_token_hint" not in page
    assert f"client_id={CLIENT}" in page


async def test_another_site_does_not_begin_a_sign_in(console: ConsoleClient) -> None:
    for site in ("cross-site", "same-site"):
        answer = await console.get(START, headers={"Sec-Fetch-Site": site})
        assert (answer.status, answer.headers["Location"]) == (303, "/console/sign-in?next=/console/")
        assert console.cookie(NAME) is None


@pytest.mark.parametrize("path", [START, CALLBACK])
async def test_the_addresses_take_one_method_and_need_a_provider(
    setting: Setting, console: ConsoleClient, path: str
) -> None:
    head = await console.client.head(path, allow_redirects=False)
    assert head.status == 405
    assert (await console.post(path, {})).status == 405
    setting.changes |= {"issuer": None}
    with pytest.raises(ConfigError):
        setting.config()
    setting.config = lambda: loads(  # type: ignore[method-assign]
        f"version: 1\ngateway: {{admin: {{tokenSha256: {'a' * 64}}}}}\n", needs_readers=False
    )
    other = await setting.console()
    assert (await other.get(path)).status == 404
    assert "provider" not in await (await other.get("/console/sign-in")).text()


@pytest.mark.parametrize(
    "target", ["https://evil.example/console/", "//evil.example/console/", "/console/\\evil", "/recipients"]
)
async def test_a_sign_in_leads_to_pages_of_the_console_only(
    setting: Setting, console: ConsoleClient, target: str
) -> None:
    answer = setting.provider.authorize(await console.begin(target))
    signed_in = await console.get(CALLBACK, params=answer)
    assert 'content="0; url=/console/"' in await signed_in.text()


SETTINGS = ConsoleOidc(
    "https://idp.example.com", CLIENT, SECURE_URL, operator_values=("o",), viewer_values=("v", "w")
)


@pytest.mark.parametrize(
    ("claim", "claims", "role"),
    [
        ("groups", {"groups": ["v", "o"]}, Role.OPERATOR),
        ("groups", {"groups": ["w"]}, Role.VIEWER),
        ("groups", {"groups": "v"}, Role.VIEWER),
        ("groups", {"groups": ["O", "vw"]}, None),
        ("groups", {"groups": {"o": True}}, None),
        ("groups", {"groups": None}, None),
        ("groups", {"_claim_names": {"groups": "src1"}}, None),
        ("roles", {"groups": ["o"]}, None),
        ("realm_access.roles", {"realm_access": {"roles": ["o"]}}, Role.OPERATOR),
        ("realm_access.roles", {"realm_access": ["o"]}, None),
        ("https://a.example/roles", {"https://a.example/roles": ["v"]}, Role.VIEWER),
        ("a.b", {"a.b": ["v"], "a": {"b": ["o"]}}, Role.VIEWER),
        ("email", {"email": "o", "email_verified": True}, Role.OPERATOR),
        ("email", {"email": "o", "email_verified": False}, None),
        ("email", {"email": "o", "email_verified": "true"}, Role.OPERATOR),
        ("email", {"email": "o"}, None),
        ("sub", {}, None),
    ],
)
def test_the_role_is_that_of_the_claim(claim: str, claims: Mapping[str, Any], role: Role | None) -> None:
    settings = ConsoleOidc(
        "https://idp.example.com",
        CLIENT,
        SECURE_URL,
        roles_claim=claim,
        operator_values=("o",),
        viewer_values=("v", "w"),
    )
    if role is None:
        with pytest.raises(SignInFailed, match="has no role"):
            identity_of(settings, {"sub": "alice", **claims})
    else:
        assert identity_of(settings, {"sub": "alice", **claims}).role is role


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"name": "Alice"}, "Alice"),
        ({}, "subject"),
        ({"name": ""}, "subject"),
        ({"name": 7}, "subject"),
        ({"name": "a\nb"}, "subject"),
        ({"name": "turned \u202e"}, "subject"),
        ({"name": "x" * (MAX_NAME_LENGTH + 1)}, "subject"),
    ],
)
def test_a_user_is_named_by_a_claim_that_can_be_shown(claims: Mapping[str, Any], name: str) -> None:
    settings = ConsoleOidc(
        "https://idp.example.com", CLIENT, SECURE_URL, operator_values=("o",), name_claim="name"
    )
    identity = identity_of(settings, {"sub": "subject", "groups": ["o"], **claims})
    assert identity.actor == f"console:operator:oidc:{name}"


@pytest.mark.parametrize("subject", [None, "", 7, "a\nb", "x" * 256])
def test_a_user_without_a_subject_is_refused(subject: Any) -> None:
    with pytest.raises(SignInFailed):
        identity_of(SETTINGS, {"sub": subject, "groups": ["o"]})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"redirectUrl": "http://console.example.com/console/sign-in/callback"}, "redirectUrl: expected"),
        ({"redirectUrl": "https://console.example.com/"}, "redirectUrl: expected"),
        ({"redirectUrl": f"{SECURE_URL}?a=b"}, "redirectUrl: expected"),
        ({"redirectUrl": "https://me@console.example.com/console/sign-in/callback"}, "redirectUrl: expected"),
        ({"redirectUrl": "https:///console/sign-in/callback"}, "redirectUrl: expected"),
        ({"issuer": "http://idp.example.com"}, "issuer: expected a URL of https"),
        ({"issuer": "https://10.0.0.1", "allowPrivateAddresses": False}, "issuer: expected a URL of https"),
        ({"operatorValues": None, "viewerValues": None}, "operatorValues"),
        ({"viewerValues": [""]}, r"viewerValues\[0\]: may not be empty"),
        ({"rolesClaim": ""}, "rolesClaim"),
        ({"clientId": ""}, "clientId"),
        ({"scopes": ["open id"]}, "scopes"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"operatorValue": ["a"]}, "operatorValue"),
    ],
)
def test_a_wrong_setting_is_named(changes: Mapping[str, Any], message: str) -> None:
    section = admin_section(SignInProvider(port=1), SECURE_URL, **changes)
    with pytest.raises(ConfigError, match=message):
        loads(yaml.safe_dump({"version": 1, "gateway": {"admin": section}}), needs_readers=False)
