"""Pages of recipients with a real database: grants for parts, properties, and long lists."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from aiohttp import ClientResponse
from support.gateway_app import Clock
from support.sign_in_provider import OPERATOR_TOKEN, VIEWER_TOKEN, ConsoleClient, console_client

from gateway.authentication.credential_table import token_hash
from gateway.authentication.policies import TokenPolicy
from gateway.catalog.grants import Grant
from gateway.config import Config, loads
from gateway.console.sessions import COOKIE
from gateway.governance.audited_database import open_database
from gateway.governance.credentials import NewToken
from gateway.governance.recipient_records import RecipientRecord
from gateway.governance.recipient_store import RecipientDatabase
from gateway.telemetry.activity import Activity, LiveStream

NOW_MS = 1_790_000_000_000
DAY_SECONDS = 86_400
HOSTILE = "turned \u202e and %41 <b>"


def configuration(directory: Path, recipients: list[dict[str, Any]]) -> Config:
    admin = {
        "tokenSha256": token_hash(OPERATOR_TOKEN).hex(),
        "viewerTokenSha256": token_hash(VIEWER_TOKEN).hex(),
    }
    gateway = {
        "admin": admin,
        "database": {"url": f"sqlite:///{directory}/recipients.db"},
        "recipients": recipients,
    }
    top = {
        "version": 1,
        "shares": [{"name": "Sales", "schemas": [{"name": "eu"}]}, {"name": "null"}, {"name": HOSTILE}],
        "gateway": gateway,
    }
    return loads(yaml.safe_dump(top))


FILE = [
    {
        "name": "from-file",
        "tokens": [{"sha256": "a" * 64, "expires": "2026-09-24T00:00:00Z"}],
        "shares": ["Sales", {"share": "Sales", "schema": "eu", "condition": "day = 'x'"}],
        "properties": {"country": "de"},
    }
]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return configuration(tmp_path, FILE)


@pytest.fixture
def database(config: Config) -> RecipientDatabase:
    return open_database(config, "tests", now_ms=lambda: NOW_MS, audit=None, create=True)


@pytest.fixture
async def console(config: Config, database: RecipientDatabase) -> AsyncIterator[ConsoleClient]:
    with closing(database):
        database.add("acme", NewToken(DAY_SECONDS))
        async with console_client(lambda: config, Clock(NOW_MS)) as client:
            signed_in = await client.post("/console/sign-in", {"secret": OPERATOR_TOKEN})
            assert signed_in.status == 303
            yield client


async def sent(console: ConsoleClient, action: str, **fields: str) -> ClientResponse:
    """Send a form of the recipient's page."""
    return await console.post(f"/console/recipients/acme/{action}", {**await hidden(console), **fields})


async def hidden(console: ConsoleClient) -> dict[str, str]:
    """Open the recipient's page, and return what each of its forms sends."""
    page = await (await console.get("/console/recipients/acme")).text()
    names = ("token", "form", "seen")
    sent = {name: re.findall(rf'name="{name}" value="([^"]+)"', page)[0] for name in names}
    return {name: html.unescape(text) for name, text in sent.items()}


async def take_back(console: ConsoleClient, label: str) -> ClientResponse:
    """Press the button of a grant, or of a property."""
    page = await (await console.get("/console/recipients/acme")).text()
    for form in re.findall(r"<form class=\"inline\".*?</form>", page, re.DOTALL):
        if f'aria-label="{html.escape(label)}"' in form:
            fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
            (action,) = re.findall(r'action="([^"]+)"', form)
            return await console.post(action, {name: html.unescape(text) for name, text in fields.items()})
    raise AssertionError(page)


def record(database: RecipientDatabase) -> RecipientRecord:
    return database.show("acme")


