"""Signs users in and out.

A token of the admin API signs in an operator, and the viewer token of the configuration signs in a viewer.
Failed attempts are limited by address. `provider_pages` sign in by an identity provider.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from urllib.parse import unquote, urlsplit

from aiohttp import web
from yarl import URL

from gateway.config.checks import DOTS
from gateway.console.forms import form_of
from gateway.console.protection import PREFIX, PROVIDER_SIGN_IN, SIGN_IN, Refused, find_session
from gateway.console.rendering import redirect, respond
from gateway.console.sessions import COOKIE, ProviderUser, Role
from gateway.console.site import SESSION, SITE, Site
from gateway.limits.admission import LimitExceeded
from gateway.limits.attempts import TOO_MANY, network_of

log = logging.getLogger("gateway.admin")

SIGNED_IN = "signInToConsole"
"""The action of the audit log."""
ATTEMPT = "console"
"""The id by which failed attempts of an address are counted."""
MAX_TARGET_BYTES = 1500
"""A begun sign-in keeps the page in a cookie; browsers accept at most 4096 bytes."""
ENDED = "You are signed out of the console"


async def form(request: web.Request) -> web.Response:
    """Answer the page to sign in."""
    return await sign_in_page(request, target_of(request.query.get("next", "")))


async def sign_in(request: web.Request) -> web.Response:
    """Begin a session by a token."""
    site, sent = request.app[SITE], await form_of(request)
    token, target = sent.get("secret", "").strip(), target_of(sent.get("next", ""))
    address = site.administration.client_address(request)
    client = network_of(address)
    sha256 = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
    role = role_of(site, sha256) if token else None
    if role is None:
        # A valid token needs no budget: others who fail at its address, as behind a proxy, lock nobody out.
        try:
            site.attempts.check(client, ATTEMPT)
        except LimitExceeded:
            raise Refused(429, TOO_MANY) from None
        site.attempts.failed(client, ATTEMPT)
        site.administration.count_refused()
        site.administration.audited(SIGNED_IN, "console", address, 401)
        log.warning("a sign-in to the console without a valid token: from %s", address)
        return await sign_in_page(request, target, status=401, problem="This token is not accepted.")
    actor = f"console:{role.name.lower()}:{address}"
    log.info("%s signs in to the console", actor)
    response = redirect(target)
    begin(request, response, actor, role)
    return response


async def sign_out(request: web.Request) -> web.Response:
    """End the session; users of an identity provider are redirected to its sign-out."""
    site, session = request.app[SITE], find_session(request)
    site.sessions.end(request.cookies.get(COOKIE, ""))
    address = None
    if session is not None and session.user is not None:
        provider = await site.provider.get(session.user.settings)
        address = provider.sign_out_url(session.user.hint)
    response = redirect(SIGN_IN) if address is None else await onward_page(request, ENDED, address)
    response.del_cookie(COOKIE, path=PREFIX)
    return response


async def sign_in_page(
    request: web.Request, target: str, *, status: int = 200, problem: str = ""
) -> web.Response:
    """Answer the page to sign in, with what failed."""
    settings = request.app[SITE].oidc
    provider = None
    if settings is not None:
        provider = {
            "host": urlsplit(settings.issuer).hostname,
            "address": str(URL(PROVIDER_SIGN_IN).with_query(next=target)),
        }
    return await respond(
        request, "sign_in.html", status=status, target=target, problem=problem, provider=provider
    )


async def onward_page(request: web.Request, title: str, address: str) -> web.Response:
    """Answer a page that redirects without a click.

    Browsers compare a redirect with what came before it: one after a form may not leave the site
    (`form-action`), and one from another site is sent without the session's cookie (`SameSite=Strict`).
    """
    # The page is of no session: this request ends or begins it.
    request.pop(SESSION, None)
    return await respond(request, "onward.html", title=title, address=address)


def begin(
    request: web.Request, response: web.Response, actor: str, role: Role, user: ProviderUser | None = None
) -> None:
    """Begin a session, and give its cookie with a response."""
    administration, sessions = request.app[SITE].administration, request.app[SITE].sessions
    administration.audited(SIGNED_IN, actor, administration.client_address(request), 200)
    # A session from before the sign-in must not be taken over.
    sessions.end(request.cookies.get(COOKIE, ""))
    response.set_cookie(
        COOKIE,
        sessions.begin(actor, role, user),
        path=PREFIX,
        httponly=True,
        samesite="Strict",
        # TLS may end at a proxy before the listener: browsers name the origin of a form.
        secure=request.secure
        or request.headers.get("Origin", "").startswith("https://")
        or (user is not None and user.settings.uses_https),
    )


def role_of(site: Site, token_sha256: str) -> Role | None:
    """Return the role of a token by its SHA-256 in hexadecimal digits; None for an unknown one."""
    known = [(site.administration.token_sha256, Role.OPERATOR)]
    if site.viewer_token_sha256 is not None:
        known.append((site.viewer_token_sha256, Role.VIEWER))
    roles = [role for sha256, role in known if hmac.compare_digest(token_sha256, sha256.lower())]
    return max(roles, default=None)


def target_of(text: str) -> str:
    """Return the page after the sign-in: only one of the console."""
    path = re.split("[?#]", text, maxsplit=1)[0]
    # Browsers read `%2e%2e` as `..`.
    has_dots = any(unquote(segment) in DOTS for segment in path.split("/"))
    is_inside = text.startswith(f"{PREFIX}/") and "\\" not in text and text.isprintable() and not has_dots
    is_page = (
        not text.startswith(f"{PREFIX}/sign-") and len(text.encode("utf-8", "replace")) <= MAX_TARGET_BYTES
    )
    return text if is_inside and is_page else f"{PREFIX}/"
