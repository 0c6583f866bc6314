"""Storages: keys that are renewed in time, roles over HTTP, and what outlives a reload."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import orjson
import pytest

from gateway import _native
from gateway.access.sealed_tokens import InvalidToken
from gateway.config import Location, Secret, loads
from gateway.protocol.queries import TimeTravel
from gateway.state import GatewayState
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.aws.roles import CredentialsUnavailable, role_of
from gateway.storage.refreshing_credentials import FILE_SECONDS, RefreshingCredentials
from gateway.storage.registry import Storages, renew
from gateway.tables.open_table import OpenTable

HOUR = 3600.0
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Lender:
    """Lends keys for an hour, by a clock that the test turns."""

    def __init__(self) -> None:
        self.now_seconds = EPOCH.timestamp()
        self.asked = 0
        self.lends = True
        self.lasting = False

    def ask(self) -> S3Credentials:
        self.asked += 1
        if not self.lends:
            raise CredentialsUnavailable("the service is away", lasting=self.lasting)
        expires = datetime.fromtimestamp(self.now_seconds + HOUR, UTC)
        return S3Credentials(Secret(f"key-{self.asked}"), Secret("s"), Secret("t"), expires)


@pytest.fixture
def lender() -> Lender:
    return Lender()


@pytest.fixture
def keys(lender: Lender) -> RefreshingCredentials:
    return RefreshingCredentials(lender.ask, now_seconds=lambda: lender.now_seconds)


def test_keys_are_asked_for_when_half_of_their_time_is_over(
    keys: RefreshingCredentials, lender: Lender
) -> None:
    assert not keys.is_valid
    first = keys.fresh()
    lender.now_seconds += HOUR / 2 - 1
    assert keys.is_valid
    assert keys.fresh() is first
    lender.now_seconds += 2
    assert not keys.is_valid
    assert keys.fresh().access_key_id == Secret("key-2")
    assert lender.asked == 2


def test_keys_of_the_shared_file_are_read_again_and_stay_the_same_object_where_it_did_not_change(
    tmp_path: Path,
) -> None:
    file = tmp_path / "credentials"
    text = "[default]\naws_access_key_id = {}\naws_secret_access_key = s\naws_session_token = t\n"
    file.write_text(text.format("first"))
    storages = Storages(
        loads("version: 1\nshares: []\ngateway: {anonymous: true}"),
        url_key=b"k" * 32,
        environment={"AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_EC2_METADATA_DISABLED": "true"},
    )
    keys = storages.store(Location.parse("s3://bucket/table")).keys
    assert keys is not None
    now_seconds = EPOCH.timestamp()
    keys._now_seconds = lambda: now_seconds
    first = keys.fresh()
    file.write_text(text.format("second"))
    assert keys.fresh() is first
    now_seconds += FILE_SECONDS
    assert not keys.is_valid
    second = keys.fresh()
    assert second.access_key_id == Secret("second")
    now_seconds += FILE_SECONDS
    assert keys.fresh() is second
    # Amid a rewriting the file is empty: no role takes the place of its keys.
    file.write_text("")
    now_seconds += FILE_SECONDS
    assert keys.fresh() is second
    file.write_text(text.format("third"))
    now_seconds += FILE_SECONDS
    assert keys.fresh().access_key_id == Secret("third")


def test_keys_that_cannot_be_renewed_are_used_until_they_end(
    keys: RefreshingCredentials, lender: Lender
) -> None:
    first = keys.fresh()
    lender.lends = False
    lender.now_seconds += HOUR / 2 + 1
    assert keys.fresh() is first
    assert keys.is_valid, "the service is not asked again by every request"
    lender.now_seconds += HOUR / 2
    with pytest.raises(_native.StorageUnavailable) as refused:
        keys.fresh()
    assert refused.value.detail == "the service is away"
    asked = lender.asked
    with pytest.raises(_native.StorageUnavailable):
        keys.fresh()
    assert lender.asked == asked, "a service that refused is left alone for a moment"
    lender.lends = True
    lender.now_seconds += 10
    assert keys.fresh() is not first


def test_a_machine_that_lends_nothing_is_told_from_a_service_that_is_away(
    keys: RefreshingCredentials, lender: Lender
) -> None:
    lender.lends, lender.lasting = False, True
    with pytest.raises(_native.StorageDenied):
        keys.fresh()


def test_a_clock_that_steps_back_neither_ends_keys_nor_asks_for_ever(
    keys: RefreshingCredentials, lender: Lender
) -> None:
    first = keys.fresh()
    lender.now_seconds -= 10 * HOUR
    assert keys.fresh() is first
    lender.now_seconds += 20 * HOUR
    assert keys.fresh() is not first
    assert lender.asked == 2


def test_keys_that_have_ended_are_asked_for_at_a_calm_pace(lender: Lender) -> None:
    ended = S3Credentials(Secret("a"), Secret("b"), Secret("t"), EPOCH - timedelta(hours=1))

    def ask() -> S3Credentials:
        lender.asked += 1
        return ended

    keys = RefreshingCredentials(ask, now_seconds=lambda: lender.now_seconds)
    for _ in range(10):
        assert keys.fresh() is ended
        lender.now_seconds += 1
    assert lender.asked == 2


def test_many_threads_ask_once(keys: RefreshingCredentials, lender: Lender) -> None:
    gate, found = threading.Barrier(16), []

    def ask() -> None:
        gate.wait()
        found.append(keys.fresh())

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    assert lender.asked == 1


LENT = {
    "AccessKeyId": "lent-key",
    "SecretAccessKey": "lent-secret",
    "Token": "lent-token",
    "Expiration": "2026-01-01T06:00:00Z",
}
STS = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>lent-key</AccessKeyId>
<SecretAccessKey>lent-secret</SecretAccessKey><SessionToken>lent-token</SessionToken>
<Expiration>2026-01-01T06:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


class Lending(BaseHTTPRequestHandler):
    """The services that lend roles, as their users see them."""

    def do_PUT(self) -> None:
        known = self.headers["X-aws-ec2-metadata-token-ttl-seconds"] and self.path == "/latest/api/token"
        self.answer(200 if known else 400, b"session")

    def do_GET(self) -> None:
        path, instance = self.path, "/latest/meta-data/iam/security-credentials/"
        if path.startswith(instance) and self.headers["X-aws-ec2-metadata-token"] != "session":
            self.answer(401, b"")
        elif path == instance:
            self.answer(200, b"the-role\n")
        elif path == f"{instance}the-role" or (
            path == "/container" and self.headers["Authorization"] == "pass"
        ):
            self.answer(200, orjson.dumps(LENT))
        else:
            self.answer(403, orjson.dumps(LENT))

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        known = form["RoleArn"] == ["arn:aws:iam::1:role/r"] and form["WebIdentityToken"] == ["identity"]
        known = known and form["Action"] == ["AssumeRoleWithWebIdentity"]
        self.answer(200 if known else 403, STS.encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def lending(handler: type[BaseHTTPRequestHandler] = Lending) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with lending() as url:
        yield url


@pytest.fixture
def environments(service: str, tmp_path) -> dict[str, dict[str, str]]:
    (tmp_path / "identity").write_text("identity\n")
    (tmp_path / "pass").write_text("pass\n")
    return {
        "web identity": {
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "identity"),
            "AWS_ROLE_ARN": "arn:aws:iam::1:role/r",
            "AWS_ENDPOINT_URL_STS": service,
        },
        "container": {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{service}/container",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "pass"),
        },
        "instance": {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service},
    }


@pytest.mark.parametrize("kind", ["web identity", "container", "instance"])
def test_a_role_is_lent_with_the_time_of_its_end(environments, kind: str) -> None:
    role = role_of(environments[kind], "us-east-1")
    assert role is not None
    assert role.name == kind
    found = role.assume()
    assert found == S3Credentials(
        Secret("lent-key"), Secret("lent-secret"), Secret("lent-token"), datetime(2026, 1, 1, 6, tzinfo=UTC)
    )


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("web identity", {"AWS_ROLE_ARN": "another"}, "the token service answers 403"),
        ("web identity", {"AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere"}, "AWS_WEB_IDENTITY_TOKEN_FILE names"),
        ("container", {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": ""}, "credentials service answers 403"),
        ("container", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "file:///etc/passwd"}, "is no URL"),
        ("instance", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}, "cannot be reached"),
    ],
)
def test_a_role_that_is_refused_says_by_whom_and_nothing_of_the_answer(
    environments, kind: str, change: dict[str, str], reason: str
) -> None:
    role = role_of(environments[kind] | change, "us-east-1")
    assert role is not None
    with pytest.raises(CredentialsUnavailable, match=reason) as refused:
        role.assume()
    assert "lent" not in str(refused.value)


def test_the_instance_is_not_asked_where_that_is_switched_off() -> None:
    assert role_of({"AWS_EC2_METADATA_DISABLED": "true"}, "us-east-1") is None


def sharing_of(text: str, previous: GatewayState | None = None) -> GatewayState:
    return GatewayState.of(loads(f"version: 1\n{text}"), previous=previous)


def configuration(storage: str, tables: str = "t") -> str:
    entries = ", ".join(
        f"{{name: {name}, location: 's3://bucket/{name}'}}" for name in tables.split(",") if name
    )
    return (
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{entries}]}}]}}]\n"
        f"gateway: {{anonymous: true, storages: [{{prefix: 's3://bucket/', {storage}}}]}}\n"
    )


def native_table(state: GatewayState) -> _native.Table:
    (table,) = state.catalog.tables()
    return state.tables.open(table).table


STORAGE = "endpoint: 'http://127.0.0.1:1', pathStyle: true, accessKeyId: a, secretAccessKey: b"


@pytest.mark.parametrize(
    ("change", "is_kept"),
    [
        (("", ""), True),
        (("secretAccessKey: b", "secretAccessKey: c"), True),
        (("endpoint", "publicEndpoint: 'https://d.example.com', endpoint"), True),
        (("127.0.0.1:1", "127.0.0.1:2"), False),
        (("endpoint", "region: elsewhere, endpoint"), False),
    ],
    ids=["nothing", "keys", "the host of URLs", "the store", "the region"],
)
def test_a_reload_keeps_tables_that_are_read_as_before(change: tuple[str, str], is_kept: bool) -> None:
    first = sharing_of(configuration(STORAGE))
    known = native_table(first)
    after = sharing_of(configuration(STORAGE.replace(*change)), previous=first)
    assert (native_table(after) is known) == is_kept


def test_a_table_that_is_shared_no_more_is_let_go() -> None:
    first = sharing_of(configuration(STORAGE))
    known = native_table(first)
    without = sharing_of(configuration(STORAGE, tables=""), previous=first)
    assert native_table(sharing_of(configuration(STORAGE), previous=without)) is not known


def test_signers_follow_the_keys_and_so_does_the_end_of_urls() -> None:
    soon = (datetime.now(UTC) + timedelta(minutes=20)).isoformat()
    lasting = sharing_of(configuration(STORAGE))
    (table,) = lasting.catalog.tables()
    opened = lasting.tables.open(table)
    assert not opened.url_signers.is_valid
    signers = opened.signers
    assert opened.url_signers.is_valid
    assert opened.signers is signers
    ending = sharing_of(
        configuration(f"{STORAGE}, sessionToken: t, sessionExpires: '{soon}'"), previous=lasting
    )
    again = ending.tables.open(table)
    assert again.table is opened.table
    assert again.signers is not signers
    storages = ending.tables.storages
    assert [prefix for prefix, _ in storages.expiries()] == ["s3://bucket/"]
    assert storages.due() == []
    storages.store(table.location).keys._ask_at_seconds = 0
    assert storages.due() == [storages.store(table.location)]
    renew(storages.due())
    assert storages.due() == []


def test_keys_that_were_taken_out_of_the_configuration_open_nothing_any_more() -> None:
    keyed = sharing_of("gateway: {anonymous: true, tokenKeys: [{id: a, secret: a secret for the tests}]}\n")
    keyless = sharing_of("gateway: {anonymous: true}\n", previous=keyed)
    again = sharing_of("gateway: {anonymous: true}\n", previous=keyless)
    old, made = (state.sealer.seal("list", "alice", {"n": 1}, expires_ms=2000) for state in (keyed, keyless))
    with pytest.raises(InvalidToken):
        keyless.sealer.open("list", "alice", old, now_ms=1000)
    assert again.sealer.open("list", "alice", made, now_ms=1000) == {"n": 1}


async def test_what_is_kept_of_a_table_reads_nothing(demo_tables) -> None:
    text = (
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{{name: t, location: '{demo_tables}/orders', "
        "historyShared: true}]}]}]\n"
        "gateway: {anonymous: true, storageFaults: {staleSeconds: 60, failures: 1000}}\n"
    )
    state = sharing_of(text)
    tables = state.tables
    (table,) = state.catalog.tables()

    async def stale(call: Callable[[OpenTable], object]) -> object:
        def of_a_storage_that_is_down(opened: OpenTable) -> object:
            if not opened.stale:
                raise _native.StorageUnavailable("it does not answer")
            assert "storage-" not in threading.current_thread().name
            return call(opened)

        return await tables.read(table, of_a_storage_that_is_down)

    async def is_refused(call: Callable[[OpenTable], object]) -> None:
        with pytest.raises(_native.StorageUnavailable):
            await stale(call)

    try:
        # Nothing is kept before the first look.
        await is_refused(lambda opened: opened.snapshot())
        latest = await tables.read(table, lambda opened: opened.snapshot())
        await tables.read(table, lambda opened: (opened.signers, latest.totals()))
        version, identity = latest.version, latest.identity
        assert (await stale(lambda opened: opened.snapshot())).identity == identity
        assert (await stale(lambda opened: opened.snapshot(version=version))).identity == identity
        assert (await stale(lambda opened: opened.pinned(identity=identity))).version == version
        assert (await stale(lambda opened: opened.refreshed(version))).version == version
        assert await stale(lambda opened: opened.signers) is tables.open(table).signers
        await is_refused(lambda opened: opened.snapshot(version=version - 1))
        await is_refused(lambda opened: opened.snapshot(timestamp_ms=1))
        await is_refused(lambda opened: opened.pinned(identity="another"))
        await is_refused(lambda opened: opened.refreshed(version - 1))
        await is_refused(lambda opened: opened.version_at_or_after(1))
        start, end = TimeTravel(version=0), TimeTravel()
        await is_refused(lambda opened: opened.changes(start=start, end=end, change_data_feed=True))
        await is_refused(lambda opened: opened.native)
    finally:
        tables.close()
