"""A page of sections as one HTML file."""

import datetime as dt
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.report.palette import DARK, LIGHT, declarations
from gateway.report.parts import Section
from gateway.report.templating import html_environment

_LIBRARIES = ("jinja2", "matplotlib")


class ReportUnavailable(ImportError):
    """Raised when a library that pages need is not installed."""


def check_libraries() -> None:
    """Raise ReportUnavailable unless Jinja2 and matplotlib are installed; neither is imported."""
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise ReportUnavailable(
            f"a report page needs {' and '.join(missing)}: pip install 'delta-sharing-gateway[spark]'"
        )


@dataclass(frozen=True)
class Page:
    """A title, a summary of one sentence, and sections.

    `good`: whether the summary reports success; None for a page that reports neither success nor failure.
    """

    title: str
    summary: str
    good: bool | None
    sections: Sequence[Section] = field(default=())
    run_at: dt.datetime | None = None

    def html(self) -> str:
        """The HTML document. Raises ReportUnavailable."""
        check_libraries()
        run_at = None if self.run_at is None else f"{self.run_at:%Y-%m-%d %H:%M} UTC"
        light, dark = (declarations(colours) for colours in (LIGHT, DARK))
        template = html_environment("gateway.report").get_template("page.html")
        return template.render(page=self, run_at=run_at, light=light, dark=dark)
