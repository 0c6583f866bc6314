"""The check of a new profile ends in time, and says nothing of what is not granted."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from support.gateway_app import Clock

from gateway.catalog.catalog import Catalog, Recipient
from gateway.catalog.grants import Grant
from gateway.config import loads
from gateway.config.networks import parse_address, parse_networks
from gateway.errors import Unavailable
from gateway.governance.recipient_records import LinkInvalid
from gateway.limits.admission import LimitExceeded
from gateway.limits.attempts import PAIR_FAILURES, FailedAttempts
from gateway.routes import activation_check
from gateway.routes.activation import Activation
from gateway.routes.activation_check import Credentials, check_profile

NOW_MS = 1_790_000_000_000
CONFIGURATION = """
version: 1
shares:
- name: sales
  schemas:
  - {name: eu, tables: [{name: orders, location: /data/orders}, {name: secret, location: /data/secret}]}
- {name: hidden, schemas: [{name: eu, tables: [{name: people, location: /data/people}]}]}
gateway: {anonymous: true}
"""
TOKEN = Credentials("a bearer token", NOW_MS + 90 * 86_400_000)
PART = (Grant("sales", "eu", "orders", "day = '2026-01-01'"),)


class Tables:
    """Tables whose storage answers as a test says. The seam is the registry that the state holds."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.read_tables: list[Any] = []

    async def read(self, _recipient: str, table: Any, _call: Any, stop: Any) -> Any:
        self.read_tables.append((table, stop))
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await asyncio.Event().wait()
        return self.answer


def state_of(answer: Any) -> Any:
    catalog = Catalog.of(loads(CONFIGURATION).shares)
    return SimpleNamespace(catalog=catalog, tables=Tables(answer), now_ms=Clock(NOW_MS))


async def steps(state: Any, recipient: Recipient, address: str = "192.0.2.7") -> dict[str, tuple[str, str]]:
    found = await check_profile(state, recipient, TOKEN, parse_address(address))
    return {step.name: (step.result, step.message) for step in found}


async def test_the_steps_name_what_is_granted_alone() -> None:
    state = state_of((7, ["deletionVectors"]))
    found = await steps(state, Recipient("acme", frozenset(), grants=PART))
    assert found == {
        "profile": ("ok", "a bearer token until 2026-12-20 14:13:20 UTC, in 90 days"),
        "shares": ("ok", "1: sales"),
        "tables": ("ok", "1 in the share sales: orders"),
        "version": ("ok", "sales.eu.orders is at version 7"),
        "metadata": ("ok", "the table needs deletionVectors: read by Python 1.4, Spark 4"),
    }
    ((table, _),) = state.tables.read_tables
    assert table.rule.conditions == ("day = '2026-01-01'",), "the table is read under the rule of its grants"


@pytest.mark.parametrize(
    ("answer", "step", "result", "text"),
    [
        (Unavailable("the storage does not answer"), "version", "fail", "the storage does not answer"),
        ((1, ["aFeatureOfTheFuture"]), "metadata", "warn", "no client known to this version"),
        ((1, []), "metadata", "ok", "needs no reader feature"),
    ],
)
async def test_a_table_that_cannot_be_read_is_said(answer: Any, step: str, result: str, text: str) -> None:
    found = await steps(state_of(answer), Recipient("acme", frozenset({"sales"})))
    assert found[step][0] == result
    assert text in found[step][1]


@pytest.mark.parametrize(("address", "is_allowed"), [("192.0.2.7", True), ("198.51.100.7", False)])
async def test_an_address_outside_of_the_networks_is_said_without_them(
    address: str, is_allowed: bool
) -> None:
    recipient = Recipient("acme", frozenset({"sales"}), parse_networks(["192.0.2.0/24"]))
    found = await steps(state_of((1, [])), recipient, address)
    assert ("server" in found) is not is_allowed
    assert "192.0.2.0" not in str(found)


async def test_a_storage_that_hangs_keeps_no_profile_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.routes.activation.READ_SECONDS", 0.05)
    state = state_of(None)
    context: Any = SimpleNamespace(state=state, address=parse_address("192.0.2.7"))
    issued: Any = SimpleNamespace(expires_ms=None)
    activation: Any = object.__new__(Activation)
    (step,) = await activation._checked(context, issued, Recipient("acme", frozenset({"sales"})))
    assert (step.result, step.message) == ("fail", activation_check.NO_TIME)
    ((_, stop),) = state.tables.read_tables
    assert stop is not None


async def test_a_defect_of_the_check_keeps_no_profile_back(caplog: pytest.LogCaptureFixture) -> None:
    context: Any = SimpleNamespace(state=state_of(ValueError("a defect")), address=None)
    activation: Any = object.__new__(Activation)
    issued: Any = SimpleNamespace(expires_ms=None)
    assert await activation._checked(context, issued, Recipient("acme", frozenset({"sales"}))) == []
    assert "was not checked" in caplog.text


class Links(Activation):
    """Activations that find no link, once a test says so."""

    def __init__(self, attempts: FailedAttempts) -> None:
        super().__init__("", attempts, None, Clock(NOW_MS), lambda: False)
        self.begun = threading.Semaphore(0)
        self.is_found = threading.Event()

    def _activate(self, *_sent: Any) -> Any:
        self.begun.release()
        assert self.is_found.wait(20)
        raise LinkInvalid


async def test_attempts_count_whose_clients_leave() -> None:
    attempts = FailedAttempts(lambda: 0.0)
    links = Links(attempts)
    request = SimpleNamespace(body_exists=False)
    context: Any = SimpleNamespace(request=request, address=parse_address("192.0.2.7"), state=state_of(None))
    context.state.config = None
    leaving = [asyncio.create_task(links.activate(context)) for _ in range(2 * PAIR_FAILURES)]
    assert await asyncio.to_thread(links.begun.acquire, timeout=20)
    for task in leaving:
        task.cancel()
    await asyncio.wait(leaving)
    links.is_found.set()
    while links._waiting:
        await asyncio.sleep(0.01)
    with pytest.raises(LimitExceeded):
        attempts.check("192.0.2.7", "activation")
