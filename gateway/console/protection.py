"""Protects the pages of the console: sessions, roles, forms of other sites, and the headers of every answer.

A page is for signed-in users unless it is one of `PUBLIC`. A form is accepted if the browser says that it
comes from this site and if it has the token of the session, once.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from gateway.config.oidc import CALLBACK_PATH
from gateway.console.forms import form_of
from gateway.console.rendering import redirect, respond
from gateway.console.sessions import COOKIE, Session
from gateway.console.site import SESSION, SILENT, SITE
from gateway.governance.recipient_records import ChangedMeanwhile, RecipientExists
from gateway.web.connections import authenticated
from gateway.web.context import next_id
from gateway.web.error_response import error_answer

PREFIX = "/console"
SIGN_IN, SIGN_OUT = f"{PREFIX}/sign-in", f"{PREFIX}/sign-out"
PROVIDER_SIGN_IN = f"{SIGN_IN}/provider"
PUBLIC = frozenset({SIGN_IN, PROVIDER_SIGN_IN, CALLBACK_PATH, f"{PREFIX}/style.css", f"{PREFIX}/icon.svg"})
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Not `no-referrer`, with which browsers hide the origin of a form.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
SAFE_METHODS = frozenset({"GET", "HEAD"})
TITLES = {
    400: "Not accepted",
    403: "Not allowed",
    404: "Not found",
    405: "Not allowed",
    409: "Not done",
    413: "Too large",
    429: "Too many attempts",
    503: "Not available",
}


class Refused(Exception):
    """Raised for a request that the console does not carry out; the text is for the user."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@web.middleware
async def add_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Add the headers that every answer of the console has."""
    # The requests of a connection have one context.
    SILENT.set(0)
    response = await handler(request)
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer any exception by a page."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return await _page(request, error.status, error.reason)
    except Refused as error:
        return await _page(request, error.status, str(error))
    except Exception as error:  # noqa: BLE001 - each exception has an answer
        answer = error_answer(error, next_id())
        return await _page(request, answer.status, answer.message)


@web.middleware
async def answer_conflicts(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer that a name is taken or a page is out of date, before the admin API does so by JSON."""
    try:
        return await handler(request)
    except (ChangedMeanwhile, RecipientExists) as error:
        raise Refused(409, str(error)) from None


@web.middleware
async def require_session(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer signed-in users alone, and forms only if they are of this site and of the session."""
    session = find_session(request)
    if session is not None:
        request[SESSION] = session
        authenticated(request)
    if request.method not in SAFE_METHODS and not is_of_this_site(request):
        raise Refused(403, "The form was sent by another site.")
    if request.path in PUBLIC:
        return await handler(request)
    if session is None:
        target = request.path_qs if request.method in SAFE_METHODS else f"{PREFIX}/"
        return redirect(sign_in_url(target))
    if request.method in SAFE_METHODS:
        return await handler(request)
    number = await _require_form(request, session)
    if request.path == SIGN_OUT:
        return await handler(request)
    page = await session.forms.page(number, request.path, lambda: handler(request))
    if page is None:
        raise Refused(409, "The form was sent before, and is not carried out twice. Open its page again.")
    # Each request has a response of its own.
    return web.Response(status=page.status, body=page.body, headers=page.headers)


def find_session(request: web.Request) -> Session | None:
    """Return the session of a request. One that began by settings of a provider that changed ends here."""
    site, value = request.app[SITE], request.cookies.get(COOKIE, "")
    session = site.sessions.find(value)
    if session is not None and session.user is not None and session.user.settings != site.oidc:
        site.sessions.end(value)
        return None
    return session


async def _require_form(request: web.Request, session: Session) -> str:
    """Return the number of a form. Raises Refused unless it is of this session, by a user who may send it."""
    form = await form_of(request)
    token, number = form.get("token", ""), form.get("form", "")
    if not hmac.compare_digest(token.encode("utf-8", "replace"), session.form_token.encode()):
        raise Refused(403, "The form is not of this session. Open its page again.")
    if request.path != SIGN_OUT and not session.may_change:
        raise Refused(403, "You are signed in to look. Changes need the role of an operator.")
    return number


def is_of_this_site(request: web.Request) -> bool:
    """Return whether a form comes from a page of this site, as far as the browser says."""
    fetched_from = request.headers.get("Sec-Fetch-Site")
    if fetched_from is not None:
        return fetched_from == "same-origin"
    try:
        site = urlsplit(request.headers.get("Origin", "")).netloc
    except ValueError:
        # No browser states it, such as `http://[`.
        return False
    # Without an origin a form is of no site, also where the request names no host.
    return site != "" and site == request.host


def sign_in_url(target: str) -> str:
    """Return the address of the page to sign in, which leads on to a page of the console."""
    return str(URL(SIGN_IN).with_query(next=target))


async def _page(request: web.Request, status: int, message: str) -> web.Response:
    title, back = TITLES.get(status, "Failed"), ""
    if request.method not in SAFE_METHODS and request.path.startswith(f"{PREFIX}/recipients"):
        # The page of the form, without the action.
        back = "/".join(request.rel_url.raw_path.split("/")[:4])
    return await respond(request, "message.html", title=title, message=message, back=back, status=status)
