"""Absent and forbidden tables have one answer after the same steps in the same time."""

import random
import socket
import time

import pytest
from support.gateway_app import recipients
from support.gateway_process import PREFIX, TOKEN, running_gateway, share
from support.instructions import instructions

from gateway.authentication.credential_table import token_hash
from gateway.catalog import catalog as catalog_module
from gateway.catalog import grants as grants_module
from gateway.catalog.catalog import Catalog, Recipient
from gateway.catalog.grants import Grant
from gateway.config import loads
from gateway.errors import NotFound

SHARES = """
version: 1
shares:
- name: granted
  schemas: [{name: public, tables: [{name: orders, location: /o}]}]
- name: hidden
  schemas: [{name: public, tables: [{name: orders, location: /p}]}]
"""
BOB = Recipient("bob", frozenset({"granted"}))
ROUNDS = 1500
TRIES = 3


@pytest.mark.parametrize("names", [(), ("public",), ("public", "orders"), ("nothing", "orders")])
def test_forbidden_and_absent_tables_are_refused_by_the_same_instructions(names):
    catalog = Catalog.of(loads(SHARES + recipients(bob="granted")).shares)
    ask = [catalog.share, catalog.schema, catalog.table][len(names)]
    forbidden, absent, renamed = (
        instructions(catalog_module, lambda name=name: ask(BOB, name, *names), raises=NotFound)
        for name in ("hidden", "absent", "HID+")
    )
    assert forbidden == absent == renamed
    assert len(forbidden) > 20


PART = """
version: 1
shares:
- name: granted
  schemas:
  - name: seen
    tables: [{name: orders, location: /o}, {name: hidden, location: /h}]
  - name: hidden
    tables: [{name: t1, location: /1}, {name: t2, location: /2}, {name: t3, location: /3}]
"""


@pytest.mark.parametrize("share", ["granted", "*"])
@pytest.mark.parametrize(
    ("kind", "forbidden", "absent"),
    [
        ("schema", ["hidden"], ["absent"]),
        ("table", ["seen", "hidden"], ["seen", "absent"]),
        ("table", ["hidden", "t1"], ["absent", "t1"]),
        ("volume", ["hidden", "v1"], ["absent", "v1"]),
    ],
)
def test_the_parts_of_a_share_that_are_not_granted_are_refused_by_the_same_instructions(
    share, kind, forbidden, absent
):
    catalog = Catalog.of(loads(PART + recipients(bob="granted")).shares)
    carol = Recipient("carol", frozenset(), (), (Grant.of(share, "seen", "orders", None),))
    ask = getattr(catalog, kind)
    assert catalog.table(carol, "granted", "seen", "orders").name == "orders"
    taken = [
        instructions(modules, lambda names=names: ask(carol, "granted", *names), raises=NotFound)
        for modules in (catalog_module, grants_module)
        for names in (forbidden, absent)
    ]
    assert taken[0] == taken[1]
    assert taken[2] == taken[3]


def clocked(connection: socket.socket, table: str) -> float:
    head = (
        f"GET {PREFIX}{table}/version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    )
    started = time.perf_counter_ns()
    connection.sendall(head)
    answer = connection.recv(1 << 16)
    taken = time.perf_counter_ns() - started
    assert answer.endswith(b"}"), answer
    return taken


def ahead(some: list[float], others: list[float]) -> float:
    """How often one of these is quicker than one of those: a half where the two are alike."""
    order = sorted([(value, 0) for value in some] + [(value, 1) for value in others])
    ranks = sum(rank for rank, (_, which) in enumerate(order, 1) if which)
    return (ranks - len(others) * (len(others) + 1) / 2) / (len(some) * len(others))


@pytest.mark.alone
@pytest.mark.processes
def test_response_times_do_not_distinguish_forbidden_from_absent(tmp_path):
    known = {"name": "tests", "tokens": [{"sha256": token_hash(TOKEN).hex()}], "shares": ["granted"]}
    tables = {f"t{number}": str(tmp_path / f"{number}") for number in range(50)}
    shares = [share("granted", tables), share("hidden", tables)]
    with (
        running_gateway(tmp_path, shares, {"recipients": [known]}) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port)) as connection,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # What other work does to a clock passes; what the gateway does is there every time.
        assert any(alike(measured(connection, random.Random(seed))) for seed in range(TRIES))


def measured(connection: socket.socket, drawn: random.Random) -> dict[str, list[float]]:
    requested = {
        "forbidden": "/shares/hidden/schemas/default/tables/t7",
        "absent": "/shares/hiddem/schemas/default/tables/t7",
        # The server looks for its log, which shows that this clock detects such a difference.
        "granted": "/shares/granted/schemas/default/tables/t7",
    }
    taken: dict[str, list[float]] = {kind: [] for kind in requested}
    for _ in range(ROUNDS):
        # In any order: what else the machine does, and what one leaves behind, falls on all alike.
        for kind in drawn.sample(sorted(requested), len(requested)):
            taken[kind].append(clocked(connection, requested[kind]))
    # The quickest ones: another process had the processor during the rest, up to most of them.
    return {kind: sorted(times[ROUNDS // 10 :])[: ROUNDS // 3] for kind, times in taken.items()}


def alike(taken: dict[str, list[float]]) -> bool:
    """Returns whether a clock that detects a granted table cannot distinguish forbidden from absent."""
    is_sharp = ahead(taken["forbidden"], taken["granted"]) > 0.75
    return is_sharp and abs(ahead(taken["forbidden"], taken["absent"]) - 0.5) < 0.1
