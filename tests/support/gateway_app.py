"""A gateway inside of the test's process: configurations, tokens, and clients on a real socket."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp.test_utils import RawTestServer, TestClient, unused_port

from gateway.app import create_app
from gateway.authentication.credential_table import token_hash
from gateway.config import Config, loads
from gateway.web.connections import Runner
from gateway.web.pipeline import RequestPipeline

TOKENS = {name: f"token-of-{name}" for name in ("alice", "bob", "nobody")}
TOKEN_KEYS = "  tokenKeys: [{id: k1, secret: a secret for the tests}]\n"
PREFIX = "/delta-sharing"


@dataclass(slots=True)
class Clock:
    """A clock that tests set."""

    now_ms: int

    def __call__(self) -> int:
        return self.now_ms


class PipelineServer(RawTestServer):
    """A request pipeline on a socket, over connections of the server."""

    def __init__(self, pipeline: RequestPipeline, **options: Any) -> None:
        super().__init__(pipeline, **options)
        self.pipeline = pipeline

    async def _make_runner(self, **options: Any) -> Runner:
        return Runner(self.pipeline, **options)

    async def close(self) -> None:
        """Close the socket, then the tables."""
        await super().close()
        self.pipeline.state.tables.close()


def recipients(**shares: str) -> str:
    """The `gateway:` map with token keys and recipients; `alice="a,b"` grants shares a and b."""
    lines = ["gateway:\n", TOKEN_KEYS, "  recipients:\n"]
    for name, granted in shares.items():
        digest = token_hash(TOKENS[name]).hex()
        lines.append(f"  - {{name: {name}, tokens: [{{sha256: {digest}}}], shares: [{granted}]}}\n")
    return "".join(lines)


def bearer(name: str = "alice") -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}"}


async def serve(
    text: str, *, clock: Callable[[], int] | None = None, **options: Any
) -> tuple[TestClient[Any, Any], Config]:
    """Start a gateway on a free port. The caller closes the client."""
    port = unused_port()
    config = loads(f"version: 1\nhost: 127.0.0.1\nport: {port}\n{text}")
    pipeline = create_app(config, **({"now_ms": clock} if clock else {}), **options)
    client = TestClient(PipelineServer(pipeline, host="127.0.0.1", port=port))
    await client.start_server()
    return client, config


def error_of(body: bytes) -> str:
    """The errorCode of a body that has the protocol's shape of an error."""
    parsed = orjson.loads(body)
    # Errors of token requests have the fields of OAuth, too.
    assert set(parsed) - {"error", "error_description"} == {"errorCode", "message"}
    assert parsed["message"]
    return str(parsed["errorCode"])
