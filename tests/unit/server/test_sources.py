"""The supervisor's reading of the places where tables of stored shares are discovered."""

import subprocess
import sys

import pytest

pytest.importorskip("gateway._native", reason="the native module is not built", exc_type=ImportError)

HANGING = """
import asyncio, threading
from gateway.server import run, sources

async def main():
    sources.START_SECONDS = 0.05
    # The reading asks for the place of the database, which a mount that hangs does not give.
    async with sources.Sources(threading.Event().wait).following():
        pass

asyncio.run(main())
run._exit_past_hanging_threads()
"""


@pytest.mark.processes
def test_a_database_that_hangs_keeps_no_supervisor_from_ending() -> None:
    ended = subprocess.run([sys.executable, "-P", "-c", HANGING], check=False, timeout=30)
    assert ended.returncode == 0