async def test_a_whole_share_and_the_same_share_with_a_condition_are_told_apart(
    console: ConsoleClient, database: RecipientDatabase
) -> None:
    assert (await sent(console, "grant", share="Sales", schema="", table="", condition=" ")).status == 303
    assert record(database).shares == ("sales",)
    assert (await take_back(console, "Take back sales")).status == 303
    conditional = await sent(console, "grant", share="Sales", condition="day = '2026-01-01'")
    assert conditional.status in {200, 303}
    assert record(database).shares == ()
    assert record(database).grants == (Grant("sales", None, None, "day = '2026-01-01'"),)
    assert (await take_back(console, "Take back sales")).status == 303
    assert record(database).grants == ()


async def test_the_word_null_is_a_name(console: ConsoleClient, database: RecipientDatabase) -> None:
    await sent(console, "grant", share="null", schema="null", table="null")
    assert record(database).grants == (Grant("null", "null", "null"),)
    await take_back(console, "Take back null.null.null")
    assert record(database).grants == ()
    await sent(console, "properties", property="a", text="null")
    assert record(database).properties == (("a", "null"),)


async def test_names_that_are_shown_by_symbols_are_taken_back(
    console: ConsoleClient, database: RecipientDatabase
) -> None:
    await sent(console, "grant", share=HOSTILE, schema=HOSTILE)
    (grant,) = record(database).grants
    page = await (await console.get("/console/recipients/acme")).text()
    assert "\u202e" not in page
    assert "<b>" not in page
    label = re.findall(r'aria-label="(Take back [^"]+)"', page)[0]
    assert (await take_back(console, html.unescape(label))).status == 303
    assert record(database).grants == ()
    assert grant.schema == HOSTILE.casefold()


async def test_the_history_names_who_granted_a_part(
    console: ConsoleClient, database: RecipientDatabase
) -> None:
    await sent(console, "grant", share="Sales", schema="eu")
    (change,) = [one for one in database.history("acme") if one.action == "updateSharePermissions"]
    assert change.actor == "console:operator:127.0.0.1"
    assert change.detail["granted"] == "sales.eu"


async def test_the_end_of_tokens_is_said_to_end_no_policy(
    console: ConsoleClient, database: RecipientDatabase
) -> None:
    ended, accepted = "Every request of this recipient is refused", "are accepted on, by its policies"
    page = await (await console.get("/console/recipients/acme")).text()
    assert (ended in page, accepted in page) == (True, False)
    policy = TokenPolicy("https://idp.example.com", "sub", "s", frozenset({"a"}))
    database.add_policy("acme", "default", policy, allow_absent=True)
    page = await (await console.get("/console/recipients/acme")).text()
    assert (ended in page, accepted in page) == (False, True)
    await sent(console, "revoke")
    assert [stored.name for stored in record(database).policies] == ["default"]


async def test_a_viewer_sees_grants_and_properties_and_changes_none(
    console: ConsoleClient, database: RecipientDatabase
) -> None:
    await sent(console, "properties", property="country", text="de")
    await sent(console, "grant", share="Sales", schema="eu")
    console.client.session.cookie_jar.clear()
    await console.post("/console/sign-in", {"secret": VIEWER_TOKEN})
    page = await (await console.get("/console/recipients/acme")).text()
    assert "sales.eu" in page
    assert "country" in page
    assert page.count("<form") == 1, "the sign-out"
    (token,) = re.findall(r'name="token" value="([^"]+)"', page)
    for action in ("grant", "properties", "properties/remove", "take-back"):
        fields = {"token": token, "form": action, "share": "Sales", "property": "country"}
        refused = await console.post(f"/console/recipients/acme/{action}", fields)
        assert refused.status == 403
    assert record(database).grants
    assert record(database).properties


async def test_a_part_is_chosen_by_encoded_names(console: ConsoleClient, database: RecipientDatabase) -> None:
    granted = await sent(console, "grant", chosen=quote(HOSTILE), part="")
    assert granted.status == 303, await granted.text()
    await sent(console, "grant", chosen="Sales", part="EU/%C3%89t%C3%A9")
    assert record(database).shares == (HOSTILE,)
    assert record(database).grants == (Grant("sales", "eu", "été"),)


