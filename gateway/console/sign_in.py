"""Signs users in and out.

A token of the admin API signs in an operator, and the viewer token of the configuration signs in a viewer.
Failed attempts are limited by address.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.config.networks import parse_address
from gateway.console.forms import form_of
from gateway.console.protection import PREFIX, SIGN_IN, Refused
from gateway.console.rendering import redirect, respond
from gateway.console.sessions import COOKIE, Role
from gateway.console.site import SITE
from gateway.limits.admission import LimitExceeded
from gateway.limits.attempts import network_of

if TYPE_CHECKING:
    from gateway.console.site import Site

log = logging.getLogger("gateway.admin")

ATTEMPT = "console"
"""The id by which failed attempts of an address are counted."""


async def form(request: web.Request) -> web.Response:
    """Answer the page to sign in."""
    return await respond(request, "sign_in.html", target=_target(request.query.get("next", "")), failed=False)


async def sign_in(request: web.Request) -> web.Response:
    """Begin a session by a token."""
    site, sent = request.app[SITE], await form_of(request)
    token, target = sent.get("secret", "").strip(), _target(sent.get("next", ""))
    digest = hashlib.sha256(token.encode("utf-8", "surrogatepass"))
    address = request.remote or ""
    client = network_of(parse_address(address))
    try:
        site.attempts.check(client, ATTEMPT, digest.digest())
    except LimitExceeded:
        raise Refused(429, "Too many attempts have failed. Wait a while and try again.") from None
    role = role_of(site, digest.hexdigest())
    if role is None:
        site.attempts.failed(client, ATTEMPT)
        site.administration.count_refused()
        log.warning("a sign-in to the console without a valid token: from %s", address)
        return await respond(request, "sign_in.html", status=401, target=target, failed=True)
    site.attempts.succeeded(client, ATTEMPT, digest.digest())
    return begin(request, f"console:{role.name.lower()}:{address}", role, target)


async def sign_out(request: web.Request) -> web.Response:
    """End the session."""
    request.app[SITE].sessions.end(request.cookies.get(COOKIE, ""))
    response = redirect(SIGN_IN)
    response.del_cookie(COOKIE, path=PREFIX)
    return response


def begin(request: web.Request, actor: str, role: Role, target: str) -> web.Response:
    """Begin a session, and lead on to a page."""
    log.info("%s signs in to the console", actor)
    site = request.app[SITE]
    # A session from before the sign-in must not be taken over.
    site.sessions.end(request.cookies.get(COOKIE, ""))
    response = redirect(target)
    response.set_cookie(
        COOKIE,
        site.sessions.begin(actor, role),
        path=PREFIX,
        httponly=True,
        samesite="Strict",
        # A proxy that ends TLS before the listener takes the cookie from plain HTTP.
        secure=request.secure,
    )
    return response


def role_of(site: Site, token_sha256: str) -> Role | None:
    """Return the role of a token by its SHA-256 in hexadecimal digits; None for an unknown one."""
    known = [(site.administration.token_sha256, Role.OPERATOR)]
    if site.viewer_token_sha256 is not None:
        known.append((site.viewer_token_sha256, Role.VIEWER))
    found = [role for sha256, role in known if hmac.compare_digest(token_sha256, sha256.lower())]
    return max(found, default=None)


def _target(text: str) -> str:
    """Return the page after the sign-in: only one of the console."""
    is_inside = text.startswith(f"{PREFIX}/") and "\\" not in text and text.isprintable()
    return text if is_inside and not text.startswith(f"{PREFIX}/sign-") else f"{PREFIX}/"
