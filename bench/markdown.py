"""The figures of a run as tables of Markdown, for the results of the performance page."""

from collections.abc import Iterator, Sequence

from bars import Row, rows
from figures import GATEWAY, Figure, Results, unique
from scenarios import SETTINGS


def write_table(results: Results) -> str:
    """Return the machine and command, a table for each setting, and the bars."""
    machine = results.machine
    lines = [
        f"{results.date}, {machine['cores']} cores, {machine['cpu']}; {machine['versions']}.",
        "",
        "```",
        results.command,
        "```",
    ]
    for setting in SETTINGS:
        figures = list(results.of(setting))
        if figures:
            lines += ["", f"### {setting[0].upper()}{setting[1:]}", "", *setting_table(figures)]
    judged = [row for row in rows(results) if row.figure is not None]
    if judged:
        lines += ["", "### Bars", "", *bars_table(judged)]
    return "\n".join([*lines, ""])


def setting_table(figures: Sequence[Figure]) -> Iterator[str]:
    """The rows of a setting: a figure of the gateway or a peer, and a column for each number of files."""
    sizes = sorted({figure.files for figure in figures})
    yield table_row(["figure", *(f"{size:,} files" for size in sizes)])
    yield table_row(["---"] * (1 + len(sizes)))
    for scenario, subject, quantity in unique([_row_key(figure) for figure in figures]):
        values = {
            figure.files: figure for figure in figures if _row_key(figure) == (scenario, subject, quantity)
        }
        name = f"{scenario}: {quantity}" + ("" if subject == GATEWAY else f" ({subject})")
        yield table_row([name, *(values[size].text if size in values else "" for size in sizes)])


def bars_table(judged: Sequence[Row]) -> Iterator[str]:
    """The rows of the bars that the run measured."""
    yield table_row(["setting", "bar", "figure", "limit", ""])
    yield table_row(["---"] * 5)
    for row in judged:
        verdict = row.verdict if row.verdict != "MISSED" else f"**{row.verdict}**"
        yield table_row([row.bar.setting, row.bar.what, row.figure_text, row.bar.limit_text, verdict])


def table_row(cells: Sequence[str]) -> str:
    """Return one row; a vertical line in a cell is escaped."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _row_key(figure: Figure) -> tuple[str, str, str]:
    return figure.scenario, figure.subject, figure.quantity
