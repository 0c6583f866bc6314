"""Activation links over a server of two workers: exactly one profile for each link, by a person alone."""

import http.client
import json
import re
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from support.browser import PHONE, chromium, visitor
from support.commands import run_command
from support.gateway_process import PREFIX, RunningGateway, running_gateway, share
from support.nightly import at_night
from support.postgresql_server import PostgresqlServer
from support.waiting import everywhere, wait_until
from tables.small_tables import lay_out

ADDRESS = f"{PREFIX}/activate"
SAVED = re.compile(r'href="data:application/json;base64,([A-Za-z0-9+/=]+)"')


@pytest.fixture(scope="module", params=["sqlite", *at_night("postgresql")])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """On each kind of database."""
    directory, section = tmp_path_factory.mktemp("activation"), {}
    if request.param == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql")
        section = {"database": {"url": server.url(server.new_database())}}
    lay_out(directory / "small")
    names = ("whole", "vector", "corrupt")
    shares = [
        share("small", {"whole": str(directory / "small/whole")}),
        *(share(f"only-{name}", {name: str(directory / "small" / name)}) for name in names),
        {"name": "empty"},
    ]
    with running_gateway(directory, shares, section, workers=2) as gateway:
        yield gateway


def recipient(served: RunningGateway, *words: str) -> str:
    """Runs a command, and returns what it prints."""
    ended = run_command("recipient", *words, "-c", served.log.with_name("gateway.yaml"))
    ended.check_returncode()
    return ended.stdout.strip()


def link_of(served: RunningGateway, name: str, *words: str) -> str:
    """Adds a recipient with a link, and returns the link."""
    url = recipient(served, "add", name, "--share", "small", "--activation", *words)
    assert url.startswith(f"http://127.0.0.1:{served.port}{ADDRESS}#"), url
    return url


Answer = tuple[int, http.client.HTTPMessage, str]


def activated(served: RunningGateway, code: str, **fields: str) -> Answer:
    """Sends the form until the guesses of other tests, which have the same address, are forgiven."""
    for _ in range(300):
        answer = sent(served, code, **fields)
        if answer[0] != 429:
            return answer
        time.sleep(0.2)
    raise AssertionError("guesses are not forgiven")


