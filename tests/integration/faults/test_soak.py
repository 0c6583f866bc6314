"""A soak: everything that clients do, again and again; memory and descriptors stay where they are.

`DELTA_GATEWAY_SOAK_SECONDS` says for how long. The long form is `loadtests/run.py --shape soak`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from support.file_answers import HEADERS, Files, query
from support.gateway_process import PREFIX, RunningGateway, running_gateway, share, table_path
from tables.large_logs import make_log

SECONDS = int(os.environ.get("DELTA_GATEWAY_SOAK_SECONDS", "30"))
ADDS = 15_000
TABLE = "s.default.t"
GROWTH = 1.08
SPARE_DESCRIPTORS = 16


@pytest.mark.timeout(SECONDS + 90)
async def test_memory_and_descriptors_stay_flat(tmp_path):
    maker = make_log()
    found = maker.make_log(tmp_path / "table", maker.LogOptions(adds=ADDS, commits=5))
    expected = Files(found["files"], int(found["digest"], 16))
    shares = [share("s", {"t": str(tmp_path / "table")})]
    with running_gateway(tmp_path, shares, {"drainDelaySeconds": 0}) as gateway:
        samples = await soak(gateway, expected)
    third = len(samples) // 3
    # The least of a while is what nobody needs: streams come and go.
    middle, last = (map(min, zip(*part, strict=True)) for part in (samples[third:-third], samples[-third:]))
    (middle_bytes, middle_files), (last_bytes, last_files) = middle, last
    assert last_bytes < GROWTH * middle_bytes, samples
    assert last_files < middle_files + SPARE_DESCRIPTORS, samples


async def soak(gateway: RunningGateway, expected: Files) -> list[tuple[int, int]]:
    """Resident bytes and descriptors, as they were seen while clients came and went."""
    base = f"http://127.0.0.1:{gateway.port}"
    end = time.monotonic() + SECONDS

    async def again(visit: Callable[[aiohttp.ClientSession], Awaitable[None]]) -> int:
        visits = 0
        while time.monotonic() < end:
            # A new connection each time, as most clients do.
            async with aiohttp.ClientSession() as session:
                await visit(session)
            visits += 1
        return visits

    async def whole(session: aiohttp.ClientSession) -> None:
        assert (await query(session, base, TABLE, with_end=True)).files == expected

    async def pages(session: aiohttp.ClientSession) -> None:
        first = await query(session, base, TABLE, {"maxFiles": 100}, with_end=True)
        following = {"maxFiles": 100, "pageToken": first.next_page_token}
        assert (await query(session, base, TABLE, following, with_end=True)).files.count == 100

    async def leaving(session: aiohttp.ClientSession) -> None:
        url = f"{base}{PREFIX}{table_path(TABLE)}/query"
        async with session.post(url, json={}, headers=HEADERS) as response:
            await response.content.read(1000)
            response.close()

    async def stranger(session: aiohttp.ClientSession) -> None:
        headers = {"Authorization": "Bearer of nothing"}
        async with session.get(f"{base}{PREFIX}/shares", headers=headers) as response:
            assert response.status == 401

    async def operator(session: aiohttp.ClientSession) -> None:
        gateway.process.send_signal(signal.SIGHUP)
        await asyncio.sleep(1)
        async with session.get(f"{base}/readyz") as response:
            assert response.status == 200

    async def sampling() -> list[tuple[int, int]]:
        process = Path(f"/proc/{gateway.process.pid}")
        samples = []
        while time.monotonic() < end:
            pages_held = int((process / "statm").read_text().split()[1])
            samples.append((pages_held * 4096, len(list((process / "fd").iterdir()))))
            await asyncio.sleep(0.2)
        return samples

    sampled = asyncio.ensure_future(sampling())
    visits = await asyncio.gather(*map(again, (whole, whole, pages, leaving, stranger, operator)))
    assert min(visits) > SECONDS / 10
    return await sampled
