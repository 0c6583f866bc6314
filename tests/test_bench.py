"""The benches' answers, never their seconds: every kind of checkpoint, cold and hot, in both formats."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.timeout(900)
def test_a_hundred_thousand_files_are_answered_whole_and_right(tmp_path: Path) -> None:
    command = [sys.executable, "bench/run.py", "--short", "--logs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "answers are right"