async def test_a_recipient_of_the_file_shows_its_parts_and_no_form(console: ConsoleClient) -> None:
    page = await (await console.get("/console/recipients/FROM-file")).text()
    assert "sales.eu" in page
    assert "day = &#39;x&#39;" in page
    assert "country" in page
    assert "take-back" not in page


async def test_the_list_merges_both_sources_and_finds_by_sql(
    console: ConsoleClient, database: RecipientDatabase
) -> None:
    for number in range(60):
        database.add(f"Firm-{number:02}", NewToken(DAY_SECONDS if number < 15 else None))
    page = await (await console.get("/console/recipients")).text()
    assert "Page 1 of 2, 62 recipients" in page
    second = await (await console.get("/console/recipients?page=2")).text()
    names = re.findall(r'href="/console/recipients/[^"]+"><bdi>([^<]+)<', page + second)
    assert names == sorted(
        ["acme", *(f"Firm-{number:02}" for number in range(60)), "from-file"], key=str.lower
    )
    found = await (await console.get("/console/recipients?q=FIRM-5")).text()
    assert found.count("<bdi>Firm-5") == 10
    assert "from-file" in await (await console.get("/console/recipients?q=-FILE")).text()
    for text in ("%25", "_", "%00", "%ED%A0%80"):
        assert "No recipient is found" in await (await console.get(f"/console/recipients?q={text}")).text()


async def test_the_page_of_a_name_in_both_sources_shows_the_recipient_that_is_served(
    console: ConsoleClient, tmp_path: Path
) -> None:
    with open_database(configuration(tmp_path, []), "tests", now_ms=lambda: NOW_MS) as stored:
        stored.add("From-file")
    page = await (await console.get("/console/recipients/from-file")).text()
    assert "is in the configuration file" in page
    assert "/revoke" not in page
    listed = await (await console.get("/console/recipients")).text()
    assert listed.count("refused: the file has a recipient of this name") == 1


async def test_a_recipient_whose_rows_are_invalid_is_named_and_hides_no_other(
    console: ConsoleClient, database: RecipientDatabase
) -> None:
    database.add("broken", NewToken(DAY_SECONDS))
    with database.database.changing() as connection:
        connection.exec_driver_sql("UPDATE recipients SET properties = 'none' WHERE key = 'broken'")
    page = await (await console.get("/console/recipients")).text()
    assert "acme" in page
    assert re.search(r"<bdi>broken</bdi></a>.*?cannot be read: ", page, re.DOTALL)
    assert (await console.get("/console/recipients/broken")).status == 400
    assert (await console.get("/console/")).status == 200


async def test_the_overview_counts_both_sources_and_names_who_ends_first(
    console: ConsoleClient, database: RecipientDatabase
) -> None:
    for number in range(12):
        database.add(f"firm-{number:02}", NewToken(2 * DAY_SECONDS + number))
    page = await (await console.get("/console/")).text()
    assert re.search('Recipients</dt><dd><a href="/console/recipients">14<', page)
    assert "acme</bdi></a>: the token ends in 1 day" in page
    listed = re.findall(r'href="/console/recipients/[^"]+"><bdi>([^<]+)<', page)
    assert listed[:2] == ["acme", "firm-00"]
    assert len(listed) == 10
    assert "4 more" in page
    (address,) = re.findall(r'4 more <a href="([^"]+)"', page)
    shown = await (await console.get(address)).text()
    listed = re.findall(r'href="/console/recipients/[^"]+"><bdi>([^<]+)<', shown)
    assert listed == ["acme", *(f"firm-{number:02}" for number in range(12)), "from-file"]


