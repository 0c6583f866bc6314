"""One change by each of the four surfaces: the same record, and the same line of the history.

What the admin API, the console, the command line and `apply` do to a recipient, and what the history and the
audit log say of it, does not depend on the surface.
"""

import argparse
import re
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs
from support.gateway_app import Clock
from support.sign_in_provider import OPERATOR_TOKEN, ConsoleClient, console_client

from gateway.__main__ import main
from gateway.admin import handlers
from gateway.admin.messages import Addition, Recipient
from gateway.admin.operation import Operation
from gateway.authentication.credential_table import token_hash
from gateway.catalog.grants import Grant
from gateway.cli.apply_recipients import KEYS
from gateway.cli.command_line import parser
from gateway.config import Config, loads
from gateway.console.recipient_pages import LIVES
from gateway.database.schema import RECIPIENTS
from gateway.governance.audited_database import open_database
from gateway.governance.recipient_records import TEXTS, NewRecipient, RecipientRecord
from gateway.times import epoch_ms

SURFACES = ("api", "console", "command", "apply")
NETWORK = "192.0.2.0/24"


@dataclass(frozen=True)
class Change:
    """A change of the recipient `NAME`, by each surface.

    `applied` are keys of the document of `apply`; None where it has no such change. `state` are fields of the
    record that follow.
    """

    request: tuple[str, str, dict[str, Any] | None]
    form: tuple[str, dict[str, str]]
    words: list[str]
    applied: dict[str, Any] | None = None
    state: dict[str, Any] = field(default_factory=dict)


@dataclass
class Surfaces:
    """The four surfaces on one database."""

    console: ConsoleClient
    file: Path
    document: dict[str, Any] = field(default_factory=dict)

    async def make(self, surface: str, name: str, change: Change) -> None:
        """Make a change by a surface."""
        if surface == "api":
            method, path, body = change.request
            headers = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
            path = path.replace("NAME", name)
            body = None if body is None else {**body, **({"name": name} if path == "/recipients" else {})}
            answer = await self.console.client.request(method, path, json=body, headers=headers)
            assert answer.status in {200, 201}, await answer.text()
        elif surface == "console":
            action, fields = change.form
            page = "/console/recipients" + (f"/{name}" if action else "")
            text = await (await self.console.get(page)).text()
            hidden = dict(re.findall(r'type="hidden" name="(token|form)" value="([^"]+)"', text))
            sent = {**hidden, **fields, **({} if action else {"name": name})}
            sent["seen"] = "*"
            answer = await self.console.post(f"{page}/{action}" if action else page, sent)
            # A page has what is wrong with a grant that is given.
            assert answer.status in {200, 201, 303}, await answer.text()
        elif surface == "command":
            operation, *words = change.words
            assert main(["recipient", operation, name, "-c", str(self.file), *words]) == 0
        else:
            self.document |= change.applied or {}
            applied = self.file.with_name("applied.yaml")
            applied.write_text(yaml.safe_dump({"recipients": [{"name": name, **self.document}]}))
            assert main(["apply", str(applied), "-c", str(self.file), "--remove"]) == 0


