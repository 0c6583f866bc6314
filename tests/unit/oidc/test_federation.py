"""Recipients with tokens of an identity provider, through real sockets on both sides."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from support.gateway_app import PREFIX, TOKENS, Clock, PipelineServer, error_of, serve
from support.identity_provider import AUDIENCE, IdentityProvider, public_jwk, signed

from gateway.authentication.credential_table import token_hash
from gateway.authentication.policies import TokenRefused
from gateway.config import Config, loads
from gateway.config.oidc import Issuer
from gateway.oidc import issuer_keys, provider_requests, token_verifier
from gateway.oidc.identity_token import SigningKeys
from gateway.oidc.issuer_keys import IssuerKeys
from gateway.state import GatewayState
from gateway.telemetry.audit import AuditLog
from gateway.telemetry.metrics import Metrics

NOW_MS = 1_700_000_000_000
NOW = NOW_MS / 1000
SHARES = "shares: [{name: sales}, {name: other}]\n"
Client = TestClient[Any, Any]


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW_MS)


@pytest.fixture
async def provider() -> AsyncIterator[IdentityProvider]:
    started = IdentityProvider()
    await started.start()
    yield started
    await started.close()


def configuration(provider: IdentityProvider, *, policies: Any = None, **changes: Any) -> str:
    """A share for alice, by a policy, and one for bob, by a token."""
    policy = {"issuer": provider.issuer, "subject": "alice", "audiences": [AUDIENCE]}
    issuer = {"issuer": provider.issuer, "allowPrivateAddresses": True, **changes}
    gateway = {
        "tokenKeys": [{"id": "k1", "secret": "a secret for the tests"}],
        "oidc": {"issuers": [issuer]},
        "recipients": [
            {"name": "alice", "shares": ["sales"], "oidc": [policy] if policies is None else policies},
            {
                "name": "bob",
                "shares": ["other"],
                "tokens": [
                    {"sha256": token_hash(TOKENS["bob"]).hex()},
                    {"sha256": token_hash("a.b.c").hex()},
                ],
            },
        ],
    }
    return f"{SHARES}gateway: {json.dumps(gateway)}\n"


@pytest.fixture
async def client(provider: IdentityProvider, clock: Clock) -> AsyncIterator[Client]:
    started, _ = await serve(configuration(provider), clock=clock)
    yield started
    await started.close()


async def shares(client: Client, token: str) -> list[str]:
    answer = await client.get(f"{PREFIX}/shares", headers={"Authorization": f"Bearer {token}"})
    assert answer.status == 200, await answer.text()
    return [share["name"] for share in (await answer.json())["items"]]


async def refused(client: Client, token: str) -> str:
    answer = await client.get(f"{PREFIX}/shares", headers={"Authorization": f"Bearer {token}"})
    assert (answer.status, error_of(await answer.read())) == (401, "UNAUTHENTICATED")
    return answer.headers["WWW-Authenticate"]


def metrics_of(client: Client) -> str:
    server = client.server
    assert isinstance(server, PipelineServer)
    return server.pipeline.recorder._metrics.page().decode()


async def test_a_token_of_the_provider_is_its_recipients(client: Client, provider: IdentityProvider) -> None:
    token = signed(provider.claims(NOW))
    assert await shares(client, token) == ["sales"]
    assert await shares(client, token) == ["sales"]
    # Once for all requests.
    assert provider.requests == ["/realm/.well-known/openid-configuration", "/keys"]
    assert await shares(client, TOKENS["bob"]) == ["other"]
    assert await shares(client, "a.b.c") == ["other"]


@pytest.mark.parametrize(
    ("trusted", "verified", "accepted"), [(False, None, False), (True, None, True), (True, False, False)]
)
async def test_an_address_without_verification_counts_only_where_the_issuer_is_trusted_for_it(
    provider: IdentityProvider, clock: Clock, trusted: bool, verified: bool | None, accepted: bool
) -> None:
    policy = {"issuer": provider.issuer, "subjectClaim": "email", "subject": "a@b", "audiences": [AUDIENCE]}
    text = configuration(provider, policies=[policy], emailsAreVerified=trusted)
    client, _ = await serve(text, clock=clock)
    try:
        token = signed(provider.claims(NOW, email="a@b", email_verified=verified))
        if accepted:
            assert await shares(client, token) == ["sales"]
        else:
            await refused(client, token)
    finally:
        await client.close()


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"iss": "https://attacker.example.com"}, {}, "issuer"),
    ({"iss": "http://127.0.0.1"}, {}, "issuer"),
    ({"sub": "bob"}, {}, "subject"),
    ({"aud": "https://other.example.com"}, {}, "audience"),
    ({"exp": NOW - 61}, {}, "expired"),
    ({"exp": NOW + 10 * 86_400}, {}, "expired"),
    ({}, {"name": "another"}, "keys"),
    ({}, {"name": "another", "header": {"kid": "k1"}}, "signature"),
    ({}, {"header": {"crit": ["exp"]}}, "header"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[2])
async def test_every_refusal_has_one_answer_and_a_reason_for_the_operator(
    client: Client,
    provider: IdentityProvider,
    case: tuple[dict[str, Any], dict[str, Any], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes, options, reason = case
    caplog.set_level(logging.INFO, "gateway.federation")
    token = signed(provider.claims(NOW, **changes), **options)
    assert await refused(client, token) == await refused(client, "an unknown token")
    assert f'delta_gateway_refused_requests_total{{reason="{reason}"}} 1.0' in metrics_of(client)
    assert "the token of an identity provider is refused" in caplog.text
    assert not any(part in caplog.text for part in token.split("."))
    if reason == "issuer":
        assert provider.requests == []


@pytest.mark.parametrize("part", [0, 1, 2])
async def test_bytes_beyond_ascii_in_a_token_are_refused_like_others(
    client: Client, provider: IdentityProvider, part: int
) -> None:
    parts = signed(provider.claims(NOW)).encode().split(b".")
    parts[part] += b"\xff\xfe"
    reader, writer = await asyncio.open_connection(client.host, client.port)
    head = f"GET {PREFIX}/shares HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "
    writer.write(head.encode() + b".".join(parts) + b"\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_a_key_set_that_cannot_be_read_leaves_the_known_keys(
    client: Client, provider: IdentityProvider, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = signed(provider.claims(NOW))
    assert await shares(client, token) == ["sales"]

    def fail(_document: bytes) -> SigningKeys:
        raise TypeError

    monkeypatch.setattr(SigningKeys, "parse", fail)
    assert await refused(client, signed(provider.claims(NOW), name="another"))
    assert await shares(client, token) == ["sales"]


async def test_a_token_ends_while_it_is_kept(
    client: Client, provider: IdentityProvider, clock: Clock
) -> None:
    token = signed(provider.claims(NOW))
    assert await shares(client, token) == ["sales"]
    clock.now_ms += (3600 + 59) * 1000
    assert await shares(client, token) == ["sales"]
    clock.now_ms += 1000
    await refused(client, token)


async def test_a_policy_that_is_removed_takes_effect_at_once(
    client: Client, provider: IdentityProvider, clock: Clock
) -> None:
    token = signed(provider.claims(NOW))
    assert await shares(client, token) == ["sales"]
    server = client.server
    assert isinstance(server, PipelineServer)
    pipeline = server.pipeline
    credential = await pipeline.tokens.federation.credential(token, pipeline.state)
    assert credential is not None
    # A stream outlives the verified tokens that are kept.
    assert pipeline.tokens.federation._verifier is not None
    pipeline.tokens.federation._verifier._verified.clear()
    assert pipeline.tokens.federation.renewed(credential, pipeline.state) == credential
    pipeline.state = state_of(configuration(provider, policies=[]), pipeline.state, clock)
    await refused(client, token)
    assert pipeline.tokens.federation.renewed(credential, pipeline.state) is None
    without_issuer = "gateway: {recipients: [{name: alice, shares: [sales]}]}\n"
    pipeline.state = state_of(configuration(provider), pipeline.state, clock)
    assert await shares(client, token) == ["sales"]
    pipeline.state = state_of(SHARES + without_issuer, pipeline.state, clock)
    await refused(client, token)


def state_of(text: str, previous: GatewayState, clock: Clock) -> GatewayState:
    config = loads(f"version: 1\n{text}", needs_readers=False)
    return replace(GatewayState.of(config, now_ms=clock, previous=previous))


async def test_a_token_of_a_withdrawn_key_ends_while_no_other_token_comes(
    client: Client, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MIN_LIFE_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(issuer_keys, name, 0.0)
    provider.headers = {"Cache-Control": "max-age=0"}
    token = signed(provider.claims(NOW))
    assert await shares(client, token) == ["sales"]
    provider.keys = [public_jwk("RS256", "k2")]
    headers = {"Authorization": f"Bearer {token}"}
    async with asyncio.timeout(20):
        while (await client.get(f"{PREFIX}/shares", headers=headers)).status != 401:
            await asyncio.sleep(0.01)


async def test_simultaneous_requests_share_one_fetch(client: Client, provider: IdentityProvider) -> None:
    tokens = [signed(provider.claims(NOW, jti=str(number))) for number in range(20)]
    assert await asyncio.gather(*(shares(client, token) for token in tokens)) == [["sales"]] * 20
    assert len(provider.requests) == 2


async def test_the_last_keys_stay_while_the_provider_is_down(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    (issuer,) = config_of(provider).gateway.oidc.issuers
    keys = IssuerKeys(issuer, lambda: now)
    assert await keys.find("k1", "RS256")
    provider.status = 503
    monkeypatch.setattr(provider_requests, "FETCH_SECONDS", 0.5)
    for seconds in (3600, 40_000, 86_000):
        now = 1000.0 + seconds
        assert await keys.find("k1", "RS256")
        await asyncio.sleep(0.05)
    assert keys.age_seconds == 86_000
    now = 1000.0 + 86_401
    with pytest.raises(token_verifier.TokenRefused):
        await keys.find("k1", "RS256")
    provider.status, now = 200, now + 31
    assert await keys.find("k1", "RS256")
    assert keys.age_seconds == 0


def config_of(provider: IdentityProvider, **changes: Any) -> Config:
    return loads(f"version: 1\n{configuration(provider, **changes)}")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda provider: provider.changes.update(issuer=f"{provider.issuer}/"),
        lambda provider: provider.changes.update(jwks_uri=7),
        lambda provider: provider.changes.update(jwks_uri="http://192.0.2.1/keys"),
        lambda provider: provider.changes.update(jwks_uri="file:///etc/passwd"),
        lambda provider: provider.keys.append({"filling": "x" * 300_000}),
        lambda provider: provider.keys.clear(),
        lambda provider: setattr(provider, "status", 302),
    ],
    ids=["issuer", "no uri", "plain http", "file", "large", "empty", "redirect"],
)
async def test_documents_that_are_not_the_providers_are_not_used(
    client: Client, provider: IdentityProvider, spoil: Any
) -> None:
    spoil(provider)
    await refused(client, signed(provider.claims(NOW)))


async def test_keys_may_be_a_file(provider: IdentityProvider, clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [public_jwk("PS256", "k1")]}))
    text = configuration(provider, jwksFile=str(file), allowPrivateAddresses=False)
    client, _ = await serve(text, clock=clock)
    try:
        assert await shares(client, signed(provider.claims(NOW), algorithm="PS256")) == ["sales"]
        assert provider.requests == []
    finally:
        await client.close()


async def test_the_proxy_of_the_environment_may_have_a_private_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(await reader.readline())
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("HTTPS_PROXY", f"http://LocalHost:{port}")
    monkeypatch.setenv("NO_PROXY", "")
    keys = IssuerKeys(Issuer(issuer="https://idp.example.com"))
    async with server:
        with pytest.raises(TokenRefused):
            await keys.find("k1", "RS256")
    assert set(reached) == {b"CONNECT idp.example.com:443 HTTP/1.1\r\n"}


async def test_verified_tokens_are_bounded_in_bytes(
    client: Client, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_verifier, "MAX_CACHED_BYTES", 20_000)
    for number in range(30):
        assert await shares(client, signed(provider.claims(NOW, jti=str(number)))) == ["sales"]
    server = client.server
    assert isinstance(server, PipelineServer)
    verifier = server.pipeline.tokens.federation._verifier
    assert verifier is not None
    kept = verifier._verified.values()
    assert 1 < len(kept) < 30
    assert sum(one.estimated_bytes for one in kept) == verifier._bytes <= 20_000


async def test_the_audit_log_says_who_it_was_and_why_not(
    provider: IdentityProvider, clock: Clock, tmp_path: Path
) -> None:
    audit = AuditLog(tmp_path / "audit.log")
    client, _ = await serve(configuration(provider), clock=clock, audit=audit, metrics=Metrics())
    try:
        token = signed(provider.claims(NOW))
        assert await shares(client, token) == ["sales"]
        await refused(client, signed(provider.claims(NOW, sub="mallory")))
    finally:
        await client.close()
        await asyncio.to_thread(audit.close)
    text = (tmp_path / "audit.log").read_text()
    answered, denied = (json.loads(line) for line in text.splitlines())
    result = answered["response"]["result"]
    assert (result["issuer"], result["subject"]) == (provider.issuer, "alice")
    assert result["tokenIdSha256"] == token_hash("id-1").hex()
    assert denied["response"]["result"]["refusal"] == "subject"
    assert token.split(".")[2] not in text


@pytest.mark.parametrize(
    ("issuer", "accepted"),
    [
        ({"issuer": "https://idp.example.com"}, True),
        ({"issuer": "http://idp.example.com"}, False),
        ({"issuer": "http://idp.example.com", "allowPrivateAddresses": True}, False),
        ({"issuer": "http://localhost:1", "allowPrivateAddresses": True}, True),
        ({"issuer": "http://localhost:1"}, False),
        ({"issuer": "https://10.0.0.1"}, False),
        ({"issuer": "https://10.0.0.1", "allowPrivateAddresses": True}, True),
        ({"issuer": "any text", "jwksFile": "keys.json"}, True),
        ({"issuer": "any text", "jwksUri": "https://idp.example.com/keys"}, True),
        ({"issuer": "any text"}, False),
        ({"issuer": "https://a:b@idp.example.com"}, False),
        ({"issuer": "https://idp.example.com", "algorithms": ["HS256"]}, False),
        ({"issuer": "https://idp.example.com", "algorithms": []}, False),
        ({"issuer": "https://a", "jwksUri": "https://a/k", "jwksFile": "k"}, False),
    ],
)
def test_the_configuration_accepts_issuers_that_can_be_trusted(
    issuer: dict[str, Any], accepted: bool
) -> None:
    text = f"version: 1\n{SHARES}gateway: {json.dumps({'anonymous': True, 'oidc': {'issuers': [issuer]}})}\n"
    if accepted:
        assert loads(text).gateway.oidc.issuers
    else:
        with pytest.raises(ValueError, match=r"gateway\.oidc\.issuers\[0\]"):
            loads(text)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"audiences": []}, "audiences"),
        ({"audiences": ["b"], "issuer": "https://idp.example.com/"}, "not in gateway.oidc.issuers"),
        ({}, "must be given"),
        ({"audience": ["a"]}, "unknown key; accepted: issuer, subject, audiences"),
    ],
)
def test_a_policy_that_accepts_too_much_or_nothing_stops_the_start(
    policy: dict[str, Any], message: str
) -> None:
    whole = {"issuer": "https://idp.example.com", "subject": "a", **policy}
    gateway = {
        "oidc": {"issuers": [{"issuer": "https://idp.example.com"}]},
        "recipients": [{"name": "alice", "shares": ["sales"], "oidc": [whole]}],
    }
    with pytest.raises(ValueError, match=message):
        loads(f"version: 1\n{SHARES}gateway: {json.dumps(gateway)}\n")
