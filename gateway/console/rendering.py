"""Fills in the templates of the console.

In: the name of a template and its values. Out: an HTML page, made on a thread. Every value is escaped, and
invisible characters and those that reorder text are shown as symbols.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from aiohttp import web

from gateway.access.grants import place_text
from gateway.console.sessions import Session
from gateway.console.site import SESSION, SITE
from gateway.report.palette import DARK, LIGHT, declarations
from gateway.report.templating import html_environment
from gateway.report.text import shortened
from gateway.report.units import BYTES, COUNT, SECONDS

if TYPE_CHECKING:
    from jinja2 import Environment

MILLISECONDS = 1000
MINUTE, HOUR, DAY, MONTH, YEAR = 60, 3600, 86_400, 2_629_746, 31_556_952
SOON_SECONDS = 14 * DAY
"""Credentials that end within this time are shown in red."""
NEVER = "never"
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
    now_ms = request.app[SITE].now_ms()
    text = await asyncio.to_thread(_render, template, session, request.path, now_ms, values)
    return web.Response(text=text, status=status, content_type="text/html")


def redirect(target: str) -> web.Response:
    """Lead on to a page, which is fetched by GET."""
    return web.Response(status=303, headers={"Location": target})


def style_sheet() -> str:
    """Return the style sheet: the colours and tables of report pages, and the rules of the console."""
    light, dark = (declarations(colours) for colours in (LIGHT, DARK))
    pages = _report_environment().get_template("page.css").render(light=light, dark=dark)
    return pages + _environment().get_template("console.css").render()


def icon() -> str:
    """Return the icon of the pages, as SVG."""
    return _environment().get_template("icon.svg").render(colour=LIGHT["series-0"])


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
    }
    return environment


@cache
def _report_environment() -> Environment:
    # Slow to import, and only a page needs it.
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    # The sheet holds numbers and colours of this program alone.
    return Environment(loader=PackageLoader("gateway.report"), undefined=StrictUndefined)  # noqa: S701


def moment(time_ms: int | None) -> str:
    """Return a time to the second, in UTC."""
    if time_ms is None:
        return NEVER
    try:
        at = dt.datetime.fromtimestamp(time_ms / MILLISECONDS, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return "beyond the calendar"
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def ago(time_ms: int | None, now_ms: int) -> str:
    """Return how long ago a time was."""
    if time_ms is None:
        return NEVER
    return f"{span(max(0.0, (now_ms - time_ms) / MILLISECONDS))} ago"


def left(time_ms: int | None, now_ms: int) -> str:
    """Return the time that is left until an end."""
    if time_ms is None:
        return NEVER
    seconds = (time_ms - now_ms) / MILLISECONDS
    return f"in {span(seconds)}" if seconds > 0 else "ended"


def is_soon(time_ms: int | None, now_ms: int) -> bool:
    """Return whether an end is near or has passed."""
    return time_ms is not None and time_ms - now_ms < SOON_SECONDS * MILLISECONDS


def span(seconds: float) -> str:
    """Return a duration in its largest unit."""
    for length, name in ((YEAR, "year"), (MONTH, "month"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
        if seconds >= 2 * length or (seconds >= length and length != MONTH):
            number = int(seconds // length)
            return f"{number} {name}{'s' if number != 1 else ''}"
    return f"{int(seconds)} s"
