"""Keys of an identity provider are rotated, and the provider is down, while requests run all the time."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from support.gateway_process import PREFIX
from support.identity_provider import AUDIENCE, IdentityProvider, public_jwk, signed
from support.processes import free_port, server_process, wait_for_port

WORKERS, CLIENTS = 2, 4
RETRY_SECONDS = 0.1
# The workers refetch sooner than every 30 seconds, so that the test need not wait.
CUSTOMIZED = f"""
import gateway.oidc.issuer_keys

gateway.oidc.issuer_keys.RETRY_SECONDS = {RETRY_SECONDS}
"""
AGREEING = 16
"""Answers in a row on new connections after which both workers have answered."""


@dataclass
class Load:
    """Requests with tokens that were never seen, signed by the keys that are valid."""

    url: str
    provider: IdentityProvider
    session: aiohttp.ClientSession
    keys: tuple[str, ...] = ("k1",)
    answers: list[int] = field(default_factory=list)
    numbers: Any = field(default_factory=count)

    def token(self, name: str, **header: str) -> str:
        """A token of a key, unlike all earlier ones."""
        claims = self.provider.claims(time.time(), jti=str(next(self.numbers)))
        return signed(claims, name=name, header=header or None)

    async def status(self, token: str) -> int:
        """The status of a request on a new connection."""
        headers = {"Authorization": f"Bearer {token}", "Connection": "close"}
        async with self.session.get(self.url, headers=headers) as answer:
            return answer.status

    async def run(self) -> None:
        """Send requests until the task is cancelled."""
        while True:
            # The keys at the time of the request: they may change while it runs.
            for name in self.keys:
                self.answers.append(await self.status(self.token(name)))

    async def until_all(self, status: int, token: Callable[[], str]) -> None:
        """Wait until both workers answer by a status; the test's time limit ends a wait for ever."""
        agreeing = 0
        while agreeing < AGREEING:
            agreeing = agreeing + 1 if await self.status(token()) == status else 0

    def answered(self) -> list[int]:
        """Return the statuses since the last call."""
        answers, self.answers = self.answers, []
        return answers


@asynccontextmanager
async def running(directory: Path, provider: IdentityProvider) -> AsyncIterator[Load]:
    port, config = free_port(), directory / "share.yaml"
    policy = {"issuer": provider.issuer, "subject": "alice", "audiences": [AUDIENCE]}
    section = {
        "oidc": {"issuers": [{"issuer": provider.issuer, "allowPrivateAddresses": True}]},
        "recipients": [{"name": "alice", "shares": ["sales"], "oidc": [policy]}],
        "drainDelaySeconds": 0,
    }
    top = {"version": 1, "host": "127.0.0.1", "port": port, "shares": [{"name": "sales"}], "gateway": section}
    config.write_text(yaml.safe_dump(top))
    (directory / "sitecustomize.py").write_text(CUSTOMIZED)
    log = directory / "log"
    with server_process(config, log, workers=WORKERS, modules=directory) as process:
        await asyncio.to_thread(wait_for_port, port, process)
        async with aiohttp.ClientSession() as session:
            load = Load(f"http://127.0.0.1:{port}{PREFIX}/shares", provider, session)
            clients = [asyncio.ensure_future(load.run()) for _ in range(CLIENTS)]
            yield load
            for client in clients:
                client.cancel()
            ended = await asyncio.gather(*clients, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
    assert "Traceback" not in log.read_text()


async def test_no_valid_token_fails_while_keys_rotate_and_the_provider_is_down(tmp_path: Path) -> None:
    provider = IdentityProvider()
    await provider.start()
    async with running(tmp_path, provider) as load:
        await load.until_all(200, lambda: load.token("k1"))
        # The next key is published before it signs.
        provider.keys = [public_jwk("RS256", "k1"), public_jwk("RS256", "k2")]
        await load.until_all(200, lambda: load.token("k2"))
        load.keys = ("k1", "k2")
        # Tokens with any key id cause no more requests than the rule permits.
        before, began = len(provider.requests), time.monotonic()
        await load.until_all(401, lambda: load.token("k1", kid=f"unknown-{next(load.numbers)}"))
        fetches = WORKERS * (1 + math.ceil((time.monotonic() - began) / RETRY_SECONDS))
        assert len(provider.requests) - before <= 2 * fetches
        assert {*load.answered()} == {200}
        await provider.close()
        await load.until_all(401, lambda: load.token("k1", kid="k3"))
        await asyncio.sleep(2 * RETRY_SECONDS)
        await load.until_all(401, lambda: load.token("k1", kid="k3"))
        statuses = load.answered()
        assert {*statuses} == {200}
        assert len(statuses) > CLIENTS
        # The first key is withdrawn, and the provider is back.
        load.keys = ("k2",)
        await asyncio.sleep(0.1)
        load.answered()
        provider.keys = [public_jwk("RS256", "k2")]
        await provider.start()
        # An unknown key id lets each worker fetch the keys again.
        ended = 0
        while ended < AGREEING:
            await load.status(load.token("k1", kid="k3"))
            ended = ended + 1 if await load.status(load.token("k1")) == 401 else 0
        assert {*load.answered()} == {200}
    await provider.close()
