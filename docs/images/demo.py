"""Draws `demo.svg`, the terminal session of the README, from the output of the demo.

    python docs/images/demo.py

Runs `delta-gateway demo --once` for its rows, and `delta-gateway demo` for its introduction. A test draws the
session again from what the commands print.
"""

import os
import pty
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from gateway.demo.command import Demo, introduction

IMAGE = Path(__file__).with_suffix(".svg")
DIRECTORY, PORT = Path("/tmp/demo"), 8080  # noqa: S108 - as the README's reader would name it
COLUMNS, ROWS = 96, 26
CELL, LINE, MARGIN, BAR = 8.0, 18, 14, 30
SECONDS_A_LINE, SECONDS_A_COMMAND, SECONDS_AT_THE_END = 0.07, 1.2, 8.0
PROMPT = "$ "
LABEL = "Terminal: delta-gateway demo prints the rows of three shared tables, and how to read them"
STYLE = """\
text {font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d6deeb;
  white-space: pre}
.command {fill: #8fd694; font-weight: 600}"""
BUTTONS = '<circle cx="20" cy="16" r="5"/><circle cx="38" cy="16" r="5"/><circle cx="56" cy="16" r="5"/>'


def main() -> None:
    """Draw the image."""
    once = on_a_terminal([sys.executable, "-P", "-m", "gateway", "demo", "--once"])
    IMAGE.write_text(svg(session(once)), encoding="utf-8")


def on_a_terminal(command: Sequence[str], **options: Any) -> str:
    """Return what a command prints on a terminal. `options`: those of `Popen`."""
    terminal, standard_output = pty.openpty()
    output = b""
    try:
        with subprocess.Popen(command, stdout=standard_output, **options) as process:  # noqa: S603
            os.close(standard_output)
            # On Linux the output of a terminal that nobody has open any more ends with an error.
            with suppress(OSError):
                while part := os.read(terminal, 65536):
                    output += part
    finally:
        os.close(terminal)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args, output)
    return output.decode().replace("\r\n", "\n")


def session(once: str) -> list[str]:
    """Return the lines of the session: the rows of the shared tables, then what the demo prints."""
    demo = Demo(PORT, DIRECTORY / "gateway.yaml", DIRECTORY / "demo.share", token="")
    commands = (("delta-gateway demo --once", once), ("delta-gateway demo", introduction(demo)))
    lines = []
    for command, output in commands:
        lines += [f"{PROMPT}{command}", *output.splitlines()]
    return [part for line in lines for part in wrapped(line)]


def wrapped(line: str) -> list[str]:
    """Return the parts of a line that a terminal shows below each other."""
    parts, width = [""], 0
    for character in line:
        width += cells(character)
        if width > COLUMNS:
            parts.append("")
            width = cells(character)
        parts[-1] += character
    return parts


def svg(lines: Sequence[str]) -> str:
    """Return the image. Without animation it shows the last lines."""
    width = COLUMNS * CELL + 2 * MARGIN
    height = BAR + ROWS * LINE + MARGIN
    scrolled = max(0, len(lines) - ROWS)
    times = [*appearances(lines)]
    duration = times[-1] + SECONDS_AT_THE_END
    text = "\n".join(line_of(number, line) for number, line in enumerate(lines))
    shown = "\n".join(
        f"@keyframes l{number} {{0%, {percent(time, duration)} {{opacity: 0}} "
        f"{percent(time + 0.01, duration)}, 100% {{opacity: 1}}}} #l{number} {{animation-name: l{number}}}"
        for number, time in enumerate(times)
    )
    steps = "\n".join(
        f"{percent(times[ROWS + number - 1], duration)} {{transform: translateY({-number * LINE}px)}}"
        for number in range(1, scrolled + 1)
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img" aria-label="{LABEL}">
<!-- python docs/images/demo.py -->
<style>
{STYLE}
#lines {{transform: translateY({-scrolled * LINE}px)}}
@media (prefers-reduced-motion: no-preference) {{
#lines, #lines text {{animation-duration: {duration:g}s; animation-iteration-count: infinite;
  animation-timing-function: step-end}}
#lines {{animation-name: scroll}}
@keyframes scroll {{0% {{transform: translateY(0px)}} {steps}
  100% {{transform: translateY({-scrolled * LINE}px)}}}}
{shown}
}}
</style>
<clipPath id="screen"><rect x="0" y="{BAR}" width="{width:g}" height="{ROWS * LINE + 4}"/></clipPath>
<rect width="{width:g}" height="{height}" rx="8" fill="#11161f"/>
<g fill="#3a4454">{BUTTONS}</g>
<g clip-path="url(#screen)"><g id="lines">
{text}
</g></g>
</svg>
"""


def line_of(number: int, line: str) -> str:
    """Return the text element of a line. Each run of equally wide characters has its place and length."""
    runs, column = [], 0
    for wide, group in groupby(line, key=cells):
        characters = "".join(group)
        length = wide * len(characters)
        if characters.strip():
            place = f'x="{MARGIN + column * CELL:g}" textLength="{length * CELL:g}"'
            runs.append(f"<tspan {place}>{escape(characters)}</tspan>")
        column += length
    kind = ' class="command"' if line.startswith(PROMPT) else ""
    return f'<text id="l{number}"{kind} y="{BAR + (number + 1) * LINE - 4}">{"".join(runs)}</text>'


def appearances(lines: Sequence[str]) -> Iterator[float]:
    """Iterate over the seconds at which lines appear; the output comes some time after its command."""
    time = 0.4
    for line in lines:
        yield time
        time += SECONDS_A_COMMAND if line.startswith(PROMPT) else SECONDS_A_LINE


def percent(time: float, duration: float) -> str:
    """Return a time as a keyframe."""
    return f"{time / duration * 100:.2f}%"


def cells(character: str) -> int:
    """Return the number of a terminal's columns of a character."""
    return 1 + (unicodedata.east_asian_width(character) in {"F", "W"})


if __name__ == "__main__":
    main()
