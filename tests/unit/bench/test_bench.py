"""The benches' answers, never their seconds: every kind of checkpoint, cold and hot, in both formats."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run import ROOT


@pytest.mark.timeout(900)
def test_a_hundred_thousand_files_are_answered_whole_and_right(tmp_path: Path) -> None:
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
    assert page.count("<polyline") == 4
    assert page.count("<circle") == 16
    assert all(said in page for said in ("10,000,000", "ours against a peer", "a &amp; b", "&lt;HTTP&gt;"))
    assert "not measured" in page
