"""`{endpoint}/activate`: the page on which a recipient gets a profile by a link, once.

The code of the link is behind its `#`, which browsers send to no server, so it is in no request line, log or
`Referer`. A GET changes nothing, as scanners of mail send it; the form sends the code in the body of a POST.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from urllib.parse import parse_qs

from gateway.authentication.sealed_tokens import Sealer
from gateway.background import forget_error
from gateway.catalog.catalog import Catalog, Recipient
from gateway.config import Config
from gateway.database.errors import DatabaseMissing
from gateway.errors import MalformedRequest, Unavailable
from gateway.governance.audited_database import open_database
from gateway.governance.recipient_records import (
    IssuedSecret,
    IssuedToken,
    LinkInvalid,
    RecipientError,
    profile_of,
)
from gateway.limits.admission import LimitExceeded
from gateway.limits.attempts import TOO_MANY, FailedAttempts, network_of
from gateway.protocol.profile import ACTIVATION, profile_text
from gateway.protocol.snippets import file_word, snippets
from gateway.report.style import icon, style_sheet
from gateway.report.templating import html_environment
from gateway.routes.activation_check import NO_TIME, READ_SECONDS, CheckStep, Credentials, check_profile
from gateway.state import GatewayState
from gateway.telemetry.audit import AuditLog
from gateway.web.context import RequestContext, Route
from gateway.web.request_body import read_body
from gateway.web.response import WholeResponse

log = logging.getLogger("gateway.recipients")

ATTEMPT = "activation"
ACTOR = "activation"
"""Who makes the change, in the history and in the audit log."""
MAX_FORM_BYTES, FORM_SECONDS = 4096, 10.0
FORM_BYTES = 12
"""Random bytes of a form's number."""
ACTIVATIONS_AT_ONCE, WAITING_ACTIVATIONS = 4, 64
NO_TABLE = ("<share>", "<share>.<schema>.<table>")
INVALID = "This link does not exist, was used already, or has ended. Ask the provider for another one."
CHANGED = (
    "A program has changed the link on its way: its # became %23, so the code was sent with the address. "
    "It is not used up. Get the profile now, or ask the provider for another link if somebody else may have "
    "seen the address."
)
BUSY = "The server cannot give the profile at the moment. The link is not used up: try again later."
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex",
}


class Activation:
    """The pages of activation, and the limits of their attempts."""

    def __init__(
        self,
        prefix: str,
        attempts: FailedAttempts,
        audit: AuditLog | None,
        now_ms: Callable[[], int],
        had_database: Callable[[], bool],
    ) -> None:
        """`attempts`: the budgets that all workers share. `had_database`: else there never was a link."""
        self._address, self._had_database = prefix + ACTIVATION, had_database
        self._audit = audit
        self._now_ms = now_ms
        self._attempts = attempts
        self._working = asyncio.Semaphore(ACTIVATIONS_AT_ONCE)
        self._waiting = 0

    def routes(self) -> list[Route]:
        """Return the route table."""
        address = self._address
        return [
            Route("GET", address, self.activation_page, is_public=True),
            Route("POST", address, self.activate, is_public=True),
            Route("GET", f"{address}#", self.changed_link_page, is_public=True),
            Route("GET", f"{address}.css", activation_style, is_public=True),
            Route("GET", f"{address}.js", activation_script, is_public=True),
            Route("GET", f"{address}.svg", activation_icon, is_public=True),
        ]

    async def activation_page(self, _context: RequestContext) -> WholeResponse:
        """Answer the page with the form, which needs no valid link."""
        return await self._page()

    async def changed_link_page(self, _context: RequestContext) -> WholeResponse:
        """Answer the page for a link whose `#` was sent as `%23`, with its code behind it."""
        return await self._page(CHANGED)

    async def activate(self, context: RequestContext) -> WholeResponse:
        """Give the profile of a link, once."""
        body = await read_body(context.request, FORM_SECONDS, MAX_FORM_BYTES)
        code, form = _fields_of(body)
        secret = _secret(context.state.sealer, form, code) if form else None
        address = network_of(context.address)
        if self._waiting >= WAITING_ACTIVATIONS:
            return await self._page(BUSY, status=503)
        self._waiting += 1
        attempt = asyncio.ensure_future(self._attempt(context.state.config, address, code, secret))
        attempt.add_done_callback(forget_error)
        try:
            # A thread goes on without its client: the attempt counts, and keeps its place until then.
            issued, recipient = await asyncio.shield(attempt)
        except LimitExceeded:
            return await self._page(TOO_MANY, status=429)
        except LinkInvalid:
            return await self._page(INVALID, status=404)
        except RecipientError as error:
            # Such as a recipient with the most clients that it may have.
            return await self._page(str(error), status=400)
        except (OSError, Unavailable):
            return await self._page(BUSY, status=503)
        steps = await self._checked(context, issued, recipient)
        return await asyncio.to_thread(self._profile_page, context.state, issued, recipient, steps)

    async def _attempt(
        self, config: Config, address: str, code: str, secret: str | None
    ) -> tuple[IssuedToken | IssuedSecret, Recipient]:
        try:
            async with self._working:
                with self._attempts.running(address, ATTEMPT):
                    return await asyncio.to_thread(self._activate, config, code, secret)
        except LinkInvalid:
            self._attempts.failed(address, ATTEMPT)
            raise
        finally:
            self._waiting -= 1

    async def _checked(
        self, context: RequestContext, issued: IssuedToken | IssuedSecret, recipient: Recipient
    ) -> list[CheckStep]:
        words = "a bearer token" if isinstance(issued, IssuedToken) else "OAuth client credentials"
        credentials = Credentials(words, issued.expires_ms)
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await check_profile(context.state, recipient, credentials, context.address)
        except TimeoutError:
            return [CheckStep("version", "fail", NO_TIME)]
        except Exception:
            # The link is used up, so the profile is given.
            log.exception("the profile of an activation link was not checked")
            return []

    def _activate(
        self, config: Config, code: str, secret: str | None
    ) -> tuple[IssuedToken | IssuedSecret, Recipient]:
        try:
            opened = open_database(config, ACTOR, now_ms=self._now_ms, audit=self._audit, create=False)
        except DatabaseMissing as error:
            raise (error if self._had_database() else LinkInvalid()) from None
        with closing(opened) as database:
            issued = database.activate(code, secret)
            try:
                record = database.show(issued.recipient)
            except OSError:
                # The link is used up, so the profile is given, with placeholders in its examples.
                return issued, Recipient(issued.recipient, frozenset())
        # A server without a database starts sooner.
        from gateway.governance.stored_recipients import recipient_of  # noqa: PLC0415

        return issued, recipient_of(record)

    async def _page(self, problem: str = "", *, status: int = 200) -> WholeResponse:
        form = secrets.token_urlsafe(FORM_BYTES)
        values = {"address": self._address, "profile": None, "problem": problem, "form": form}
        text = await asyncio.to_thread(lambda: _render(**values))
        return _html(text, status)

    def _profile_page(
        self,
        state: GatewayState,
        issued: IssuedToken | IssuedSecret,
        recipient: Recipient,
        steps: Sequence[CheckStep],
    ) -> WholeResponse:
        endpoint = state.config.endpoint_url
        has_token = isinstance(issued, IssuedToken)
        text, file = profile_text(profile_of(endpoint, issued)), f"{issued.recipient}.share"
        share, table = _first_table(state.catalog, recipient)
        page = _render(
            address=self._address,
            profile=text,
            data=base64.b64encode(text.encode()).decode(),
            file=file,
            word=file_word(file),
            steps=steps,
            snippets=snippets(file, endpoint, share, table, has_token=has_token),
        )
        return _html(page, 200)


