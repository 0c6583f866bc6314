"""Keys of an issuer: where they are fetched from, when, and for how long."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from support.gateway_app import Clock, serve
from support.identity_provider import IdentityProvider, hanging_server, public_jwk, signed

from gateway.authentication.policies import TokenRefused
from gateway.config import Issuer, loads
from gateway.config.oidc import Oidc
from gateway.oidc import provider_requests
from gateway.oidc.federation import MAX_TOKEN_LENGTH, Federation
from gateway.oidc.identity_token import IdentityToken
from gateway.oidc.issuer_keys import IssuerKeys
from gateway.oidc.provider_requests import FetchError, provider_session
from gateway.oidc.token_verifier import TokenVerifier
from gateway.outgoing import PublicResolver

NOW = 1_700_000_000.0
PRIVATE = (
    "https://127.0.0.1/keys",
    "https://10.0.0.1/keys",
    "https://192.168.0.1:8443/keys",
    "https://100.64.0.1/keys",
    "https://169.254.169.254/latest/meta-data",
    "https://[::1]/keys",
    "https://[fd00::1]/keys",
    "https://[fe80::1]/keys",
    "https://[::ffff:10.0.0.1]/keys",
    "https://0.0.0.0/keys",
    "https://localhost/keys",
    # Other spellings of 127.0.0.1.
    "https://2130706433/keys",
    "https://127.1/keys",
    "https://0177.0.0.1/keys",
    "https://0x7f.0x1/keys",
    "https://127.0.0.1./keys",
)


@pytest.fixture
async def provider() -> AsyncIterator[IdentityProvider]:
    started = IdentityProvider()
    await started.start()
    yield started
    await started.close()


def issuer_of(provider: IdentityProvider) -> Issuer:
    return Issuer(provider.issuer, allow_private_addresses=True)


@pytest.mark.parametrize(
    "url", [*PRIVATE, "http://idp.example.com/keys", "file:///etc/passwd", "//a", "https:"]
)
async def test_a_document_cannot_send_the_server_to_an_inner_address(url: str) -> None:
    async with provider_session(Issuer("https://idp.example.com")) as session:
        with pytest.raises(FetchError, match="not https, or has a private address"):
            await session.get(url)


@pytest.mark.parametrize("host", ["2130706433", "127.1", "127.0.0.1", "localhost"])
async def test_a_name_of_an_inner_address_is_not_resolved(host: str) -> None:
    with pytest.raises(OSError, match="private address"):
        await PublicResolver().resolve(host, 443)


@pytest.mark.parametrize(
    ("cache_control", "life_seconds"),
    [
        ("", 3600),
        ("public, max-age=7200, must-revalidate", 7200),
        ("MAX-AGE=600", 600),
        ("max-age=1", 300),
        ("max-age=999999999", 86_400),
        ("s-maxage=7200", 3600),
        ("no-store", 3600),
        ("max-age=-5", 3600),
    ],
)
async def test_keys_are_fetched_again_when_half_of_their_life_is_over(
    provider: IdentityProvider, cache_control: str, life_seconds: int
) -> None:
    now = 1000.0
    provider.headers = {"Cache-Control": cache_control}
    keys = IssuerKeys(issuer_of(provider), lambda: now)
    assert await keys.find("k1", "RS256")
    fetched = len(provider.requests)
    provider.keys = [public_jwk("RS256", "k2")]
    now += life_seconds / 2 - 1
    assert await keys.find("k1", "RS256")
    assert keys._task is None
    now += 1
    # In the background: this request does not wait.
    assert await keys.find("k1", "RS256")
    assert keys._task is not None
    await keys._task
    assert len(provider.requests) == fetched + 2
    assert await keys.find("k2", "RS256")
    assert keys.age_seconds == 0


async def test_keys_that_no_token_needs_stay_fresh_once_they_were_fetched(provider: IdentityProvider) -> None:
    now = 1000.0
    issuer = issuer_of(provider)
    config = loads("version: 1\ngateway: {anonymous: true}\n")
    config = replace(config, gateway=replace(config.gateway, oidc=Oidc((issuer,))))
    verifier, keys = TokenVerifier(), IssuerKeys(issuer, lambda: now)
    verifier._keys = {issuer: keys}
    assert verifier.ages_seconds(config) == {}
    assert not provider.requests
    assert await keys.find("k1", "RS256")
    for _ in range(24):
        now += 1800
        assert verifier.ages_seconds(config) == {issuer.issuer: 1800}
        assert keys._task is not None
        await keys._task
    assert verifier.ages_seconds(config) == {issuer.issuer: 0}


async def test_an_unknown_key_is_looked_for_once_in_thirty_seconds(provider: IdentityProvider) -> None:
    now = 1000.0
    keys = IssuerKeys(issuer_of(provider), lambda: now)
    assert await keys.find("k1", "RS256")
    provider.keys.append(public_jwk("RS256", "k2"))
    for seconds, requests in ((29.0, 2), (1.0, 4), (0.0, 4)):
        now += seconds
        with pytest.raises(TokenRefused):
            await keys.find("unknown", "RS256")
        assert len(provider.requests) == requests
    assert await keys.find("k2", "RS256")


def token(provider: IdentityProvider, name: str) -> IdentityToken:
    """A token of the key with a name, whose header has the id k1."""
    parsed = IdentityToken.parse(signed(provider.claims(NOW), name=name, header={"kid": "k1"}))
    assert parsed is not None
    return parsed


async def test_a_key_that_was_replaced_under_its_id_is_fetched(provider: IdentityProvider) -> None:
    now = 1000.0
    keys = IssuerKeys(issuer_of(provider), lambda: now)
    old, new, stranger = (token(provider, name) for name in ("k1", "k2", "k3"))
    _, withdrawn = await keys.verify(old, NOW)
    provider.keys = [public_jwk("RS256", "k2", kid="k1")]
    now += 29
    with pytest.raises(TokenRefused, match="signature"):
        await keys.verify(new, NOW)
    now += 1
    _, key = await keys.verify(new, NOW)
    assert keys.is_current(key)
    assert not keys.is_current(withdrawn)
    requests = len(provider.requests)
    for seconds in (0, 29, 0):
        now += seconds
        for refused in (old, stranger):
            with pytest.raises(TokenRefused, match="signature"):
                await keys.verify(refused, NOW)
    assert len(provider.requests) == requests


async def test_a_reload_fetches_keys_before_the_next_token(provider: IdentityProvider) -> None:
    keys = IssuerKeys(issuer_of(provider), lambda: 1000.0)
    old = token(provider, "k1")
    await keys.verify(old, NOW)
    provider.keys = [public_jwk("RS256", "k2", kid="k1")]
    assert await keys.verify(old, NOW)
    keys.is_stale = True
    assert keys.is_stale
    with pytest.raises(TokenRefused, match="signature"):
        await keys.verify(old, NOW)
    assert not keys.is_stale
    assert await keys.verify(token(provider, "k2"), NOW)
    # While the provider does not answer, the last keys stay valid.
    provider.status = 500
    keys.is_stale = True
    assert await keys.verify(token(provider, "k2"), NOW)


async def test_many_keys_of_one_id_verify_nothing(provider: IdentityProvider) -> None:
    provider.keys *= 5
    with pytest.raises(TokenRefused, match="no such key"):
        await IssuerKeys(issuer_of(provider)).verify(token(provider, "k1"), NOW)


async def test_a_provider_that_does_not_answer_is_left_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_requests, "FETCH_SECONDS", 0.2)
    async with hanging_server() as url:
        keys = IssuerKeys(Issuer(url, allow_private_addresses=True))
        began = time.monotonic()
        with pytest.raises(TokenRefused, match="not available"):
            await keys.find("k1", "RS256")
        assert time.monotonic() - began < 10


async def test_a_redirect_is_not_followed() -> None:
    requested = []

    async def redirect(request: web.Request) -> web.Response:
        requested.append(request.path)
        raise web.HTTPFound("/elsewhere")

    app = web.Application()
    app.router.add_get("/{path:.*}", redirect)
    async with TestServer(app) as server:
        url = str(server.make_url("/keys"))
        keys = IssuerKeys(Issuer("any", jwks_uri=url, allow_private_addresses=True))
        with pytest.raises(TokenRefused, match="not available"):
            await keys.find("k1", "RS256")
    assert requested == ["/keys"]


async def test_a_token_that_no_header_can_hold_is_not_parsed(provider: IdentityProvider) -> None:
    issuer = f"{{issuer: '{provider.issuer}', allowPrivateAddresses: true}}"
    client, _ = await serve(
        f"shares: []\ngateway: {{anonymous: true, oidc: {{issuers: [{issuer}]}}}}\n", clock=Clock(0)
    )
    try:
        federation = Federation()
        state = client.server.pipeline.state  # type: ignore[attr-defined]
        assert await federation.credential("e30." * MAX_TOKEN_LENGTH, state) is None
        assert federation._verifier is None
    finally:
        await client.close()
