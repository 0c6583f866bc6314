"""The plots of the performance page equal those drawn from its tables."""

import importlib

import pytest
from support.documentation import DOCS, page
from tools import ROOT


@pytest.fixture
def plots(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("page_plots")


def test_the_profile_adds_up_to_the_figures_of_the_page(plots) -> None:
    stacks = plots.profile(page("performance"))
    assert {name: round(sum(parts.values()) * 1e9) for name, parts in stacks.items()} == {
        "hot": 360,
        "cold": 900,
    }


def test_the_stored_plot_shows_the_table_of_the_page(plots) -> None:
    kept = (DOCS / "images/profile.svg").read_text(encoding="utf-8")
    assert kept == plots.profile_svg(page("performance")), "run: python bench/page_plots.py"
