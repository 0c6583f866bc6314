"""The console in a real browser, over servers of one and of two workers.

DELTA_GATEWAY_PICTURES=docs/images names a directory for the pictures of the documentation, which are kept.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest
from support.browser import DESK, PHONE, TABLET, Visitor, chromium, visitor
from support.gateway_process import RunningGateway, running_gateway, share
from support.nightly import at_night
from support.processes import free_port, wait_for_port
from support.waiting import everywhere, wait_until
from tables.demo import ROWS
from tables.small_tables import lay_out

from gateway.authentication.credential_table import token_hash

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OPERATOR, VIEWER = "the-token-of-the-operators", "the-token-of-the-viewers"
HOSTILE = ("<svg onload=document.title='owned'>", "x" * 255, "\u202etxt.eman", "מאגר", "{name}%2F..;")
# No new recipient has a name with characters that are not shown.
RECIPIENTS = tuple(name for name in HOSTILE[1:] if "\u202e" not in name)
"""Markup, the longest name, one that turns the text after it, one read from the right, and a pattern."""
TABLES = 3000
PAGES = (
    "/console/",
    "/console/shares",
    "/console/recipients",
    "/console/activity",
    "/console/storages",
    "/console/configuration",
)


@dataclass
class Console:
    """A server with an admin listener."""

    gateway: RunningGateway
    port: int
    database: Path

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(
        self,
        method: str,
        path: str,
        form: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, http.client.HTTPMessage, str]:
        """Sends a request without a browser, and without following where it leads."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = dict(headers or {})
        if form is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, None if form is None else urlencode(form), sent)
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, response.headers, body

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """Calls the admin API."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {OPERATOR}"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        assert response.status < 300, answer
        return answer

    def cookie(self, token: str) -> str:
        """Signs in without a browser."""
        status, headers, _ = self.request("POST", "/console/sign-in", {"secret": token}, self.same_site)
        assert status == 303
        return headers["Set-Cookie"].partition(";")[0]

    @property
    def same_site(self) -> dict[str, str]:
        return {"Origin": self.base}


def started(directory: Path, shares: list[dict[str, Any]], workers: int) -> Iterator[Console]:
    port = free_port()
    admin = {
        "tokenSha256": token_hash(OPERATOR).hex(),
        "viewerTokenSha256": token_hash(VIEWER).hex(),
        "port": port,
    }
    with running_gateway(directory, shares, {"admin": admin}, workers=workers) as gateway:
        wait_for_port(port, gateway.process)
        yield Console(gateway, port, directory / "recipients.db")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def console(demo_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Two workers, thousands of tables, and hostile names."""
    directory = tmp_path_factory.mktemp("console")
    lay_out(directory / "small")
    small = {name: str(directory / "small" / name) for name in ("whole", "vector", "corrupt")}
    shares = [
        share("demo", {name: str(demo_tables / name) for name in ROWS}),
        share("small", small),
        share("many", {f"table_{number:04}": small["whole"] for number in range(TABLES)}),
        *(share(name, {name: small["whole"]}) for name in HOSTILE),
        {"name": "found", "tables": {"discover": f"{directory}/warehouse/{{schema}}/{{table}}/"}},
    ]
    shutil.copytree(directory / "small/whole", directory / "warehouse/new/arrived")
    for one in started(directory, shares, 2):
        for number, name in enumerate(["acme", "globex", *RECIPIENTS]):
            body = {"name": name, "shares": ["demo"], "expiresInSeconds": 86_400 * (1 + 29 * number)}
            one.api("POST", "/recipients", body)
        yield one


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One process that shares nothing."""
    yield from started(tmp_path_factory.mktemp("empty"), [], 1)


def text_of(visited: Visitor) -> str:
    return visited.shown("main").inner_text()


def table_path(share_name: str, table: str) -> str:
    names = (share_name, "default", table)
    return f"/console/shares/{'/'.join(quote(name, safe='') for name in names)}"


def test_a_sign_in_leads_on_to_the_page_and_a_sign_out_ends_it(browser: Browser, console: Console) -> None:
    with visitor(browser, console.base) as visited:
        visited.open("/console/shares?q=many")
        assert visited.page.url.startswith(f"{console.base}/console/sign-in?next=")
        visited.page.fill("#secret", "wrong")
        visited.page.press("#secret", "Enter")
        assert "not accepted" in text_of(visited)
        visited.page.fill("#secret", OPERATOR)
        visited.page.press("#secret", "Enter")
        visited.page.wait_for_url("**/console/shares?q=many")
        (cookie,) = visited.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/console")
        assert cookie["expires"] == -1, "the cookie ends with the browser"
        visited.page.click("text=Sign out")
        visited.page.wait_for_url("**/console/sign-in")
        assert visited.context.cookies() == []
        status, headers, _ = console.request(
            "GET", "/console/", headers={"Cookie": f"{cookie['name']}={cookie['value']}"}
        )
        assert (status, headers["Location"]) == (303, "/console/sign-in?next=/console/")
        visited.check()


@pytest.mark.parametrize("width", [PHONE, *at_night(TABLET, DESK)])
def test_every_page_fits_its_window_and_keeps_its_policy(
    browser: Browser, console: Console, empty: Console, width: int
) -> None:
    paths = [
        *PAGES,
        "/console/shares/many?page=7",
        "/console/shares?q=table_29",
        table_path("demo", "orders"),
        table_path("small", "corrupt"),
        "/console/recipients/acme",
        *(table_path(name, name) for name in HOSTILE),
        *(f"/console/recipients/{quote(name)}" for name in RECIPIENTS),
        "/console/nothing",
    ]
    for one, opened in ((console, paths), (empty, PAGES)):
        with visitor(browser, one.base, width=width, dark=width == TABLET) as visited:
            visited.sign_in(OPERATOR)
            for path in opened:
                response = visited.open(path)
                assert response.status == (404 if path.endswith("nothing") else 200), path
                assert visited.has_no_horizontal_scrolling(), path
                assert response.headers["cache-control"] == "no-store"
                policy = response.headers["content-security-policy"]
                assert policy.startswith("default-src 'none'; style-src 'self';")
                assert "unsafe" not in policy
                assert visited.page.title().endswith("Delta Sharing gateway")


def test_thousands_of_tables_are_shown_in_pages_and_found_by_name(browser: Browser, console: Console) -> None:
    with visitor(browser, console.base) as visited:
        visited.sign_in(VIEWER, "/console/shares/many")
        assert visited.shown("tbody").first.locator("tr").count() == 50
        assert "Page 1 of 60, 3,000 tables" in text_of(visited)
        visited.page.click("text=Next")
        assert visited.page.locator("tbody tr").first.inner_text().startswith("table_0050")
        visited.page.fill("#q", "TABLE_2999")
        visited.page.press("#q", "Enter")
        visited.page.wait_for_url("**q=TABLE_2999*")
        assert visited.shown("tbody").first.locator("tr").count() == 1
        visited.open("/console/shares")
        visited.page.fill("#q", "default.table_1234")
        visited.page.press("#q", "Enter")
        visited.page.click("text=many.default.table_1234")
        visited.page.wait_for_url("**/table_1234")
        assert "Version" in text_of(visited)
        visited.check()


def test_a_discovered_table_is_shown(browser: Browser, console: Console) -> None:
    with visitor(browser, console.base) as visited:
        visited.sign_in(VIEWER, "/console/shares/found")
        visited.page.click("a:has-text('arrived')")
        visited.page.wait_for_url("**/found/new/arrived")
        assert "Last commit" in text_of(visited)


def test_a_table_shows_its_facts_clients_sizes_and_recent_queries(browser: Browser, console: Console) -> None:
    predicate = {"predicateHints": ["region = 'north'"]}
    for _ in range(4):
        assert console.gateway.query("demo.default.cities", predicate).status == 200
    with visitor(browser, console.base) as visited:
        visited.sign_in(VIEWER, table_path("demo", "cities"))
        shown = text_of(visited)
        assert re.search(rf"Rows\n{ROWS['cities']}\n", shown), shown
        assert "region\tstring\tyes" in shown
        assert "How to read it" in shown
        columns = visited.page.locator("#column-list ~ .scrolled").first.locator("tbody tr td:first-child")
        assert columns.all_inner_texts() == ["city", "inhabitants", "founded", "region"]
        visited.page.click("a:text-is('Type')")
        visited.page.wait_for_url("**?column-sort=type#column-list")
        assert columns.all_inner_texts() == ["founded", "inhabitants", "city", "region"]
        visited.page.select_option("#column-only", "partition")
        visited.page.press("#column-q", "Enter")
        visited.page.wait_for_url("**column-only=partition**")
        assert columns.all_inner_texts() == ["region"]
        visited.page.click("a:has-text('acme')")
        visited.page.wait_for_url("**/console/recipients/acme")
        visited.page.click(".names a:has-text('demo')")
        visited.page.wait_for_url("**/console/shares/demo")
        assert "acme\tdemo" in text_of(visited)
        visited.page.click("a:has-text('cities')")
        visited.page.wait_for_url("**/cities")
        assert "Every client, by the parquet format" in shown
        assert visited.shown("svg.plot[role=img]").count() == 4
        visited.page.locator("figure summary").first.click()
        requests = visited.page.locator("figure:has-text('Requests') tbody tr").all_inner_texts()
        assert sum(int(row.split("\t")[1]) for row in requests) >= 4, "of both workers"
        visited.page.click("a:has-text('The last day')")
        visited.page.wait_for_url("**?span=day#plots")
        assert "Requests of the last day" in text_of(visited)
        assert visited.shown("svg.histogram rect").count() == 7
        assert visited.shown("tbody tr").count() >= 4, "the queries of both workers"
        visited.open(table_path("demo", "readings"))
        assert "deletionVectors" in text_of(visited)
        assert "Clients of the parquet format alone" in text_of(visited)
        visited.open(table_path("small", "corrupt"))
        assert "The table cannot be read" in text_of(visited)


def test_hostile_names_are_texts(browser: Browser, console: Console) -> None:
    with visitor(browser, console.base) as visited:
        visited.sign_in(VIEWER, "/console/shares")
        for path in ("/console/shares", f"/console/shares/{quote(HOSTILE[0], safe='')}"):
            visited.open(path)
            assert HOSTILE[0] in text_of(visited)
            assert visited.page.title() != "owned"
            assert visited.shown("script").count() == 0
        dotted = quote(HOSTILE[4], safe="")
        path = f"/shares/{dotted}/schemas/default/tables/{dotted}/query"
        assert console.gateway.request("POST", path, {}, {}).status == 200
        visited.open("/console/activity")
        visited.page.click(f"a:has-text('{HOSTILE[4]}')")
        visited.page.wait_for_url(f"**{table_path(HOSTILE[4], HOSTILE[4])}")
        visited.open("/console/shares")
        assert "\u202e" not in text_of(visited)
        assert "\N{REPLACEMENT CHARACTER}txt.eman" in text_of(visited)


def test_an_operator_adds_grants_rotates_and_revokes(browser: Browser, console: Console) -> None:
    with visitor(browser, console.base) as visited:
        visited.sign_in(OPERATOR, "/console/recipients")
        visited.page.click("summary:has-text('Add a recipient')")
        visited.page.fill("#name", "initech")
        visited.page.select_option("#share", "demo")
        visited.page.fill("#days", "3")
        visited.page.click("button:has-text('Add')")
        with visited.page.expect_download() as saved:
            visited.page.click("text=Save the profile")
        profile = json.loads(Path(saved.value.path()).read_text())
        assert saved.value.suggested_filename == "initech.share"
        token = profile["bearerToken"]
        wait_for_status(console, token, 200)
        visited.page.click("a:has-text('To the recipient')")
        visited.page.wait_for_url("**/recipients/initech")
        assert visited.page.locator(".tile .bad").first.inner_text() == "in 3 days"
        visited.page.click("summary:has-text('Grant a share')")
        visited.page.select_option("#share", "small")
        visited.page.click("button:text-is('Grant')")
        wait_for_shares(console, token, ["demo", "small"])
        visited.page.click("[aria-label='Take back demo']")
        wait_for_shares(console, token, ["small"])
        visited.page.click("summary:has-text('Issue a new token')")
        visited.page.fill("#old", "0")
        visited.page.click("button:has-text('Issue')")
        visited.page.click("summary:has-text('Show it')")
        second = json.loads(visited.page.inner_text("pre"))["bearerToken"]
        wait_for_status(console, token, 401)
        wait_for_status(console, second, 200)
        visited.page.go_back()
        visited.page.click("summary:has-text('End all')")
        visited.page.click("button:has-text('End them')")
        wait_for_status(console, second, 401)
        visited.open("/console/recipients/initech")
        history = console.api("GET", "/recipients/initech")["history"]
        assert [change["action"] for change in history] == [
            "createRecipient",
            "updateSharePermissions",
            "updateSharePermissions",
            "rotateRecipientToken",
            "revokeRecipientTokens",
        ]
        assert {change["actor"] for change in history} == {"console:operator:127.0.0.1"}
        visited.page.click("summary:has-text('Delete the recipient')")
        visited.page.click("button:has-text('Delete')")
        visited.page.wait_for_url("**/console/recipients")
        assert "initech" not in text_of(visited)


@pytest.mark.nightly
def test_networks_are_set_and_their_refusals_have_a_reason(browser: Browser, console: Console) -> None:
    profile = console.api("POST", "/recipients", {"name": "near", "shares": ["demo"]})["profile"]
    token = profile["bearerToken"]
    with visitor(browser, console.base) as visited:
        visited.sign_in(OPERATOR, "/console/recipients/near")
        wait_for_status(console, token, 200)
        visited.page.click("summary:has-text('Change the networks')")
        visited.page.fill("#networks", "192.0.2.0/24, 2001:db8::/32")
        visited.page.click("button:has-text('Set the networks')")
        wait_for_status(console, token, 403)
        visited.open("/console/recipients/near")
        assert "192.0.2.0/24, 2001:db8::/32" in text_of(visited)
        reasons = visited.page.locator("h2:has-text('Refused requests') + div tbody tr td:first-child")
        assert reasons.all_inner_texts() == ["address"]
        assert visited.page.locator("td[data-label=From]").all_inner_texts() == ["127.0.0.1"]
        assert "403 address" in text_of(visited)
        visited.page.click("summary:has-text('Change the networks')")
        visited.page.fill("#networks", "")
        visited.page.click("button:has-text('Set the networks')")
        wait_for_status(console, token, 200)
        visited.check()
    console.api("DELETE", "/recipients/near")


@pytest.mark.nightly
def test_an_operator_grants_a_part_by_a_property_of_the_recipient(browser: Browser, console: Console) -> None:
    profile = console.api("POST", "/recipients", {"name": "part", "shares": ["small"]})["profile"]
    token = profile["bearerToken"]
    with visitor(browser, console.base) as visited:
        visited.sign_in(OPERATOR, "/console/recipients/part")
        visited.page.click("summary:has-text('Set a property')")
        visited.page.fill("#property", "region")
        visited.page.fill("#text", "日本")
        visited.page.click("button:text-is('Set')")
        visited.page.click("summary:has-text('Grant a part')")
        visited.page.select_option("#whole", "demo")
        visited.page.click("button:has-text('Choose a part')")
        visited.page.select_option("#part", label="default.cities")
        visited.page.fill("#condition", "region = recipient.region")
        visited.page.click("button:has-text('Grant')")
        assert "demo.default.cities region = recipient.region" in " ".join(text_of(visited).split())
        wait_for_shares(console, token, ["demo", "small"])
        table = "/shares/demo/schemas/default/tables/cities/query"
        lines = console.gateway.request("POST", table, {}, token=token).lines
        regions = {line["file"]["partitionValues"]["region"] for line in lines[2:] if "file" in line}
        assert regions == {"日本"}
        visited.page.click("[aria-label='Take back demo.default.cities']")
        wait_for_shares(console, token, ["small"])
        visited.page.click("[aria-label='Remove region']")
        assert "Remove" not in text_of(visited)
        visited.check()
    console.api("DELETE", "/recipients/part")


def wait_for_status(console: Console, token: str, status: int) -> None:
    wait_until(everywhere(lambda: console.gateway.request("GET", "/shares", token=token).status, status))


def wait_for_shares(console: Console, token: str, expected: list[str]) -> None:
    def names() -> list[str]:
        items = console.gateway.request("GET", "/shares", token=token).json.get("items", [])
        return [item["name"] for item in items]

    wait_until(everywhere(names, expected))


def test_a_viewer_sees_no_form_and_cannot_send_one(browser: Browser, console: Console) -> None:
    with visitor(browser, console.base) as visited:
        visited.sign_in(VIEWER, "/console/recipients/acme")
        assert visited.shown("main form[method=post]").count() == 0
    cookie = console.cookie(VIEWER)
    _, _, page = console.request("GET", "/console/recipients/acme", headers={"Cookie": cookie})
    found = re.search(r'name="token" value="([^"]+)"', page)
    assert found
    form = {"token": found[1], "form": "1"}
    for path in ("/console/recipients/acme/revoke", "/console/configuration/reload", "/console/recipients"):
        status, _, body = console.request("POST", path, form, {"Cookie": cookie, **console.same_site})
        assert status == 403, path
        assert "role of an operator" in body
    assert console.api("GET", "/recipients/acme")["tokens"]


def test_a_form_needs_its_token_once_and_comes_from_this_site(console: Console) -> None:
    cookie = console.cookie(OPERATOR)
    headers = {"Cookie": cookie, **console.same_site}
    _, _, page = console.request("GET", "/console/recipients/globex", headers=headers)
    token = re.search(r'name="token" value="([^"]+)"', page)
    assert token
    form = {"token": token[1], "form": "unique", "share": "small"}
    path = "/console/recipients/globex/grant"
    refused: list[tuple[dict[str, str], dict[str, str]]] = [
        ({"form": "unique", "share": "small"}, headers),
        ({**form, "token": "guessed"}, headers),
        (form, {"Cookie": cookie}),
        (form, {"Cookie": cookie, "Origin": "https://evil.example"}),
        (form, {"Cookie": cookie, "Origin": "null"}),
        (form, {**headers, "Sec-Fetch-Site": "cross-site"}),
        (form, {**headers, "Sec-Fetch-Site": "same-site"}),
    ]
    for fields, sent in refused:
        assert console.request("POST", path, fields, sent)[0] == 403, (fields, sent)
    assert console.api("GET", "/recipients/globex")["shares"] == ["demo"]
    assert console.request("POST", path, form, console.same_site)[0] == 303, "without a session"
    assert console.api("GET", "/recipients/globex")["shares"] == ["demo"]
    status, answer, _ = console.request("POST", path, form, headers)
    assert (status, answer["Location"]) == (303, "/console/recipients/globex")
    assert sorted(console.api("GET", "/recipients/globex")["shares"]) == ["demo", "small"]
    # As by a double click.
    status, answer, _ = console.request("POST", path, form, headers)
    assert (status, answer["Location"]) == (303, "/console/recipients/globex")
    status, _, body = console.request("POST", f"{path[:-5]}take-back", form, headers)
    assert (status, "sent before" in body) == (409, True)


def test_another_site_sends_no_form_with_the_session(browser: Browser, console: Console) -> None:
    with visitor(browser, console.base) as visited:
        visited.sign_in(OPERATOR)
        target = f"{console.base}/console/recipients/acme/delete"
        # Another host of the same machine is another site for the browser.
        other = f"http://localhost:{console.port}/healthz"
        visited.page.goto(other)
        visited.page.set_content(f'<form method="post" action="{target}"><button>Send</button></form>')
        visited.page.click("button")
        visited.page.wait_for_load_state()
        assert visited.page.url.startswith(console.base)
    assert console.api("GET", "/recipients/acme")["name"] == "acme"


def test_the_console_needs_its_session_and_the_admin_api_its_token(console: Console) -> None:
    for path in PAGES:
        status, headers, body = console.request("GET", path)
        assert (status, body) == (303, ""), path
        assert headers["Location"].startswith("/console/sign-in?next=")
    cookie = console.cookie(OPERATOR)
    for path in ("/recipients", "/metrics", "/console/../recipients", "/console/%2e%2e/recipients"):
        status, _, body = console.request("GET", path, headers={"Cookie": cookie})
        assert status in {401, 404}, path
        assert "acme" not in body
    status, _, _ = console.request("GET", "/console/", headers={"Authorization": f"Bearer {OPERATOR}"})
    assert status == 303


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (303, gzip.compress(f"secret={OPERATOR}".encode(), mtime=0), {"Content-Encoding": "gzip"}),
        (400, b"secret=x", {"Content-Encoding": "gzip"}),
        (400, b"--b--\r\n", {"Content-Type": "multipart/form-data"}),
        (400, b"--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"}),
        (400, b"secret=\xff", {}),
        (400, b"secret=%ff", {}),
        (400, b"&a=" * 100, {}),
        (
            303,
            b"secret=" + OPERATOR.encode(),
            {"Content-Type": "application/x-www-form-urlencoded; charset=none"},
        ),
        (413, b"x" * 100_000, {}),
        (413, gzip.compress(b"x" * 10_000_000, mtime=0), {"Content-Encoding": "gzip"}),
    ],
)
def test_a_form_of_any_coding_has_an_answer_and_no_defect(
    empty: Console, status: int, body: bytes, headers: dict[str, str]
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", empty.port, timeout=30)
    form = {"Content-Type": "application/x-www-form-urlencoded", **empty.same_site, **headers}
    connection.request("POST", "/console/sign-in", body, form)
    response = connection.getresponse()
    response.read()
    connection.close()
    assert (response.status, response.headers["X-Frame-Options"]) == (status, "DENY")
    assert "raceback" not in empty.gateway.log.read_text()


def test_the_admin_api_decodes_bodies_and_takes_any_name(empty: Console) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", empty.port, timeout=30)
    headers = {"Authorization": f"Bearer {OPERATOR}", "Content-Encoding": "gzip"}
    name = HOSTILE[-1]
    connection.request("POST", "/recipients", gzip.compress(json.dumps({"name": name}).encode()), headers)
    assert connection.getresponse().status == 201
    connection.close()
    assert empty.api("GET", f"/recipients/{quote(name, safe='')}")["name"] == name


def test_a_grant_of_a_share_whose_name_is_shown_by_symbols_is_taken_back(empty: Console) -> None:
    name, path = "turned \u202e and %41", "/console/recipients/turned"
    empty.api("POST", "/recipients", {"name": "turned", "shares": [name], "allowAbsent": True})
    headers = {"Cookie": empty.cookie(OPERATOR), **empty.same_site}
    _, _, page = empty.request("GET", path, headers=headers)
    fields = {
        field: re.findall(rf'name="{field}" value="([^"]+)"', page)[0] for field in ("token", "form", "share")
    }
    assert empty.request("POST", f"{path}/take-back", fields, headers)[0] == 303
    assert empty.api("GET", "/recipients/turned")["shares"] == []


def test_failed_attempts_to_sign_in_are_limited(empty: Console) -> None:
    statuses = [
        empty.request("POST", "/console/sign-in", {"secret": f"guess-{number}"}, empty.same_site)[0]
        for number in range(14)
    ]
    assert statuses[:10] == [401] * 10
    assert 429 in statuses[10:]
    log = empty.gateway.logged("a sign-in to the console without a valid token")
    assert "guess-" not in log


def test_the_pages_are_used_by_the_keyboard_alone(browser: Browser, console: Console) -> None:
    with visitor(browser, console.base) as visited:
        visited.sign_in(VIEWER)
        visited.page.keyboard.press("Tab")
        assert visited.page.evaluate("document.activeElement.textContent") == "Skip to the content"
        for name in ("Delta Sharing gateway", "Overview", "Shares"):
            visited.page.keyboard.press("Tab")
            assert visited.page.evaluate("document.activeElement.textContent") == name
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert visited.page.evaluate(outline) == "solid"
        visited.page.keyboard.press("Enter")
        visited.page.wait_for_url("**/console/shares")
        assert visited.page.locator("nav a[aria-current=page]").inner_text() == "Shares"


@pytest.mark.nightly
def test_a_reload_shows_the_result_of_every_process(browser: Browser, console: Console) -> None:
    with visitor(browser, console.base) as visited:
        visited.sign_in(OPERATOR, "/console/configuration")
        visited.page.click("button:has-text('Read the configuration again')")
        assert "in force" in text_of(visited)
        assert visited.shown("h3").count() == 2
        visited.check()


def test_storages_and_the_overview_say_what_was_used(browser: Browser, console: Console) -> None:
    assert console.gateway.query("demo.default.orders").status == 200
    with visitor(browser, console.base) as visited:
        visited.sign_in(VIEWER, "/console/storages")
        assert "file://" in text_of(visited)
        assert "closed" in text_of(visited)
        for span, other in (("hour", "day"), ("day", "hour")):
            plots = visited.shown("#plots")
            assert re.fullmatch(rf"Requests to file:///\S* of the last {span}", plots.inner_text())
            visited.page.locator("figure summary").first.click()
            assert re.search(r"\d\d:\d\d\t[1-9]", visited.shown("figure table").first.inner_text())
            assert visited.shown("figure").count() == 5
            visited.page.click(f"text=The last {other}")
            assert f"span={other}" in visited.page.url
            visited.check()
        visited.open("/console/")
        assert "acme: the token ends in 1 day" in text_of(visited)
        assert f"{TABLES + len(ROWS) + 4 + len(HOSTILE):,}" in text_of(visited)


def test_the_pictures_of_the_documentation(browser: Browser, console: Console, tmp_path: Path) -> None:
    directory = Path(os.environ.get("DELTA_GATEWAY_PICTURES", tmp_path))
    pages = {"table": (table_path("demo", "readings"), 560), "recipients": ("/console/recipients", 350)}
    for name, (path, height) in pages.items():
        with visitor(browser, console.base, width=1000, dark=name == "recipients") as visited:
            visited.sign_in(VIEWER, path)
            picture = directory / f"console-{name}.png"
            visited.page.screenshot(path=picture, clip={"x": 0, "y": 0, "width": 1000, "height": height})
            assert 5000 < picture.stat().st_size < 150_000
