"""People sign in to the console by an OpenID provider, in a real browser and on two sites."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from support.browser import PHONE, Visitor, chromium, visitor
from support.gateway_process import RunningGateway, running_gateway
from support.openid_process import openid_process
from support.processes import free_port, wait_for_port

from gateway.authentication.credential_table import token_hash

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TOKEN, SECRET = "the-token-of-the-operators", "the secret: of 100% & the console"
FLOW = "delta_gateway_sign_in"


@dataclass
class Site:
    """A console of two workers, and its provider, which tests stop and start."""

    gateway: RunningGateway
    directory: Path
    port: int
    provider_port: int
    running: ExitStack = field(default_factory=ExitStack)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def provider(self) -> str:
        return f"http://localhost:{self.provider_port}"

    def start_provider(self) -> None:
        arguments = (f"{self.base}/console/sign-in/callback", SECRET)
        self.running.enter_context(
            openid_process(self.directory, "sign_in.mjs", self.provider_port, *arguments)
        )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@contextmanager
def started(directory: Path, client: dict[str, str]) -> Iterator[Site]:
    port, provider_port = free_port(), free_port()
    oidc = {
        "issuer": f"http://localhost:{provider_port}",
        "redirectUrl": f"http://127.0.0.1:{port}/console/sign-in/callback",
        "scopes": ["openid", "groups"],
        "operatorValues": ["operators"],
        "viewerValues": ["viewers"],
        "allowPrivateAddresses": True,
        **client,
    }
    admin = {"tokenSha256": token_hash(TOKEN).hex(), "port": port, "oidc": oidc}
    with running_gateway(directory, [], {"admin": admin}, workers=2) as gateway:
        wait_for_port(port, gateway.process)
        site = Site(gateway, directory, port, provider_port)
        with site.running:
            site.start_provider()
            yield site
        log = gateway.log.read_text()
        assert "raceback" not in log
        assert SECRET not in log


@pytest.fixture(scope="module")
def openid_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The console is a public client."""
    with started(tmp_path_factory.mktemp("sign-in"), {"clientId": "public"}) as site:
        yield site


@contextmanager
def window(browser: Browser, site: Site) -> Iterator[Visitor]:
    with visitor(browser, site.base) as visited:
        # The provider's own pages have a font from elsewhere.
        visited.context.route("https://fonts.googleapis.com/**", lambda route: route.abort())
        yield visited


def check_console(visited: Visitor, site: Site) -> None:
    """The pages of the console keep their policy; those of the provider have none."""
    others = (site.provider, "https://fonts.googleapis.com/", "Failed to load resource")
    visited.problems = [problem for problem in visited.problems if not problem.startswith(others)]
    visited.check()


def sign_in(visited: Visitor, site: Site, name: str, path: str = "/console/", *, keep: bool = True) -> None:
    """Signs in at the provider, which asks for a consent; without `keep` the cookie is lost on the way."""
    page = visited.page
    page.goto(site.base + path)
    page.click("text=Sign in with localhost")
    page.wait_for_url(f"{site.provider}/interaction/*")
    page.fill("[name=login]", name)
    page.fill("[name=password]", "any")
    page.click("button:has-text('Sign-in')")
    if not keep:
        visited.context.clear_cookies(name=FLOW)
    page.click("button:has-text('Continue')")


def session_of(visited: Visitor, site: Site) -> Any:
    cookies = visited.context.cookies(f"{site.base}/console/")
    return next((cookie for cookie in cookies if cookie["name"] == "delta_gateway_console"), None)


def test_an_operator_signs_in_on_another_site_and_out_of_both(
    browser: Browser, openid_provider: Site
) -> None:
    site = openid_provider
    with window(browser, site) as visited:
        sign_in(visited, site, "olivia-operators", "/console/configuration")
        visited.page.wait_for_url(f"{site.base}/console/configuration")
        assert visited.page.inner_text(".bar .user").split() == [
            "olivia-operators",
            "operator",
            "Sign",
            "out",
        ]
        cookie = session_of(visited, site)
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        names = {one["name"] for one in visited.context.cookies(site.base)}
        assert FLOW not in names, "the begun sign-in has ended"
        visited.page.click("text=Read the configuration again")
        assert visited.shown("h3").count() == 2, "a form of the session is carried out"
        check_console(visited, site)
        visited.page.click("text=Sign out")
        visited.page.wait_for_url(f"{site.provider}/session/end?*")
        visited.page.click("button:has-text('Yes')")
        visited.page.wait_for_load_state()
        assert session_of(visited, site) is None
        visited.page.goto(f"{site.base}/console/")
        assert visited.page.url.startswith(f"{site.base}/console/sign-in?")
        # The provider asks for the password again.
        visited.page.click("text=Sign in with localhost")
        visited.page.wait_for_selector("[name=password]")
    log = site.gateway.logged("console:operator:oidc:olivia-operators signs in to the console")
    assert "code=" not in log


