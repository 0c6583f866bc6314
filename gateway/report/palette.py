"""The colours of pages and plots as CSS variables, for light and dark."""

from collections.abc import Mapping

LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "text": "#1f2328",
    "muted": "#59636e",
    "grid": "#d9dee3",
    "raised": "#f4f6f8",
    "good": "#17692f",
    "bad": "#b3261e",
    "link": "#0b57d0",
    "series-0": "#2a6fb8",
    "series-1": "#c4570a",
    "series-2": "#1a7f5a",
    "series-3": "#8247c9",
    "series-4": "#9a6b00",
    "series-5": "#b8336a",
}
DARK: Mapping[str, str] = {
    "page": "#15181c",
    "text": "#e3e6ea",
    "muted": "#a2abb5",
    "grid": "#363d45",
    "raised": "#20252b",
    "good": "#6dd58c",
    "bad": "#ff8a80",
    "link": "#8ab4f8",
    "series-0": "#6cb0f5",
    "series-1": "#f59b57",
    "series-2": "#56c99a",
    "series-3": "#bd9bf2",
    "series-4": "#dcb64e",
    "series-5": "#f28bb1",
}


def declarations(colours: Mapping[str, str]) -> str:
    """The colours as declarations of CSS variables."""
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
