"""The style sheet and the icon of the console and of public pages."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gateway.report.palette import DARK, LIGHT, declarations

if TYPE_CHECKING:
    from jinja2 import Environment


def style_sheet() -> str:
    """Return the style sheet: the colours and tables of report pages, and the rules of pages."""
    light, dark = (declarations(colours) for colours in (LIGHT, DARK))
    reports = _environment("gateway.report").get_template("page.css").render(light=light, dark=dark)
    return reports + _environment("gateway.pages").get_template("pages.css").render()


def icon() -> str:
    """Return the icon of the pages, as SVG."""
    return _environment("gateway.pages").get_template("icon.svg").render(colour=LIGHT["series-0"])


@cache
def _environment(package: str) -> Environment:
    # Slow to import, and only a page needs it.
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    # Sheets and icons hold numbers and colours of this program alone.
    return Environment(loader=PackageLoader(package), undefined=StrictUndefined)  # noqa: S701
