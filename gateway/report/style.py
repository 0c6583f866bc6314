"""The style sheet and the icon of the console and of public pages."""

from __future__ import annotations

from gateway.report.palette import DARK, LIGHT, declarations
from gateway.report.templating import html_environment


def style_sheet() -> str:
    """Return the style sheet: the colours and tables of report pages, and the rules of pages."""
    light, dark = (declarations(colours) for colours in (LIGHT, DARK))
    templates = (html_environment("gateway.report").get_template(name) for name in ("page.css", "pages.css"))
    return "".join(template.render(light=light, dark=dark) for template in templates)


def icon() -> str:
    """Return the icon of the pages, as SVG."""
    return html_environment("gateway.report").get_template("icon.svg").render(colour=LIGHT["series-0"])
