"""Steps of the wall clock, forward and back, with tokens, URLs and streams in use."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestClient
from support.file_answers import parse
from support.gateway_app import PREFIX, TOKENS, Clock, serve
from tables.large_logs import make_log
from yarl import URL

from gateway.authentication.credential_table import token_hash

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
TABLE = f"{PREFIX}/shares/s/schemas/d/tables/t"
ADDS = 5_000
ENDING = {"delta-sharing-capabilities": "includeendstreamaction=true"}
LIVE, ENDS = (token_hash(TOKENS[name]).hex() for name in ("alice", "bob"))


@dataclass
class Served:
    client: TestClient[Any, Any]
    clock: Clock

    async def get(self, path: str, name: str = "alice", **options: Any) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {TOKENS[name]}"}
        async with self.client.get(path, headers=headers, **options) as response:
            return response.status, await response.read()

    async def query(self, body: dict[str, Any]) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {TOKENS['alice']}", "Accept-Encoding": "identity", **ENDING}
        async with self.client.post(f"{TABLE}/query", json=body, headers=headers) as response:
            return response.status, await response.read()


@pytest.fixture
async def served(tmp_path) -> AsyncIterator[Served]:
    maker = make_log()
    maker.make_log(tmp_path / "t", maker.LogOptions(adds=ADDS, commits=3))
    clock = Clock(NOW_MS)
    expires = datetime.fromtimestamp((NOW_MS + HOUR_MS) / 1000, UTC).isoformat()
    client, _ = await serve(
        f"""
shares:
- name: s
  schemas: [{{name: d, tables: [{{name: t, location: {tmp_path / "t"}, historyShared: true}}]}}]
gateway:
  tokenKeys: [{{id: k1, secret: a secret for the tests}}]
  recipients:
  - {{name: alice, tokens: [{{sha256: {LIVE}}}], shares: [s]}}
  - {{name: bob, tokens: [{{sha256: {ENDS}, expires: "{expires}"}}], shares: [s]}}
""",
        clock=clock,
    )
    yield Served(client, clock)
    await client.close()


STEPS = [YEAR_MS, -YEAR_MS, 2 * YEAR_MS, -2 * YEAR_MS, 0]


async def test_tokens_follow_the_clock_there_and_back(served: Served):
    for step_ms in STEPS:
        served.clock.now_ms = NOW_MS + step_ms
        assert (await served.get(f"{PREFIX}/shares"))[0] == 200
        assert (await served.get(f"{PREFIX}/shares", "bob"))[0] == (401 if step_ms > HOUR_MS else 200)


async def test_page_and_refresh_tokens_follow_the_clock_there_and_back(served: Served):
    _, body = await served.query({"maxFiles": 10, "includeRefreshToken": True})
    end = orjson.loads(body.splitlines()[-1])["endStreamAction"]
    for step_ms in STEPS:
        served.clock.now_ms = NOW_MS + step_ms
        expected = 400 if step_ms > 0 else 200
        assert (await served.query({"maxFiles": 10, "pageToken": end["nextPageToken"]}))[0] == expected
        assert (await served.query({"refreshToken": end["refreshToken"]}))[0] == expected


async def test_urls_are_of_the_clocks_time_and_end_by_it(served: Served):
    for step_ms in STEPS:
        served.clock.now_ms = NOW_MS + step_ms
        status, body = await served.query({"maxFiles": 1})
        assert status == 200
        file = orjson.loads(body.splitlines()[2])["file"]
        assert file["expirationTimestamp"] == NOW_MS + step_ms + HOUR_MS
        url = URL(file["url"], encoded=True)
        served.clock.now_ms += HOUR_MS + 1
        assert (await served.get(url.path_qs))[0] == 403
        served.clock.now_ms -= HOUR_MS + 1
        # The log of this table has no data files behind it: the URL is valid, the file is not there.
        assert (await served.get(str(URL(url.path_qs, encoded=True))))[0] == 404


@pytest.mark.parametrize("step_ms", [YEAR_MS, -YEAR_MS])
async def test_a_stream_across_a_step_is_whole_and_its_urls_end_together(served: Served, step_ms: int):
    pending = [asyncio.ensure_future(served.query({})) for _ in range(8)]
    await asyncio.sleep(0)
    served.clock.now_ms += step_ms
    ends: set[int] = set()
    for status, body in await asyncio.gather(*pending):
        assert status == 200
        assert parse(body, 0, with_end=True).files.count > ADDS * 0.9
        found = {orjson.loads(line)["file"]["expirationTimestamp"] for line in body.splitlines()[2:-1]}
        assert len(found) == 1
        ends |= found
    assert ends <= {NOW_MS + HOUR_MS, NOW_MS + step_ms + HOUR_MS}
