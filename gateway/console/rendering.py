"""Fills in the templates of the console.

In: the name of a template and its values. Out: an HTML page, made on a thread. Every value is escaped, and
invisible characters and those that reorder text are shown as symbols.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from aiohttp import web

from gateway.catalog.grants import place_text
from gateway.console.sessions import Session
from gateway.console.site import SESSION, SILENT, SITE
from gateway.limits.attempts import PAIR_SECONDS
from gateway.report.templating import html_environment
from gateway.report.text import shortened
from gateway.report.times import ago, is_soon, left, moment
from gateway.report.units import BYTES, COUNT, SECONDS
from gateway.telemetry.request_record import REFUSALS

if TYPE_CHECKING:
    from jinja2 import Environment

MENU = (
    ("/console/", "Overview"),
    ("/console/shares", "Shares"),
    ("/console/recipients", "Recipients"),
    ("/console/activity", "Activity"),
    ("/console/storages", "Storages"),
    ("/console/configuration", "Configuration"),
)


async def respond(request: web.Request, template: str, *, status: int = 200, **values: Any) -> web.Response:
    """Answer a request by a page."""
    session: Session | None = request.get(SESSION)
    site = request.app[SITE]
    now_ms = site.now_ms()
    values["audited"] = site.config().gateway.audit is not None
    values |= {"silent": SILENT.get(), "processes_in_all": site.workers}
    text = await asyncio.to_thread(_render, template, session, request.path, now_ms, values)
    # One attempt to sign in is forgiven in this time.
    headers = {"Retry-After": f"{PAIR_SECONDS:.0f}"} if status == HTTPStatus.TOO_MANY_REQUESTS else None
    return web.Response(text=text, status=status, content_type="text/html", headers=headers)


def redirect(target: str) -> web.Response:
    """Lead on to a page, which is fetched by GET."""
    return web.Response(status=303, headers={"Location": target})


def _render(template: str, session: Session | None, path: str, now_ms: int, values: dict[str, Any]) -> str:
    return (
        _environment()
        .get_template(template)
        .render(
            values, session=session, path=path, now_ms=now_ms, menu=MENU, form_number=secrets.token_urlsafe
        )
    )


@cache
def _environment() -> Environment:
    environment = html_environment("gateway.console")
    environment.filters |= {
        "count": COUNT.text,
        "size": BYTES.text,
        "duration": SECONDS.text,
        "moment": moment,
        "place": place_text,
        "segment": lambda text: quote(text, safe="", errors="replace"),
        "short": lambda text: shortened(text, 64),
        "ago": ago,
        "left": left,
        "is_soon": is_soon,
        "meaning": lambda reason: REFUSALS.get(reason, ""),
    }
    return environment
