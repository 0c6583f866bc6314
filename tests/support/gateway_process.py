"""The gateway as a process: a configuration file, `delta-gateway serve`, requests over a socket."""

import gzip
import hashlib
import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tables.demo import ROWS

from support.aws_identity import ROLE
from support.processes import ServerProcess, free_port, server_process, wait_for_port
from support.versitygw import S3Server, VersityGw
from support.waiting import wait_until

TOKEN = "a-token-of-the-tests"
PREFIX = "/delta-sharing"


@dataclass(frozen=True)
class Answer:
    """A whole response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The objects of an NDJSON body; an empty line anywhere is an error here."""
        text = self.body.decode("utf-8")
        assert text.endswith("\n")
        return [json.loads(line) for line in text.removesuffix("\n").split("\n")]

    @property
    def json(self) -> Any:
        """A JSON body."""
        return json.loads(self.body)


@dataclass(frozen=True)
class RunningGateway:
    """A gateway process that listens."""

    port: int
    process: ServerProcess
    profile: Path
    log: Path
    token: str = field(default=TOKEN, repr=False)

    def logged(self, text: str) -> str:
        """Waits until the log, which a thread writes, has the text; returns all of it."""
        try:
            wait_until(lambda: text in self.log.read_text())
        except TimeoutError:
            pytest.fail(f"{text!r} is not in the log: {self.log.read_text()[-2000:]}")
        return self.log.read_text()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        token: str | None = None,
    ) -> Answer:
        """Sends a path exactly as written, below the endpoint's prefix when it begins with /shares."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        sent = {"Authorization": f"Bearer {token or self.token}", **(headers or {})}
        if body is not None and "content-type" not in {name.lower() for name in sent}:
            sent["Content-Type"] = "application/json; charset=utf-8"
        encoded = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, PREFIX + path if path.startswith("/shares") else path, encoded, sent)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        return Answer(response.status, response.headers, content)

    def query(
        self, table: str, body: Mapping[str, Any] | None = None, capabilities: str | None = None
    ) -> Answer:
        """POST .../query of `share.schema.table`."""
        headers = {"delta-sharing-capabilities": capabilities} if capabilities else {}
        return self.request("POST", f"{table_path(table)}/query", body or {}, headers)


def table_path(table: str) -> str:
    """The path of `share.schema.table`."""
    share, schema, name = table.split(".")
    return f"/shares/{share}/schemas/{schema}/tables/{name}"


def share(name: str, tables: Mapping[str, str], schema: str = "default", **options: Any) -> dict[str, Any]:
    """A share of the configuration with one schema: table names to locations."""
    entries = [
        {"name": table, "location": location, "historyShared": True, **options}
        for table, location in tables.items()
    ]
    return {"name": name, "schemas": [{"name": schema, "tables": entries}]}


def configuration(
    shares: list[dict[str, Any]], port: int, section: Mapping[str, Any], **keys: Any
) -> dict[str, Any]:
    """Returns a configuration with one recipient, which may read every share."""
    hashed = hashlib.sha256(TOKEN.encode()).hexdigest()
    recipients = [{"name": "tests", "tokens": [{"sha256": hashed}], "shares": ["*"]}]
    keyed = {
        "recipients": recipients,
        "tokenKeys": [{"id": "k1", "secret": "0123456789abcdef0123456789abcdef"}],
        # No load balancer asks: each server of a test would wait for it.
        "drainDelaySeconds": 0,
    }
    top = {"version": 1, "host": "127.0.0.1", "port": port, "endpoint": PREFIX, "shares": shares}
    return {**top, **keys, "gateway": {**keyed, **section}}


def files_of(gateway: RunningGateway, table: str = "odd") -> list[dict[str, Any]]:
    """The files of a table of the schema that most tests serve."""
    answer = gateway.query(f"demo.default.{table}")
    assert answer.status == 200, (answer.body, gateway.log.read_text()[-3000:])
    return [line["file"] for line in answer.lines if "file" in line]


@contextmanager
def running_gateway(
    directory: Path,
    shares: list[dict[str, Any]],
    section: Mapping[str, Any] | None = None,
    *,
    workers: int = 1,
    **keys: Any,
) -> Iterator[RunningGateway]:
    """Runs `delta-gateway serve` over a configuration until the block ends."""
    pytest.importorskip("gateway._native", reason="the native module is not built", exc_type=ImportError)
    port = free_port()
    file = directory / "gateway.yaml"
    file.write_text(yaml.safe_dump(configuration(shares, port, section or {}, **keys)))
    profile = directory / "tests.share"
    endpoint = f"http://127.0.0.1:{port}{PREFIX}"
    credentials = {"shareCredentialsVersion": 1, "endpoint": endpoint, "bearerToken": TOKEN}
    profile.write_text(json.dumps(credentials))
    log = directory / "gateway.log"
    with server_process(file, log, workers=workers) as process:
        try:
            wait_for_port(port, process)
        except (RuntimeError, TimeoutError) as failure:
            raise RuntimeError(log.read_text()[-4000:]) from failure
        yield RunningGateway(port, process, profile, log)


@pytest.fixture(scope="session")
def local_gateway(demo_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Serves the demo's tables from a directory, by local URLs."""
    tables = {name: str(demo_tables / name) for name in ROWS}
    with running_gateway(tmp_path_factory.mktemp("local-gateway"), [share("demo", tables)]) as served:
        yield served


@pytest.fixture(scope="session")
def s3_gateway(
    demo_tables: Path, versitygw: VersityGw, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Serves the demo's tables from S3, below a prefix that is hard to sign."""
    for name in ROWS:
        versitygw.upload(demo_tables / name, "demo", f"ware house/50%+=ü/{name}")
    tables = {name: f"s3://demo/ware house/50%+=ü/{name}" for name in ROWS}
    directory = tmp_path_factory.mktemp("s3-gateway")
    with running_gateway(directory, [share("demo", tables)], {"storages": [storage(versitygw)]}) as served:
        yield served


def storage(store: S3Server, prefix: str = "s3://demo/") -> dict[str, Any]:
    """The configuration of a bucket in the S3 server of the tests."""
    return {
        "prefix": prefix,
        "endpoint": store.endpoint,
        "region": store.region,
        "pathStyle": True,
        "accessKeyId": store.access_key_id,
        "secretAccessKey": store.secret_access_key,
    }


def storage_with_sessions(store: S3Server, prefix: str) -> dict[str, Any]:
    """The same of a server with a token service. The gateway itself reads by the long-lived key."""
    return {**storage(store, prefix), "stsEndpoint": store.endpoint, "directoryRoleArn": ROLE}


@pytest.fixture(params=["local", "s3"])
def demo_gateway(request: pytest.FixtureRequest) -> RunningGateway:
    """Each of the gateways that serve the demo's tables."""
    return request.getfixturevalue(f"{request.param}_gateway")