ADDED = Change(
    ("POST", "/recipients", {"shares": ["sales"], **{text: f"a {text}" for text in TEXTS}}),
    ("", {"share": "sales", "days": "90", **{text: f"a {text}" for text in TEXTS}}),
    ["add", "--share", "sales", *(word for text in TEXTS for word in (f"--{text}", f"a {text}"))],
    {"shares": ["sales"], **{text: f"a {text}" for text in TEXTS}},
)
PART = {"share": "sales", "schema": "d", "table": "t"}
CONDITIONAL = {**PART, "condition": "region = 'eu'"}
CHANGES: dict[str, Change | tuple[Change, ...]] = {
    "grant": Change(
        ("PUT", "/recipients/NAME/shares/logs", None),
        ("grant", {"share": "logs"}),
        ["grant", "logs"],
        {"shares": ["sales", "logs"]},
        {"shares": ("logs", "sales")},
    ),
    "take back": Change(
        ("DELETE", "/recipients/NAME/shares/sales", None),
        ("take-back", {"whole": "1", "share": "sales"}),
        ["revoke", "--share", "sales"],
        {"shares": []},
        {"shares": ()},
    ),
    "part": (
        Change(
            ("PUT", "/recipients/NAME/grants", CONDITIONAL),
            ("grant", CONDITIONAL),
            ["grant", "sales.d.t", "--where", CONDITIONAL["condition"]],
            {"shares": ["sales", CONDITIONAL]},
            {"grants": (Grant(**CONDITIONAL),)},
        ),
        Change(
            ("PUT", "/recipients/NAME/grants", PART),
            ("grant", PART),
            ["grant", "sales.d.t"],
            {"shares": ["sales", PART]},
            {"grants": (Grant(**PART),)},
        ),
        Change(
            ("POST", "/recipients/NAME/grants/revoke", PART),
            ("take-back", PART),
            ["revoke", "--share", "sales.d.t"],
            {"shares": ["sales"]},
            {"grants": (), "shares": ("sales",)},
        ),
    ),
    "networks": tuple(
        Change(
            ("PUT", "/recipients/NAME/networks", {"networks": [network]}),
            ("networks", {"networks": network}),
            ["grant", "--allow", network],
            {"networks": [network]},
            {"networks": (network,)},
        )
        for network in (NETWORK, "2001:db8::/32")
    ),
    "properties": (
        Change(
            ("PUT", "/recipients/NAME/properties", {"properties": {"country": "de"}}),
            ("properties", {"property": "country", "text": "de"}),
            ["property", "country=de"],
            state={"properties": (("country", "de"),)},
        ),
        Change(
            ("PUT", "/recipients/NAME/properties", {"properties": {"country": None}}),
            ("properties/remove", {"property": "country"}),
            ["property", "--remove", "country"],
            state={"properties": ()},
        ),
    ),
    "rotate": Change(
        ("POST", "/recipients/NAME/rotate", {"oldExpiresInSeconds": 3600}),
        ("rotate", {"old_hours": "1", "days": "90"}),
        ["rotate", "--old-expires", "1h"],
    ),
    "revoke": Change(("POST", "/recipients/NAME/revoke", None), ("revoke", {}), ["revoke"]),
    "delete": Change(("DELETE", "/recipients/NAME", None), ("delete", {}), ["delete"]),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "share.yaml"
    shares = [{"name": "sales", "schemas": []}, {"name": "logs", "schemas": []}]
    admin = {"tokenSha256": token_hash(OPERATOR_TOKEN).hex()}
    gateway = {"admin": admin, "database": {"url": f"sqlite:///{tmp_path}/recipients.db"}}
    path.write_text(yaml.safe_dump({"version": 1, "shares": shares, "gateway": gateway}))
    return path


@pytest.fixture
def config(file: Path) -> Config:
    return loads(file.read_text())


@pytest.fixture
async def surfaces(file: Path, config: Config) -> AsyncIterator[Surfaces]:
    open_database(config, "tests", now_ms=epoch_ms).close()
    async with console_client(lambda: config, Clock(epoch_ms())) as client:
        assert (await client.post("/console/sign-in", {"secret": OPERATOR_TOKEN})).status == 303
        yield Surfaces(client, file)


def told(config: Config, name: str) -> tuple[RecipientRecord | None, list[tuple[str, dict[str, str]]]]:
    """A recipient, and its history but for times and credentials."""
    with closing(open_database(config, "tests", now_ms=epoch_ms, read_only=True)) as database:
        record = next((one for one in database.list() if one.name == name), None)
        history = database.history(name)
    return record, [
        (change.action, {key: "" if key.endswith("Ms") else text for key, text in change.detail.items()})
        for change in history
    ]


def compared(record: RecipientRecord | None) -> dict[str, object] | None:
    """A record but for its name, its time and its credentials."""
    if record is None:
        return None
    names = ("shares", "networks", "grants", "properties", "texts", "forbids_bearer_tokens")
    return {name: getattr(record, name) for name in names}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_and_its_record_do_not_depend_on_the_surface(
    surfaces: Surfaces, config: Config, change: str
) -> None:
    made = CHANGES[change]
    steps = made if isinstance(made, tuple) else (made,)
    chosen = SURFACES if all(step.applied is not None for step in steps) else SURFACES[:3]
    states, lines = [], []
    for surface in chosen:
        await surfaces.make(surface, surface, ADDED)
        before, _ = told(config, surface)
        state = []
        for step in steps:
            await surfaces.make(surface, surface, step)
            record, ((added, first), *later) = told(config, surface)
            state.append(compared(record))
            assert {name: getattr(record, name) for name in step.state} == step.state
            assert not step.state or (record and before and record.tokens == before.tokens)
        common = {key: text for key, text in first.items() if key in {"shares", "networks"}}
        states.append(state)
        lines.append([(added, common), *later])
    assert states == [states[0]] * len(chosen)
    assert lines == [lines[0]] * len(chosen)
    assert len(lines[0]) == 1 + len(steps)
    assert [state for state, after in pairwise(states[0]) if state == after] == []


async def test_each_surface_has_the_texts_of_a_recipient(surfaces: Surfaces, config: Config) -> None:
    for surface in SURFACES:
        await surfaces.make(surface, surface, ADDED)
        record, _ = told(config, surface)
        assert record is not None
        assert record.texts == {text: f"a {text}" for text in TEXTS}
        page = await (await surfaces.console.get(f"/console/recipients/{surface}")).text()
        assert all(f"a {text}" in page for text in TEXTS)


@pytest.mark.parametrize(
    "fields",
    [
        lambda: NewRecipient.__annotations__,
        lambda: Addition.__struct_fields__,
        lambda: Recipient.__struct_fields__,
        lambda: RECIPIENTS.columns,
        lambda: KEYS,
    ],
    ids=["description", "request", "answer", "columns", "document"],
)
def test_each_form_of_a_recipient_declares_its_texts(fields: Callable[[], Any]) -> None:
    assert {*TEXTS} <= {getattr(one, "name", one) for one in fields()}


REQUESTS = (
    (handlers.add_recipient, "add", ""),
    (handlers.rotate_token, "rotate", "rotate"),
    (handlers.rotate_client, "client", None),
    (handlers.add_client, "client", None),
    (handlers.add_activation_link, "link", "link"),
    (handlers.grant_share, "grant", "grant"),
    (handlers.grant_part, "grant", "grant"),
    (handlers.revoke_share, "revoke", "take-back"),
    (handlers.allow_networks, "grant", "networks"),
    (handlers.purge, "purge", None),
)
"""Operations of the admin API, each with that of the command line, and with the form of the console."""
OF_PLACES = {"share", "schema", "table"}
"""Fields of a request that the command line has as one text, `SHARE.SCHEMA.TABLE`."""
OF_FORMS = {
    **{field: name for name, (field, _) in LIVES.items()},
    "kind": "oauthClient",
    "hand_over": "activation",
    "chosen": "share",
    "part": "schema",
    "all_parts": "allParts",
    "whole": "share",
}
"""Fields of forms by the field of the request that they give, if that has another name."""


def operations_of(parser: argparse.ArgumentParser, *words: str) -> argparse.ArgumentParser:
    """The parser of a command, or of an operation of it."""
    for word in words:
        (choices,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
        parser = choices.choices[word]
    return parser


def fields_of(handler: Callable[..., Any]) -> dict[str, str]:
    """The fields of an operation's requests, by their names in JSON."""
    types = Operation("GET", "/", handler).types
    kinds = [kind for part, kind in types.items() if part != "return"]
    return {one.encode_name: one.name for kind in kinds for one in structs.fields(kind)}


@pytest.mark.parametrize(
    ("handler", "operation", "form"), REQUESTS, ids=lambda one: getattr(one, "__name__", one)
)
async def test_the_surfaces_have_the_fields_of_a_request(
    surfaces: Surfaces, handler: Callable[..., Any], operation: str, form: str | None
) -> None:
    fields = fields_of(handler)
    words = {action.dest for action in operations_of(parser("recipient"), "recipient", operation)._actions}
    words |= {"federation_policies"} if "oidc" in words else set()
    assert {*fields.values()} - words <= OF_PLACES
    if form is not None:
        await surfaces.make("api", "acme", ADDED)
        page = "/console/recipients" + ("/acme" if form else "")
        text = await (await surfaces.console.get(page)).text()
        address = f"{page}/{form}" if form else page
        (sent,) = re.findall(rf'<form[^>]* method="post" action="{address}">(.*?)</form>', text, re.DOTALL)
        names = {*re.findall(r'<(?:input|select)[^>]* name="(\w+)"', sent)} - {"token", "form", "seen"}
        assert {OF_FORMS.get(name, name) for name in names} <= {*fields, "shares", "share", "condition"}


HOSTILE_FIELDS = {
    "activation": "true",
    "allowAbsent": "true",
    "expiresInSeconds": "60",
    "federationPolicies": "[]",
    "linkExpiresInSeconds": "60",
    "networks": NETWORK,
    "oauthClient": "true",
    "shares": "logs",
}
"""Fields of requests that no page of the console offers by these names."""


async def test_a_form_sets_nothing_that_its_page_does_not_show(surfaces: Surfaces, config: Config) -> None:
    async def status(action: str, **fields: str) -> int:
        text = await (await surfaces.console.get("/console/recipients")).text()
        hidden = dict(re.findall(r'type="hidden" name="(token|form)" value="([^"]+)"', text))
        sent = {**HOSTILE_FIELDS, **hidden, "seen": "*", **fields}
        return (await surfaces.console.post(f"/console/recipients{action}", sent)).status

    assert await status("", name="absent", share="absent", days="90") == 400
    assert await status("", name="acme", share="sales", days="90") == 201
    before, _ = told(config, "acme")
    assert before is not None
    assert (before.shares, before.networks, before.clients, len(before.tokens)) == (("sales",), (), (), 1)
    assert await status("/acme/grant", share="absent") == 400
    assert await status("/acme/grant", share="absent", schema="s") == 400
    assert await status("/acme/link", days="90") == 201
    record, history = told(config, "acme")
    assert record == before
    assert [action for action, _ in history] == ["createRecipient", "createActivationLink"]
