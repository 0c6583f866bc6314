"""Tables for a terminal: each line is as wide as the others, and each row is one line."""

import pytest

from gateway.cli.text_table import MAX_CELL_LENGTH, tabbed, text_table


def test_columns_have_the_width_of_their_longest_cell():
    rows = [
        {"table": "demo.default.cities", "version": 1, "files": None},
        {"table": "東京", "version": None, "files": 7},
    ]
    assert text_table(rows) == (
        "┌─────────────────────┬─────────┬───────┐\n"
        "│ table               ┆ version ┆ files │\n"
        "╞═════════════════════╪═════════╪═══════╡\n"
        "│ demo.default.cities ┆ 1       ┆ null  │\n"
        "│ 東京                ┆ null    ┆ 7     │\n"
        "└─────────────────────┴─────────┴───────┘\n"
    )


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("two\nlines", "two lines"),
        ("x" * 500, "x" * MAX_CELL_LENGTH + "…"),
        (True, "True"),
        ("\x1b[31mred\x9b\u202e\x07", "\u241b[31mred\ufffd\ufffd\u2407"),
        ("Zu\u0308rich", "Zu\u0308rich"),
    ],
)
def test_a_cell_is_one_line_of_bounded_length(value, cell):
    lines = text_table([{"a": value}]).splitlines()
    assert lines[3] == f"│ {cell} │"
    assert len(lines) == 5


def test_other_programs_get_whole_cells_between_tabs() -> None:
    rows = [{"table": "a\tb\nc\x1b[m", "files": None}, {"table": "x" * 500, "files": 7}]
    assert tabbed(rows) == f"table\tfiles\na b c\u241b[m\tnull\n{'x' * 500}\t7\n"
