"""Signs users in by an identity provider: the way to it, and the answer with which it leads the browser back.

Whatever fails is said on the page to sign in, where tokens keep working.
"""

from __future__ import annotations

import hmac
import logging

from aiohttp import web
from yarl import URL

from gateway.config import ConsoleOidc
from gateway.console.identities import identity_of
from gateway.console.protection import SIGN_IN, sign_in_url
from gateway.console.rendering import redirect
from gateway.console.sessions import ProviderUser
from gateway.console.sign_in import SIGNED_IN, begin, onward_page, sign_in_page, target_of
from gateway.console.site import SITE
from gateway.errors import NotFound
from gateway.limits.admission import LimitExceeded
from gateway.limits.attempts import TOO_MANY, network_of
from gateway.oidc.sign_in_flow import (
    FLOW_SECONDS,
    SignInFailed,
    SignInFlow,
    cookie_name,
    delete_cookie,
    set_cookie,
)

log = logging.getLogger("gateway.admin")

ATTEMPT = "console provider"
"""The id by which failed codes of an address are counted."""
REFUSED = 400
"""The status for a code that the provider refuses. A provider that is down is no attempt of the user."""
UNAVAILABLE = 500
"""From this status on the provider has failed, and not its user."""
MAX_ANSWER_LENGTH = 4096
DENIED = "The identity provider did not let you in. Sign in again, or with another account."
NOT_BEGUN = (
    "This browser began no sign-in in the last {minutes} minutes at this address. Sign in at {address}."
)
FAILED_THERE = (
    "The identity provider answers with an error. Try again, or sign in with a token. The log of the server "
    "has the error."
)
DONE = "You are signed in"


async def start(request: web.Request) -> web.Response:
    """Lead a browser to the identity provider."""
    site, settings = request.app[SITE], _settings(request)
    target = target_of(request.query.get("next", ""))
    if request.headers.get("Sec-Fetch-Site", "none") not in {"same-origin", "none"}:
        # A page of another site does not begin it.
        return redirect(sign_in_url(target))
    flow = SignInFlow(target)
    try:
        provider = await site.provider.get(settings)
        response = redirect(await provider.sign_in_url(flow))
    except SignInFailed as failed:
        return await _failed(request, settings, failed, target)
    set_cookie(response, settings, flow.seal(site.sealer, settings, now_ms=site.now_ms()))
    return response


async def callback(request: web.Request) -> web.Response:
    """Take the answer of the identity provider, and begin a session. It is taken once."""
    settings, target = _settings(request), ""
    try:
        flow = _flow(request, settings)
        target = flow.target
        response = await _signed_in(request, settings, flow)
    except SignInFailed as failed:
        response = await _failed(request, settings, failed, target_of(target))
    delete_cookie(response, settings)
    return response


async def _signed_in(request: web.Request, settings: ConsoleOidc, flow: SignInFlow) -> web.Response:
    site = request.app[SITE]
    provider = await site.provider.get(settings)
    await provider.check_issuer(_parameter(request, "iss"))
    code = _code(request)
    address = site.administration.client_address(request)
    client = network_of(address)
    try:
        with site.attempts.running(client, ATTEMPT):
            token = await provider.redeem(code, flow)
    except LimitExceeded:
        raise SignInFailed(429, TOO_MANY, "too many codes of the address were refused") from None
    except SignInFailed as failed:
        if failed.status == REFUSED:
            site.attempts.failed(client, ATTEMPT)
        raise
    identity = identity_of(settings, token.claims)
    log.info("%s signs in to the console: subject %s, from %s", identity.actor, identity.subject, address)
    response = await onward_page(request, DONE, flow.target)
    user = ProviderUser(settings, identity.name, token.hint)
    begin(request, response, identity.actor, identity.role, user)
    return response


def _flow(request: web.Request, settings: ConsoleOidc) -> SignInFlow:
    """Return the sign-in that this browser has begun and to which the answer belongs. Raises SignInFailed."""
    site, cookie = request.app[SITE], request.cookies.get(cookie_name(settings), "")
    flow = SignInFlow.open(site.sealer, settings, cookie, now_ms=site.now_ms())
    state = _parameter(request, "state") or ""
    if flow is None or not hmac.compare_digest(state.encode("utf-8", "replace"), flow.state.encode()):
        address = str(URL(settings.redirect_url).with_path(SIGN_IN))
        message = NOT_BEGUN.format(minutes=FLOW_SECONDS // 60, address=address)
        raise SignInFailed(400, message, "the browser did not begin it, or the time is over")
    return flow


def _code(request: web.Request) -> str:
    """Return the code of an answer. Raises SignInFailed for an answer with an error."""
    error, code = _parameter(request, "error"), _parameter(request, "code")
    if error == "access_denied":
        raise SignInFailed(403, DENIED, "the provider answers access_denied")
    if error is not None or not code:
        description = _parameter(request, "error_description") or ""
        # Of the provider, as the state shows; in ASCII it cannot begin another line of the log.
        reason = f"the provider answers {error!a}: {description!a}"
        raise SignInFailed(503, FAILED_THERE, reason[:500])
    return code


def _parameter(request: web.Request, name: str) -> str | None:
    """Return a parameter of an answer. Raises SignInFailed for one that is given twice or is too long."""
    values = request.query.getall(name, [])
    if len(values) > 1 or any(len(value) > MAX_ANSWER_LENGTH for value in values):
        raise SignInFailed(
            400, FAILED_THERE, f"the parameter {name} of the answer is given twice or is too long"
        )
    return values[0] if values else None


def _settings(request: web.Request) -> ConsoleOidc:
    settings = request.app[SITE].oidc
    if settings is None:
        raise NotFound("The console has no identity provider.")
    return settings


async def _failed(
    request: web.Request, settings: ConsoleOidc, failed: SignInFailed, target: str
) -> web.Response:
    # Who cannot sign in because the provider fails has guessed nothing.
    administration = request.app[SITE].administration
    if failed.status < UNAVAILABLE:
        administration.count_refused()
        address = administration.client_address(request)
        administration.audited(SIGNED_IN, "console", address, failed.status)
    log.warning(
        "a sign-in to the console by %s failed: %s: from %s",
        settings.issuer,
        failed.reason,
        administration.client_address(request),
    )
    return await sign_in_page(request, target, status=failed.status, problem=str(failed))
