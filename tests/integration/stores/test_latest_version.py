"""The latest version on S3: found by two requests, shared by requests, and never older than a request.

For a known table the event loop sends the two requests itself, on kept connections.
"""

import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.fault_proxy import HEALTHY, Fault, FaultProxy, running
from support.gateway_process import RunningGateway, running_gateway, share, storage
from support.nightly import at_night
from support.versitygw import VersityGw

BUCKET = "versions"
TIMEOUT_SECONDS = 1
TABLE = "/shares/s/schemas/default/tables/t"
SCHEMA = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}


@dataclass
class Watched:
    """A table in a bucket behind a proxy that counts requests, and the gateway that shares it."""

    gateway: RunningGateway
    proxy: FaultProxy
    store: Any
    prefix: str

    def key(self, version: int) -> str:
        return f"{self.prefix}/_delta_log/{version:020}.json"

    def commit(self, version: int, table_id: str = "first") -> None:
        """Writes a commit of one file; all commits of a version have the same size."""
        actions: list[dict[str, Any]] = []
        if version == 0:
            metadata = {
                "id": table_id,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(SCHEMA),
                "partitionColumns": [],
                "configuration": {},
            }
            actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
        file = {"path": f"{uuid.uuid4()}.parquet", "partitionValues": {}, "size": 1}
        actions.append({"add": {**file, "modificationTime": 1, "dataChange": True}})
        body = "\n".join(json.dumps(action) for action in actions).encode()
        self.store.put_object(Bucket=BUCKET, Key=self.key(version), Body=body)

    def delete(self, version: int) -> None:
        self.store.delete_object(Bucket=BUCKET, Key=self.key(version))

    def version(self) -> int:
        answer = self.gateway.request("GET", f"{TABLE}/version")
        assert answer.status == 200, answer.body
        return int(answer.headers["Delta-Table-Version"])

    def files(self) -> int:
        answer = self.gateway.query("s.default.t")
        assert answer.status == 200, answer.body
        return sum("file" in line for line in answer.lines)

    def requests(self) -> list[str]:
        """The requests since the last call: method, and the version of a commit or what else is read."""
        lines, self.proxy.requests = self.proxy.requests, []
        return sorted(self.described(line) for line in lines)

    def warm_up(self) -> None:
        """Sends requests until the event loop sends those to the store, which needs connections."""
        sent: list[bool] = []

        def only(head: bytes) -> bool:
            # Other requests have a blank after the colon.
            sent.append(b"\r\nx-amz-date:2" in head)
            return False

        self.proxy.fault = Fault(only=only)
        while not any(sent):
            self.version()
        self.proxy.fault = HEALTHY
        self.requests()

    def fail(self, requests: int, fault: Fault) -> None:
        """Injects a fault into the next requests for properties; the others are healthy."""
        # The proxy asks for a request and again for its answer.
        failing: list[bytes] = []

        def only(head: bytes) -> bool:
            if head.startswith(b"HEAD") and len(failing) < requests and head not in failing:
                failing.append(head)
            return head in failing

        self.proxy.fault = replace(fault, only=only)

    def described(self, line: str) -> str:
        method, path, _ = line.split(" ")
        if "list-type" in path:
            return "LIST"
        name = path.rsplit("/", 1)[1]
        return f"{method} {int(name.removesuffix('.json'))}" if name[0] == "0" else f"{method} {name}"


@pytest.fixture
def watched(versitygw: VersityGw, tmp_path: Path) -> Iterator[Watched]:
    with closing(versitygw.client()) as store, running(int(versitygw.endpoint.rsplit(":", 1)[1])) as proxy:
        versitygw.make_bucket(BUCKET)
        prefix = uuid.uuid4().hex
        times = {"timeoutSeconds": TIMEOUT_SECONDS, "retrySeconds": 10 * TIMEOUT_SECONDS}
        bucket = storage(versitygw, f"s3://{BUCKET}/")
        section = {"storages": [{**bucket, **times, "endpoint": proxy.endpoint}]}
        with running_gateway(tmp_path, [share("s", {"t": f"s3://{BUCKET}/{prefix}"})], section) as gateway:
            found = Watched(gateway, proxy, store, prefix)
            found.commit(0)
            yield found


def test_a_known_table_costs_two_requests_without_a_listing(watched: Watched) -> None:
    assert (watched.version(), watched.files()) == (0, 1)
    assert "LIST" in watched.requests()
    for ask in (watched.version, watched.files):
        ask()
        assert watched.requests() == ["HEAD 0", "HEAD 1"]
    assert watched.gateway.request("GET", f"{TABLE}/metadata").status == 200
    assert watched.requests() == ["HEAD 0", "HEAD 1"]


