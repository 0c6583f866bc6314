"""The load test's short form: every kind of user for some seconds, without a wrong answer or error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tools import ROOT

pytestmark = pytest.mark.processes


@pytest.mark.nightly
@pytest.mark.timeout(240)
def test_a_mix_of_users_gets_no_wrong_answer(tmp_path: Path) -> None:
    pytest.importorskip("gateway._native", reason="the native module is not built", exc_type=ImportError)
    command = [sys.executable, str(ROOT / "loadtests" / "run.py"), "--short", "--report", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    log = "".join(file.read_text()[-3000:] for file in sorted(tmp_path.glob("*.log")))
    assert run.returncode == 0, run.stdout + run.stderr + log
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["failures"] == 0
    kinds = {kind["name"].partition(":")[0] for kind in summary["kinds"] if kind["requests"]}
    assert {"discovery", "small query", "full listing", "page", "changes", "refresh", "wrong token"} <= kinds
    assert summary["requests"] == sum(kind["requests"] for kind in summary["kinds"])
    assert "<svg" in (tmp_path / "index.html").read_text()
