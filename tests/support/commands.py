"""Commands of `delta-gateway` in the process of the tests or a fork, which need no second import."""

import io
import logging
import subprocess
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from gateway.__main__ import main
from support.fork_server import forked
from support.processes import STOP_SECONDS, package_environment


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


def forked_command(
    *arguments: str | Path, directory: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command with variables of its own to its end; both of its streams are the standard output."""
    words = [*map(str, arguments)]
    with tempfile.TemporaryFile() as output:
        process = forked(words, output, package_environment(**variables), directory)
        code = process.wait(STOP_SECONDS)
        output.seek(0)
        return subprocess.CompletedProcess(words, code, output.read().decode(), "")