def test_requests_that_arrive_together_share_their_refreshes(watched: Watched) -> None:
    assert watched.version() == 0
    watched.requests()
    watched.proxy.fault = Fault(delay_seconds=0.3)
    with ThreadPoolExecutor(24) as clients:
        assert list(clients.map(lambda _: watched.version(), range(24))) == [0] * 24
    # The first one's, the next one's, and another for a machine whose clients are slow to start.
    assert len(watched.requests()) <= 6


def test_each_new_version_is_found_by_the_next_request(watched: Watched) -> None:
    assert watched.files() == 1
    for version in range(1, 6):
        watched.commit(version)
        assert (watched.version(), watched.files()) == (version, version + 1)
    for version in (6, 7, 8):
        watched.commit(version)
    assert (watched.version(), watched.files()) == (8, 9)
    watched.requests()
    assert watched.version() == 8
    assert watched.requests() == ["HEAD 8", "HEAD 9"]


def test_a_table_that_replaces_another_one_with_as_many_versions_is_found_by_the_next_request(
    watched: Watched,
) -> None:
    def table_id() -> str:
        [_, metadata, *_] = watched.gateway.query("s.default.t").lines
        found: str = metadata["metaData"]["id"]
        return found

    for version in (1, 2):
        watched.commit(version)
    assert (watched.version(), table_id()) == (2, "first")
    for version in (2, 1, 0):
        watched.delete(version)
    assert watched.gateway.request("GET", f"{TABLE}/version").status == 404
    for version in range(3):
        watched.commit(version, "other")
    assert (watched.version(), table_id()) == (2, "other")
    # Replaced between two requests.
    for version in range(3):
        watched.commit(version, "third")
    assert (watched.version(), table_id()) == (2, "third")
    watched.delete(2)
    assert watched.version() == 1


def test_where_the_store_denies_requests_for_absent_objects_the_log_is_listed(watched: Watched) -> None:
    assert watched.version() == 0
    watched.proxy.fault = Fault(status=403, only=lambda request: request.startswith(b"HEAD"))
    for _ in range(3):
        assert watched.version() == 0
    watched.requests()
    assert watched.version() == 0
    assert watched.requests() == ["LIST"], "after two useless probes only the log is listed"
    watched.commit(1)
    assert watched.version() == 1
    watched.proxy.fault = HEALTHY


def test_the_requests_of_a_known_table_share_two_kept_connections(watched: Watched) -> None:
    watched.warm_up()
    connections = watched.proxy.connections
    for _ in range(20):
        assert watched.version() == 0
    assert watched.requests() == ["HEAD 0"] * 20 + ["HEAD 1"] * 20
    assert watched.proxy.connections == connections


@pytest.mark.parametrize(
    "fault",
    [
        Fault(cut_after_bytes=0),
        Fault(status=403),
        Fault(corrupt_at_byte=3),
        *at_night(Fault(cut_after_bytes=30), Fault(status=503), Fault(status=302), Fault(hang=True)),
    ],
    ids=["closed", "denied", "corrupt", "truncated", "unavailable", "redirected", "hanging"],
)
@pytest.mark.parametrize("requests", [1, *at_night(2)])
def test_a_fault_of_the_kept_connections_hides_no_new_version(
    watched: Watched, fault: Fault, requests: int
) -> None:
    watched.warm_up()
    watched.commit(1)
    watched.fail(requests, fault)
    assert watched.version() == 1
    assert watched.version() == 1
    watched.proxy.fault = HEALTHY
    watched.commit(2)
    assert watched.version() == 2


def test_no_request_reads_a_version_older_than_its_arrival(watched: Watched) -> None:
    versions, clients = 25, 8
    assert watched.version() == 0
    published = 0

    def write() -> None:
        nonlocal published
        for version in range(1, versions):
            watched.commit(version)
            published = version

    def read(ask_files: bool) -> None:
        while (before := published) < versions - 1:
            found = watched.files() - 1 if ask_files else watched.version()
            assert found >= before

    writer = threading.Thread(target=write)
    with ThreadPoolExecutor(clients) as readers:
        reading = [readers.submit(read, number % 2 == 0) for number in range(clients)]
        writer.start()
        for one in reading:
            one.result()
    writer.join()
    assert (watched.version(), watched.files()) == (versions - 1, versions)
