"""Commands of `delta-gateway` in the process of the tests, where the package needs no second import."""

from __future__ import annotations

import io
import logging
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from gateway.__main__ import main


def run_command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; what it logs is on its standard error, as in a process."""
    words = [*map(str, arguments)]
    output, errors = io.StringIO(), io.StringIO()
    root, handler = logging.getLogger(), logging.StreamHandler(errors)
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with redirect_stdout(output), redirect_stderr(errors):
            code = main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    return subprocess.CompletedProcess(words, code, output.getvalue(), errors.getvalue())