def test_a_viewer_looks_and_a_stranger_is_told_why_not(browser: Browser, openid_provider: Site) -> None:
    site = openid_provider
    with window(browser, site) as visited:
        sign_in(visited, site, "victor-viewers")
        visited.page.wait_for_url(f"{site.base}/console/")
        assert visited.page.inner_text(".role") == "viewer"
        visited.page.goto(f"{site.base}/console/configuration")
        assert visited.shown("main form").count() == 0
    with window(browser, site) as visited:
        sign_in(visited, site, "sam-others")
        visited.page.wait_for_url(f"{site.base}/console/sign-in/callback?*")
        assert "has no role in this console" in visited.page.inner_text("[role=alert]")
        assert session_of(visited, site) is None
        check_console(visited, site)


def test_a_user_who_cancels_can_sign_in_again(browser: Browser, openid_provider: Site) -> None:
    site = openid_provider
    with window(browser, site) as visited:
        visited.page.goto(f"{site.base}/console/")
        visited.page.click("text=Sign in with localhost")
        visited.page.click("text=Cancel")
        visited.page.wait_for_url(f"{site.base}/console/sign-in/callback?*")
        assert "did not let you in" in visited.page.inner_text("[role=alert]")
        visited.page.go_back()
        sign_in(visited, site, "olivia-operators")
        visited.page.wait_for_url(f"{site.base}/console/")


def test_an_answer_does_not_sign_another_browser_in(browser: Browser, openid_provider: Site) -> None:
    site = openid_provider
    with window(browser, site) as attacker, window(browser, site) as victim:
        sign_in(attacker, site, "mallory-operators", keep=False)
        attacker.page.wait_for_url(f"{site.base}/console/sign-in/callback?*")
        # An answer that is not used up: the browser had lost its cookie.
        assert "began no sign-in" in attacker.page.inner_text("[role=alert]")
        answer = attacker.page.url
        victim.page.goto(answer)
        assert "began no sign-in" in victim.page.inner_text("[role=alert]")
        # Also where the victim has begun one.
        victim.page.goto(f"{site.base}/console/")
        victim.page.click("text=Sign in with localhost")
        victim.page.wait_for_selector("[name=password]")
        victim.page.goto(answer)
        assert "began no sign-in" in victim.page.inner_text("[role=alert]")
        assert session_of(victim, site) is None


@pytest.mark.nightly
def test_a_client_with_a_secret_and_a_provider_that_goes_and_comes(
    browser: Browser, openid_provider: Site, tmp_path: Path
) -> None:
    assert openid_provider.provider_port
    (tmp_path / "secret").write_text(SECRET)
    client = {"clientId": "confidential", "clientSecretFile": str(tmp_path / "secret")}
    with started(tmp_path, client) as site:
        site.running.close()
        with window(browser, site) as visited:
            visited.page.goto(f"{site.base}/console/recipients")
            visited.page.click("text=Sign in with localhost")
            assert "does not answer as it should" in visited.page.inner_text("[role=alert]")
            visited.page.set_viewport_size({"width": PHONE, "height": 900})
            assert visited.has_no_horizontal_scrolling()
            visited.page.fill("#secret", TOKEN)
            visited.page.press("#secret", "Enter")
            visited.page.wait_for_url(f"{site.base}/console/recipients")
            check_console(visited, site)
        site.start_provider()
        with window(browser, site) as visited:
            # A failed discovery is tried again after 5 seconds.
            for _ in range(30):
                visited.page.goto(f"{site.base}/console/sign-in/provider")
                if urlsplit(visited.page.url).port == site.provider_port:
                    break
                visited.page.wait_for_timeout(500)
            sign_in(visited, site, "olivia-operators")
            visited.page.wait_for_url(f"{site.base}/console/")
            assert visited.page.inner_text(".role") == "operator"
