"""Untrusted names are shown with visible characters only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.report.text import printable, shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("nul\x00 escape\x1b[31m delete\x7f", "nul\u2400 escape\u241b[31m delete\u2421"),
        ("a\u202egpj.exe", "a\ufffdgpj.exe"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ("\u05e9\u05dc\u05d5\u05dd", "\u05e9\u05dc\u05d5\u05dd"),
        ("\U0001f600", "\U0001f600"),
    ],
)
def test_a_character_that_hides_or_reorders_text_is_replaced(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(categories=None)))
def test_a_printable_text_can_be_written_to_a_file(text: str) -> None:
    assert len(printable(text).encode()) >= len(text)


def test_a_long_name_keeps_both_ends() -> None:
    assert shortened("share.schema.table", 18) == "share.schema.table"
    assert shortened("share.schema.table_1", 11) == "share\N{HORIZONTAL ELLIPSIS}ble_1"
    assert shortened("two\nlines", 20) == "two lines"


@given(st.text(), st.integers(1, 80))
def test_a_shortened_name_fits(text: str, most: int) -> None:
    assert len(shortened(text, most)) <= most