async def test_the_recipients_whose_tokens_end_are_found_by_name_and_in_pages(
    console: ConsoleClient, database: RecipientDatabase
) -> None:
    for number in range(60):
        database.add(f"Firm-{number:02}", NewToken((3 + number // 55 * 30) * DAY_SECONDS))
    first = await (await console.get("/console/recipients?only=ending")).text()
    assert "Page 1 of 2, 57 recipients" in first
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = await (await console.get(html.unescape(following))).text()
    listed = re.findall(r'href="/console/recipients/[^"]+"><bdi>([^<]+)<', first + second)
    assert listed == ["acme", "from-file", *(f"Firm-{number:02}" for number in range(55))]
    found = await (await console.get("/console/recipients?only=ending&q=FIRM-5")).text()
    assert re.findall(r"<bdi>(Firm-\d+)<", found) == [f"Firm-5{number}" for number in range(5)]
    found = await (await console.get("/console/recipients?sort=ends")).text()
    (following,) = re.findall(r'rel="next" href="([^"]+)"', found)
    found += await (await console.get(html.unescape(following))).text()
    listed = re.findall(r'href="/console/recipients/[^"]+"><bdi>([^<]+)<', found)
    assert listed == ["acme", "from-file", *(f"Firm-{number:02}" for number in range(60))]
    assert "Page 2 of 2, 62 recipients" in found


async def test_recipients_are_ranked_by_their_use(tmp_path: Path) -> None:
    config = configuration(
        tmp_path / "none", [*FILE, {"name": "A", "shares": []}, {"name": "B", "shares": []}]
    )
    activity = Activity()
    for number, (name, refusal) in enumerate([("A", None), ("A", None), ("B", "address")]):
        activity.request_ended(name, at_ms=NOW_MS + number, refusal=refusal, files=number, address="::1")
    async with console_client(lambda: config, Clock(NOW_MS), activity=activity) as client:
        await client.post("/console/sign-in", {"secret": VIEWER_TOKEN})

        async def listed(query: str) -> list[str]:
            page = await (await client.get(f"/console/recipients?{query}")).text()
            return re.findall(r'href="/console/recipients/[^"]+"><bdi>([^<]+)<', page)

        assert await listed("sort=requests") == ["A", "B", "from-file"]
        for sort in ("used", "files", "refusals"):
            assert await listed(f"sort={sort}") == ["B", "A", "from-file"]
        assert await listed("only=refused") == ["B"]
        assert await listed("sort=ends") == ["from-file", "A", "B"]


async def test_live_streams_are_sorted_and_found_and_link_to_tables_with_dots(tmp_path: Path) -> None:
    activity = Activity()
    for number, (name, table) in enumerate([("b", "a.x.2026"), ("a", "c.0"), ("B", "b")]):
        stream = LiveStream(NOW_MS + number, name, f"Sales.eu.{table}", "query", ("Sales", "eu", table))
        activity.stream_started(name, lambda stream=stream: stream)  # type: ignore[misc]
    config = configuration(tmp_path / "none", FILE)
    async with console_client(lambda: config, Clock(NOW_MS), activity=activity) as client:
        await client.post("/console/sign-in", {"secret": VIEWER_TOKEN})

        async def listed(query: str) -> list[str]:
            page = await (await client.get(f"/console/activity?{query}")).text()
            return re.findall(r'href="/console/shares/Sales/eu/([^"]+)"', page)

        assert await listed("") == ["a.x.2026", "c.0", "b"]
        assert await listed("stream-sort=recipient") == ["c.0", "a.x.2026", "b"]
        assert await listed("stream-sort=table&q=nothing") == ["a.x.2026", "b", "c.0"]
        assert await listed("stream-q=C.0") == ["c.0"]


async def test_without_a_database_the_file_is_listed(tmp_path: Path) -> None:
    config = configuration(tmp_path / "none", FILE)
    async with console_client(lambda: config, Clock(NOW_MS)) as client:
        await client.post("/console/sign-in", {"secret": VIEWER_TOKEN})
        for path in ("/console/recipients", "/console/recipients?q=file", "/console/recipients/from-file"):
            assert "from-file" in await (await client.get(path)).text()
        assert (await client.get("/console/")).status == 200
        assert (await client.get("/console/recipients/acme")).status == 404


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("networks", {"networks": ""}),
        ("properties", {"property": "tier", "text": "gold"}),
        ("properties/remove", {"property": "tier"}),
        ("grant", {"share": "Sales"}),
        ("grant", {"share": "Sales", "schema": "eu", "condition": "day = 'x'"}),
        ("take-back", {"share": "Sales", "whole": "1"}),
        ("take-back", {"share": "Sales", "schema": "eu"}),
        ("rotate", {}),
        ("link", {}),
        ("delete", {}),
    ],
)
async def test_a_form_of_a_page_from_before_a_change_changes_nothing(
    console: ConsoleClient, database: RecipientDatabase, action: str, fields: dict[str, str]
) -> None:
    opened = await hidden(console)
    database.allow("acme", ["192.0.2.0/24"])
    database.grant("acme", ["Sales"])
    before = database.show("acme"), database.history("acme")
    answer = await console.post(f"/console/recipients/acme/{action}", {**opened, **fields})
    assert answer.status == 409
    assert "it was changed meanwhile" in await answer.text()
    assert (database.show("acme"), database.history("acme")) == before


async def test_tokens_are_revoked_from_a_page_of_before_a_change(
    console: ConsoleClient, database: RecipientDatabase
) -> None:
    opened = await hidden(console)
    database.grant("acme", ["Sales"])
    assert record(database).tokens
    assert (await console.post("/console/recipients/acme/revoke", opened)).status == 303
    assert record(database).tokens == ()


@pytest.mark.parametrize("action", ["rotate", "link"])
async def test_a_credential_for_this_machine_alone_is_warned_of(console: ConsoleClient, action: str) -> None:
    answer = await sent(console, action)
    assert answer.status == 201
    assert "names the host <bdi>localhost</bdi>" in await answer.text()


@pytest.mark.parametrize("path", ["/console/sign-in", "/console/recipients", "/recipients"])
async def test_a_client_that_leaves_in_its_request_is_no_error_of_the_server(
    console: ConsoleClient, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = console.client.server
    _, writer = await asyncio.open_connection(server.host, server.port)
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 9\r\n"
    head += f"Cookie: {COOKIE}={console.cookie(COOKIE).value}\r\nAuthorization: Bearer {OPERATOR_TOKEN}\r\n"
    writer.write(head.encode() + b"\r\npart")
    await asyncio.sleep(0.1)
    writer.close()
    await writer.wait_closed()
    await asyncio.sleep(0.1)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_the_page_says_that_processes_do_not_answer(tmp_path: Path) -> None:
    config = configuration(tmp_path / "none", FILE)
    async with console_client(lambda: config, Clock(NOW_MS)) as silent:
        await silent.post("/console/sign-in", {"secret": VIEWER_TOKEN})
        for path in ("/console/", "/console/activity", "/console/recipients"):
            assert "1 of 1 processes does not answer" in await (await silent.get(path)).text()
        assert "does not answer" not in await (await silent.get("/console/nothing")).text()


async def test_a_name_in_another_case_of_the_file_is_shown_as_it_is_served(
    console: ConsoleClient, tmp_path: Path
) -> None:
    with open_database(configuration(tmp_path, []), "tests", now_ms=lambda: NOW_MS) as stored:
        stored.add("\u00e4cme")
    entry = {"name": "\u00c4cme", "shares": []}
    async with console_client(lambda: configuration(tmp_path, [*FILE, entry]), Clock(NOW_MS)) as client:
        await client.post("/console/sign-in", {"secret": OPERATOR_TOKEN})
        listed = await (await client.get("/console/recipients")).text()
        page = await (await client.get(f"/console/recipients/{quote(chr(0xE4))}cme")).text()
    assert listed.count("refused: the file has a recipient of this name") == 1
    assert "is in the configuration file" in page
    assert "/revoke" not in page