def _first_table(catalog: Catalog, recipient: Recipient) -> tuple[str, str]:
    """Return a share and a table for examples: the first that is granted, else placeholders."""
    for share in catalog.shares_of(recipient):
        for table in catalog.share(recipient, share.name).tables():
            return share.name, table.full_name
    return NO_TABLE


async def activation_style(_context: RequestContext) -> WholeResponse:
    """Answer the style sheet."""
    return _kept(await asyncio.to_thread(style_sheet), "text/css")


async def activation_script(_context: RequestContext) -> WholeResponse:
    """Answer the script, which moves the code from the address into the form."""
    return _kept(
        await asyncio.to_thread(
            lambda: html_environment("gateway.routes").get_template("activation.js").render()
        ),
        "text/javascript",
    )


async def activation_icon(_context: RequestContext) -> WholeResponse:
    """Answer the icon."""
    return _kept(await asyncio.to_thread(icon), "image/svg+xml")


def _fields_of(body: bytes) -> tuple[str, str]:
    """Return the code of a form, and the number of the form. Raises MalformedRequest."""
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=4)
        code = fields.get("code", [""])[0].strip()
        form = fields.get("form", [""])[0]
        (code + form).encode()
    except (UnicodeError, ValueError):
        raise MalformedRequest("the body is no form") from None
    # As copied from the link, with all of it or with its sign.
    return code.rpartition("#")[2], form


def _secret(sealer: Sealer, form: str, code: str) -> str:
    """Return the secret that a form gives, on whichever worker or replica it is sent a second time."""
    made = hmac.digest(sealer.derived_keys(b"activation")[0], f"{form} {code}".encode(), "sha256")
    return base64.urlsafe_b64encode(made).rstrip(b"=").decode()


def _html(text: str, status: int) -> WholeResponse:
    headers = {"Content-Type": "text/html; charset=utf-8", **HEADERS}
    return WholeResponse(text.encode(), headers, status=status)


def _kept(text: str, content_type: str) -> WholeResponse:
    headers = {"Content-Type": f"{content_type}; charset=utf-8", **HEADERS, "Cache-Control": "max-age=300"}
    return WholeResponse(text.encode(), headers)


def _render(**values: object) -> str:
    template = html_environment("gateway.routes").get_template("activation.html")
    return template.render({"problem": "", **values})
