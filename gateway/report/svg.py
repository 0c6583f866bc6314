"""Converts matplotlib figures to SVG for a page: without pyplot, dates, fixed ids and fixed colours.

A figure is drawn with placeholder colours, which become CSS variables of the page. A fixed salt and
matplotlib's defaults make the text of a figure reproducible.
"""

import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gateway.report.text import printable

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

TEXT, MUTED, GRID, BAD = "#010101", "#010102", "#010103", "#010104"
SERIES = 6

_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_VARIABLES = {
    TEXT: "var(--text)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    BAD: "var(--bad)",
    **{f"#0201{number:02x}": f"var(--series-{number})" for number in range(SERIES)},
}
_PLACEHOLDER = re.compile("|".join(_VARIABLES))
_FONT_FAMILY = re.compile(r"font-family: [^;]*; ?")
_TOOLTIP = "tooltip:"
# matplotlib writes its name, its version and the date unless these are None.
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


def series_colour(number: int) -> str:
    """The placeholder of a series' colour."""
    return f"#0201{number % SERIES:02x}"


def series_variable(number: int) -> str:
    """The CSS variable of a series' colour."""
    return _VARIABLES[series_colour(number)]


@contextmanager
def drawing(width: float, height: float, salt: str) -> Iterator["Figure"]:
    """A figure of a size in CSS pixels, drawn with matplotlib's defaults instead of the machine's settings.

    `salt` makes the ids of the figures of a page different.
    """
    import matplotlib as mpl  # noqa: PLC0415 - takes long to import; only a page needs it
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": salt})
        # The browser draws the text, so matplotlib's font needs no glyph for it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        # A point of matplotlib is a pixel of the SVG.
        yield Figure(figsize=(width / 72, height / 72), dpi=72, frameon=False)


def set_tooltip(artist: "Artist", text: str) -> None:
    """Show a text while the pointer is over an artist."""
    artist.set_gid(_TOOLTIP + printable(text))


def finished(figure: "Figure", label: str) -> str:
    """The SVG element of a figure. `label` is its accessible name."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    # The text is matplotlib's, so it has no entities to expand.
    root = ET.fromstring(buffer.getvalue())  # noqa: S314
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", printable(label))
    used = {element.attrib[_LINK] for element in root.iter() if _LINK in element.attrib}
    for parent in root.iter():
        for style in parent.findall(f"{{{_SVG}}}defs/{{{_SVG}}}style/.."):
            parent.remove(style)
    for element in list(root.iter()):
        _simplify(element, used)
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)


def _simplify(element: ET.Element, used: set[str]) -> None:
    """Remove attributes that the page does not use, and take its colours and fonts."""
    # SVG in HTML needs no namespace; without a namespace no prefix is written.
    element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
    attributes = element.attrib
    name = attributes.pop("id", "")
    if f"#{name}" in used:
        attributes["id"] = name
    if name.startswith(_TOOLTIP):
        title = ET.Element("title")
        title.text = name.removeprefix(_TOOLTIP)
        element.insert(0, title)
    if _LINK in attributes:
        attributes["href"] = attributes.pop(_LINK)
    if "d" in attributes:
        attributes["d"] = " ".join(attributes["d"].split())
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    if "style" in attributes:
        style = _FONT_FAMILY.sub("", attributes["style"])
        attributes["style"] = _PLACEHOLDER.sub(lambda match: _VARIABLES[match[0]], style)
    for part in (element, *element):
        if part.tag not in {"text", "title"} and not (part.text or "").strip():
            part.text = None
        part.tail = None
