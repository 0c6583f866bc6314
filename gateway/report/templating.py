"""The environment of HTML templates, the same for reports, the console and public pages."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gateway.report.text import printable

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def html_environment(package: str) -> Environment:
    """Return an environment for the templates of a package, which escapes every value."""
    # Slow to import, and only a page needs it.
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )


def _finalized(value: object) -> object:
    """Replace invisible characters in a text that a template writes. Markup of templates is unchanged."""
    return printable(value) if type(value) is str else value
