"""A server process inside of the test, over a configuration file that tests change."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp.test_utils import TestClient
from tables.small_tables import FIRST_MS

from gateway.authentication.credential_table import token_hash
from gateway.config import load
from gateway.governance.audited_database import create_database
from gateway.server.process import ServerProcess as Process
from gateway.server.start import Start
from gateway.server.worker_secrets import WorkerSecrets
from support.gateway_app import PREFIX, TOKENS, Clock, PipelineServer, bearer

TABLE = f"{PREFIX}/shares/s/schemas/d/tables/t"
HASHES = {name: token_hash(token).hex() for name, token in TOKENS.items()}


class Live:
    """A process over a file, and a client of it."""

    def __init__(self, file: Path, settings: dict[str, Any], clock: Clock) -> None:
        self.file, self.settings, self.clock = file, settings, clock
        self.kept: dict[str, Any] = {}
        self.write()
        config = load(file)
        create_database(config, clock)
        start = Start(file, config)
        self.process = Process(start, WorkerSecrets.made(config), workers=1, now_ms=clock)
        self.client: TestClient[Any, Any] = TestClient(PipelineServer(self.process.pipeline))

    def write(self) -> None:
        # Replaced in one step: the process never reads a partial file.
        half = self.file.with_suffix(".half")
        half.write_text(yaml.safe_dump(self.settings))
        half.replace(self.file)

    async def change(self, key: str, value: Any) -> str | None:
        """Put another value into the file and let the process read it; why it is refused."""
        put(self.settings, key, value)
        self.write()
        return await self.process.reloader.reload()

    @property
    def state(self) -> Any:
        return self.process.pipeline.state

    @property
    def limits(self) -> Any:
        return self.process.pipeline.limits

    async def answer(self, method: str, path: str, **options: Any) -> Any:
        options = {"headers": bearer()} | options
        return await self.client.request(method, path, **options)

    async def status(self, path: str = f"{PREFIX}/shares", **options: Any) -> int:
        return int((await self.answer("GET", path, **options)).status)

    async def items(self, path: str) -> list[Any]:
        return list((await (await self.answer("GET", PREFIX + path)).json())["items"])

    async def query(self, headers: Mapping[str, str] | None = None, **body: Any) -> list[Any]:
        answer = await self.answer(
            "POST", f"{TABLE}/query", json=body, headers=bearer() | dict(headers or {})
        )
        lines = [json.loads(line) for line in (await answer.read()).splitlines()]
        return [answer.status, *lines]

    async def query_headers(self, headers: Mapping[str, str], **body: Any) -> Any:
        answer = await self.answer("POST", f"{TABLE}/query", json=body, headers=bearer() | dict(headers))
        await answer.read()
        return answer.headers


def put(settings: dict[str, Any], key: str, value: Any) -> None:
    """Set a key, in the first item of each list on the way; None takes it away."""
    *way, last = key.split(".")
    for word in way:
        name = word.removesuffix("[]")
        settings = settings.setdefault(name, [{}] if word != name else {})
        if word != name:
            settings = settings[0]
    if value is None:
        settings.pop(last, None)
    else:
        settings[last] = value


def base(tables: Path) -> dict[str, Any]:
    tables_of_schema = [{"name": "t", "location": str(tables / "whole"), "historyShared": True, "id": "id-1"}]
    alice = {"name": "alice", "tokens": [{"sha256": HASHES["alice"]}], "shares": ["*"]}
    return {
        "version": 1,
        "host": "127.0.0.1",
        "port": 8080,
        "shares": [
            {"name": "s", "id": "share-id", "schemas": [{"name": "d", "tables": tables_of_schema}]},
            {"name": "other"},
        ],
        "gateway": {
            "recipients": [alice],
            "tokenKeys": [{"id": "k1", "secret": "a secret of the tests"}],
            "compression": {"minimumFiles": 0},
        },
    }


@asynccontextmanager
async def running_process(file: Path, settings: dict[str, Any]) -> AsyncIterator[Live]:
    live = Live(file, settings, Clock(FIRST_MS + 86_400_000))
    async with live.process.lifespan():
        await live.client.start_server()
        try:
            yield live
        finally:
            await live.client.close()
