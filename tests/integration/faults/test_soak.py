"""A soak: clients of every kind repeat their requests, and memory and descriptors stay constant.

`DELTA_GATEWAY_SOAK_SECONDS` says for how long. The long form is `loadtests/run.py --shape soak`.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from support.file_answers import HEADERS, Files, query
from support.gateway_process import PREFIX, RunningGateway, running_gateway, share, table_path
from support.waiting import until
from tables.large_logs import make_log

SECONDS = int(os.environ.get("DELTA_GATEWAY_SOAK_SECONDS", "9"))
PERIOD_SECONDS = SECONDS / 3
PERIOD_VISITS = 5
"""Of each kind of client. A busy machine makes periods longer, not emptier."""
MOST_PERIODS = 6
"""The first fills caches and memory pools. Growth that ends later than in the second is no leak either."""
ADDS = 15_000
TABLE = "s.default.t"
GROWTH = 1.08
SPARE_DESCRIPTORS = 16

Visit = Callable[[aiohttp.ClientSession], Awaitable[None]]


@dataclass(frozen=True)
class Usage:
    """The least that was in use during a period: streams come and go."""

    resident_bytes: int
    descriptors: int

    def is_flat_after(self, earlier: "Usage") -> bool:
        """Whether this period used no more than the one before it."""
        return (
            self.resident_bytes < GROWTH * earlier.resident_bytes
            and self.descriptors < earlier.descriptors + SPARE_DESCRIPTORS
        )


@pytest.mark.timeout(MOST_PERIODS * SECONDS + 600)
async def test_memory_and_descriptors_stay_flat(tmp_path):
    maker = make_log()
    found = maker.make_log(tmp_path / "table", maker.LogOptions(adds=ADDS, commits=5))
    expected = Files(found["files"], int(found["digest"], 16))
    shares = [share("s", {"t": str(tmp_path / "table")})]
    with running_gateway(tmp_path, shares, {"drainDelaySeconds": 0}) as gateway:
        kinds = visits(gateway, expected)
        made = Counter({visit.__name__: 0 for visit in kinds})
        visitors = [asyncio.ensure_future(visit_again(visit, made)) for visit in kinds]
        try:
            periods = [await period(gateway, visitors, made) for _ in range(3)]
            while not periods[-1].is_flat_after(periods[-2]) and len(periods) < MOST_PERIODS:
                periods.append(await period(gateway, visitors, made))
        finally:
            for visitor in visitors:
                visitor.cancel()
            await asyncio.gather(*visitors, return_exceptions=True)
    assert periods[-1].is_flat_after(periods[-2]), periods


async def visit_again(visit: Visit, made: Counter[str]) -> None:
    while True:
        # A new connection each time, as most clients do.
        async with aiohttp.ClientSession() as session:
            await visit(session)
        made[visit.__name__] += 1


async def period(gateway: RunningGateway, visitors: list[asyncio.Future[None]], made: Counter[str]) -> Usage:
    """What the process used while each kind of client came some times."""
    process = Path(f"/proc/{gateway.process.pid}")
    end, before = time.monotonic() + PERIOD_SECONDS, made.copy()
    samples = []
    while time.monotonic() < end or any(made[kind] - before[kind] < PERIOD_VISITS for kind in made):
        for visitor in visitors:
            if visitor.done():
                visitor.result()
        pages_held = int((process / "statm").read_text().split()[1])
        samples.append((pages_held * 4096, len(list((process / "fd").iterdir()))))
        await asyncio.sleep(0.2)
    resident_bytes, descriptors = map(min, zip(*samples, strict=True))
    return Usage(resident_bytes, descriptors)


def visits(gateway: RunningGateway, expected: Files) -> list[Visit]:
    """One visit of each kind of client."""
    base = f"http://127.0.0.1:{gateway.port}"

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

    def reloads() -> int:
        return gateway.log.read_text().count("was reloaded")

    async def operator(session: aiohttp.ClientSession) -> None:
        before = reloads()
        gateway.process.send_signal(signal.SIGHUP)
        await until(lambda: reloads() > before)
        async with session.get(f"{base}/readyz") as response:
            assert response.status == 200

    return [whole, whole, pages, leaving, stranger, operator]
