"""The benches' answers, never their seconds: every kind of checkpoint, cold and hot, in both formats."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import html5lib
import pytest
from run import ROOT


@pytest.mark.timeout(900)
def test_answers_with_a_hundred_thousand_files_are_complete_and_correct(tmp_path: Path) -> None:
    command = [sys.executable, "bench/run.py", "--short", "--logs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "answers are right"


def test_the_results_of_a_run_become_one_page_with_every_bar_and_curve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    report = importlib.import_module("report")

    def answer(seconds: float) -> dict[str, float]:
        return {"us_per_file": 1.5, "seconds": seconds, "peak_above_idle_mb": 50 * seconds}

    def measured(adds: int, seconds: float) -> dict[str, Any]:
        return {
            "adds": adds,
            "results": {"cold parquet": answer(seconds), "hot parquet": answer(seconds / 2)},
        }

    results = measured(1_000_000, 1.25)
    results["results"][report.STAGES] = {"hot": {"lines": 0.5, "<HTTP>": 0.25}, "cold": {"decode": 0.5}}
    results["results"]["ours against a peer"] = {"first": 1.0, "second": 2.0, "ratio": 0.5, "pairs": 9}
    results |= {"machine": {"cpu": "a & b"}, "sizes": [measured(10_000, 0.01), measured(100_000, 0.1)]}
    page = report.write_report(results | {"large": measured(10_000_000, 12.5)})
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    figures = {figure.findtext("figcaption"): figure for figure in parser.parse(page).iter("figure")}
    curves = figures["Time of a full answer over files"]
    assert len(curves.findall(".//{*}use")) == 8
    labels = [text.text for text in curves.iter("{http://www.w3.org/2000/svg}text")]
    assert labels == ["10 k", "100 k", "1 M", "10 M", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"]
    assert all(said in page for said in ("10,000,000", "ours against a peer", "a &amp; b", "&lt;HTTP&gt;"))
    assert "not measured" in page


def test_a_missed_bar_is_first_on_the_page_with_an_action(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    report = importlib.import_module("report")
    answer = {"us_per_file": 2.123456789012, "seconds": 1.0, "peak_above_idle_mb": 50}
    results = {"cold parquet": answer, "cold delta": answer}
    page = report.write_report({"adds": 1000, "machine": {}, "results": results})
    assert "1 of 24 bars missed, 22 not measured." in page
    assert page.index("2.12 µs; the bar is under 2 µs.") < page.index("<table")
    assert "To do: run the bench again" in page
    assert not re.search(r">[^<]*\d\.\d{4,}", page)
