"""A process that stays above its memory limit: its readiness, its log, and its answers."""

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.gateway_app import PREFIX, bearer, recipients, serve
from support.waiting import until
from tables.large_logs import make_log

from gateway.limits.memory import MemoryGate
from gateway.server.memory_watch import MemoryWatch
from gateway.tables.runtime import release_memory
from gateway.telemetry.metrics import Metrics

MIB = 1024 * 1024
FILES = {"large": 60_000, "medium": 30_000, "small": 10_000, "tiny": 10}


async def test_a_process_above_its_limit_is_not_ready_and_names_its_largest_tables_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    maker = make_log()
    entries = []
    for name, files in FILES.items():
        maker.make_log(tmp_path / name, maker.LogOptions(adds=files, commits=1))
        entries.append(f"{{name: {name}, location: '{tmp_path / name}'}}")
    shares = f"shares: [{{name: s, schemas: [{{name: d, tables: [{', '.join(entries)}]}}]}}]\n"
    metrics = Metrics()
    client, _ = await serve(shares + recipients(alice="s"), metrics=metrics)
    try:
        pipeline = client.server.pipeline  # type: ignore[attr-defined]
        resident = [0]
        gate = MemoryGate(
            100 * MIB,
            stream_bytes=MIB,
            queue_length=4,
            queue_seconds=5,
            resident_bytes=lambda: resident[0],
            relieve=partial(release_memory, hot=True),
        )
        pipeline.limits = replace(pipeline.limits, memory=gate)
        watch = MemoryWatch(metrics)

        async def query(table: str) -> int:
            url = f"{PREFIX}/shares/s/schemas/d/tables/{table}/query"
            async with client.post(url, json={}, headers=bearer()) as response:
                await response.read()
                return response.status

        async def ready() -> int:
            async with client.get("/readyz") as response:
                return response.status

        def look() -> bool:
            watch.look(gate, pipeline.state.tables)
            return gate.is_exhausted

        for table in FILES:
            assert await query(table) == 200
        watch.look(gate, pipeline.state.tables)
        assert await ready() == 200
        resident[0] = 200 * MIB
        with caplog.at_level(logging.INFO, "gateway.memory"):
            await until(look)
            for _ in range(3):
                look()
        (line,) = [record.getMessage() for record in caplog.records if record.name == "gateway.memory"]
        assert "above its part of gateway.limits.memoryBytes, 100 MiB" in line
        assert "this server is not ready" in line
        named = [part.rsplit(" ", 2)[0] for part in line.rpartition("before: ")[2].split(", ")]
        assert named == ["s.d.large", "s.d.medium", "s.d.small"]
        assert await ready() == 503
        # Queries are answered one at a time, and not refused for good.
        assert await query("small") == 200
        caplog.clear()
        resident[0] = 50 * MIB
        with caplog.at_level(logging.INFO, "gateway.memory"):
            look()
        assert [record.getMessage() for record in caplog.records if record.name == "gateway.memory"] == [
            "the process is below its memory limit again"
        ]
        assert await ready() == 200
    finally:
        await client.close()