def sent(served: RunningGateway, code: str, **fields: str) -> Answer:
    """Sends the form once, on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", ADDRESS, urlencode({"code": code, **fields}), headers)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, response.headers, body


def profile_in(page: str) -> dict[str, str]:
    found = SAVED.search(page)
    assert found, page
    profile: dict[str, str] = json.loads(b64decode(found[1]))
    return profile


def at_once(served: RunningGateway, code: str, **fields: str) -> list[Answer]:
    """Sends the form eight times at once, which the kernel spreads over both workers."""
    start = threading.Barrier(8)

    def send(_number: int) -> Answer:
        start.wait()
        return activated(served, code, **fields)

    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(send, range(8)))


def test_a_link_gives_one_profile_to_one_of_many_requests_on_both_workers(served: RunningGateway) -> None:
    code = urlsplit(link_of(served, "acme", "--expires", "90d")).fragment
    answers = at_once(served, code)
    assert sorted(status for status, _, _ in answers) == [200, *[404] * 7]
    (page,) = [page for status, _, page in answers if status == 200]
    profile = profile_in(page)
    assert profile["expirationTime"]
    wait_until_accepted(served, profile["bearerToken"])
    history = recipient(served, "history", "acme")
    assert history.count("activateRecipient") == 1
    assert code not in history
    log = served.logged("activateRecipient of recipient acme by activation")
    assert code not in log
    assert profile["bearerToken"] not in log


@pytest.mark.parametrize("words", [(), *at_night((("--oauth",),))])
def test_a_form_that_is_sent_to_both_workers_gets_one_profile(
    served: RunningGateway, words: tuple[str, ...]
) -> None:
    name = f"clicks{len(words)}"
    code = urlsplit(link_of(served, name, *words)).fragment
    answers = at_once(served, code, form="the-number-of-a-form")
    assert [status for status, _, _ in answers] == [200] * 8
    first, *others = (profile_in(page) for _, _, page in answers)
    assert others == [first] * 7
    assert recipient(served, "history", name).count("activateRecipient") == 1
    assert activated(served, code, form="that-of-another-form")[0] == 404


STEP = re.compile(r"<li><strong class=\"(?:good|bad)\">(\w+)</strong> (\w+): <bdi>(.*?)</bdi></li>")


def steps_of(page: str) -> dict[str, tuple[str, str]]:
    """The steps of the page by their names."""
    return {name: (result, unescape(message)) for result, name, message in STEP.findall(page)}


@pytest.mark.parametrize("share_name", ["only-vector", *at_night("small", "only-corrupt")])
def test_the_page_says_what_the_doctor_says(served: RunningGateway, share_name: str, tmp_path: Path) -> None:
    name = f"{share_name}-doctor"
    url = recipient(served, "add", name, "--share", share_name, "--activation", "--expires", "90d")
    page = activated(served, urlsplit(url).fragment)[2]
    shown, file = steps_of(page), tmp_path / "doctor.share"
    profile = profile_in(page)
    file.write_text(json.dumps(profile))
    file.chmod(0o600)
    wait_until_accepted(served, profile["bearerToken"])
    ended = run_command("doctor", file, "--json")
    steps = {step["step"]: (step["status"], step["message"]) for step in json.loads(ended.stdout)["steps"]}
    compared = ("shares", "tables", "metadata", "version")
    if share_name == "only-corrupt":
        assert shown["version"][0] == "fail"
        assert shown["version"][1] in steps["table"][1], (shown, steps)
        compared = ("shares", "tables")
    assert {step: shown[step] for step in compared} == {step: steps[step] for step in compared}
    assert shown["profile"][0] == "ok"
    assert shown["profile"][1].startswith("a bearer token until ")


def test_the_page_says_why_nothing_can_be_read(served: RunningGateway) -> None:
    link = recipient(served, "add", "none", "--activation", "--allow", "192.0.2.0/24")
    shown = steps_of(activated(served, urlsplit(link).fragment)[2])
    assert shown["shares"][0] == "fail"
    assert shown["server"][0] == "warn"
    assert "192.0.2" not in shown["server"][1]
    link = recipient(
        served, "add", "hollow", "--activation", "--share", "empty", "--oauth", "--expires", "never"
    )
    shown = steps_of(activated(served, urlsplit(link).fragment)[2])
    assert shown["tables"][0] == "warn"
    assert shown["profile"] == ("ok", "OAuth client credentials without an end")


def wait_until_accepted(served: RunningGateway, token: str) -> None:
    wait_until(everywhere(lambda: served.request("GET", "/shares", token=token).status, 200))


def test_who_only_opens_a_link_uses_nothing(served: RunningGateway) -> None:
    code = urlsplit(link_of(served, "globex")).fragment
    for method in ("GET", "HEAD", "GET"):
        answer = served.request(method, ADDRESS, token="none")
        assert answer.status == 200
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
    assert activated(served, code)[0] == 200
    status, headers, page = activated(served, code)
    assert (status, headers["Cache-Control"]) == (404, "no-store")
    assert "was used already" in page


@pytest.mark.nightly
def test_a_profile_of_a_client_and_a_link_of_a_known_recipient(served: RunningGateway) -> None:
    code = urlsplit(link_of(served, "initech", "--oauth")).fragment
    _, _, page = activated(served, f"http://copied.example/activate#{code}")
    first = profile_in(page)
    assert first["type"] == "oauth_client_credentials"
    assert "Power BI" not in page, "it needs a bearer token"
    earlier = urlsplit(recipient(served, "link", "initech")).fragment
    later = urlsplit(recipient(served, "link", "initech")).fragment
    assert activated(served, earlier)[0] == 404, "a new link ends the one before"
    second = profile_in(activated(served, later)[2])
    assert second["clientId"] != first["clientId"]
    ended = urlsplit(recipient(served, "link", "initech")).fragment
    recipient(served, "revoke", "initech")
    assert activated(served, ended)[0] == 404, "a revocation ends it"
    short = urlsplit(recipient(served, "link", "initech", "--link-expires", "1s")).fragment
    threading.Event().wait(1.2)
    assert activated(served, short)[0] == 404


def test_a_link_keeps_the_youngest_token(served: RunningGateway) -> None:
    recipient(
        served, "add", "umbrella", "--share", "small", "--profile", str(served.log.with_name("u.share"))
    )
    code = urlsplit(recipient(served, "link", "umbrella")).fragment
    second = profile_in(activated(served, code)[2])["bearerToken"]
    wait_until_accepted(served, second)
    first = json.loads(served.log.with_name("u.share").read_text())["bearerToken"]
    assert served.request("GET", "/shares", token=first).status == 200


@pytest.mark.parametrize("code", ["", "x", "a" * 300, "\u202e", "%00", "a&code=b"])
def test_a_guess_finds_nothing(served: RunningGateway, code: str) -> None:
    status, _, page = sent(served, code)
    assert status in {404, 429}
    assert not SAVED.search(page)


def test_guesses_are_limited_by_address(served: RunningGateway) -> None:
    statuses = [sent(served, f"guess-{number}")[0] for number in range(60)]
    assert 429 in statuses
    assert {*statuses} <= {404, 429}


def test_a_large_form_is_refused(served: RunningGateway) -> None:
    assert sent(served, "a" * 5000)[0] == 413


def test_a_person_saves_the_profile_in_a_browser(tmp_path: Path) -> None:
    lay_out(tmp_path / "small")
    shares = [share("small", {"whole": str(tmp_path / "small/whole")})]
    with (
        chromium() as browser,
        running_gateway(tmp_path, shares) as served,
        visitor(browser, f"http://127.0.0.1:{served.port}", width=PHONE, dark=True) as visited,
    ):
        url = link_of(served, "acme")
        visited.open(url.removeprefix(visited.base))
        assert visited.page.url == visited.base + ADDRESS, "the code has left the address"
        assert visited.has_no_horizontal_scrolling()
        visited.page.click("text=Get the profile")
        with visited.page.expect_download() as saved:
            visited.page.click("text=Save acme.share")
        profile = json.loads(Path(saved.value.path()).read_text())
        assert profile["endpoint"] == f"{visited.base}{PREFIX}"
        shown = visited.shown("main").inner_text()
        for client in ("Python", "pandas", "Polars", "DuckDB", "Spark", "Power BI", "curl"):
            assert f"\n{client}\n" in shown
        assert "acme.share#small.default.whole" in shown
        assert "delta-gateway doctor acme.share" in shown
        assert profile["bearerToken"] not in shown
        assert visited.has_no_horizontal_scrolling()
        visited.check()
