"""Stores of a configuration: what a reload keeps, and signers that follow the credentials."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import botocore.session
import pytest
from support.google_identity import UNUSABLE
from support.http_service import Request, Response, serving

from gateway import _native
from gateway.authentication.sealed_tokens import InvalidToken
from gateway.catalog.catalog import Catalog
from gateway.config import Location, Secret, loads
from gateway.config.storages import StorageForm
from gateway.config.storages.entry import LocalEntry, StorageEntry
from gateway.config.storages.s3 import S3Entry
from gateway.config.storages.session_policy import partition_of
from gateway.protocol.queries import TimeTravel
from gateway.state import GatewayState
from gateway.storage import registry
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.aws.identity import AwsIdentity
from gateway.storage.aws.store import s3_endpoint
from gateway.storage.azure.credentials import AzureCredentials
from gateway.storage.breaker import State
from gateway.storage.calls import Caller
from gateway.storage.credentials import CredentialsFailed, CredentialsUnavailable
from gateway.storage.gcs.credentials import GcsCredentials
from gateway.storage.refreshing_credentials import FILE_SECONDS
from gateway.storage.registry import Storages
from gateway.tables import signers as table_signers
from gateway.tables.open_table import OpenTable
from gateway.tables.registry import ServedTables


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
    now_seconds = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    keys._now_seconds = lambda: now_seconds
    first = keys.get()
    file.write_text(text.format("second"))
    assert keys.get() is first
    now_seconds += FILE_SECONDS
    assert not keys.is_valid
    second = keys.get()
    assert second.access_key_id == Secret("second")
    now_seconds += FILE_SECONDS
    assert keys.get() is second
    # While the file is rewritten it is empty: no role replaces its keys.
    file.write_text("")
    now_seconds += FILE_SECONDS
    assert keys.get() is second
    file.write_text(text.format("third"))
    now_seconds += FILE_SECONDS
    assert keys.get().access_key_id == Secret("third")


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


def test_the_breaker_of_a_storage_ends_with_its_last_table() -> None:
    first = sharing_of(configuration(STORAGE, tables="t,u"))
    for location in ("s3://bucket/t", "s3://other/x"):
        breaker = first.tables.storages.calls(Location.parse(location)).breaker
        for _ in range(10):
            breaker.failed(time.monotonic())
    assert list(first.tables.storages.breakers()) == [("s3://bucket", True), ("s3://other", True)]
    second = sharing_of(configuration(STORAGE, tables="u"), previous=first)
    assert list(second.tables.storages.breakers()) == [("s3://bucket", True)]
    without = sharing_of("gateway: {anonymous: true}\n", previous=second)
    assert list(without.tables.storages.breakers()) == []
    root = sharing_of("gateway: {anonymous: true, allowedRoots: ['s3://bucket/c']}\n", previous=second)
    assert list(root.tables.storages.breakers()) == [("s3://bucket", True)]


def test_the_breaker_of_a_storage_ends_with_its_last_stored_table() -> None:
    state = sharing_of(configuration(STORAGE, tables="t,u"))
    calls = state.tables.storages.calls(Location.parse("s3://bucket/t"))
    for tables, used in (("u", [calls]), ("", [])):
        catalog = Catalog.of(loads(f"version: 1\n{configuration(STORAGE, tables=tables)}").shares)
        state.tables.serve(ServedTables.of(state.config, catalog))
        assert state.tables.storages.used() == used


def test_the_breaker_of_a_mount_outlives_reloads_without_requests(tmp_path: Path) -> None:
    def local(name: str) -> str:
        tables = f"tables: [{{name: t, location: {tmp_path / name}}}]"
        return f"shares: [{{name: s, schemas: [{{name: d, {tables}}}]}}]\ngateway: {{anonymous: true}}\n"

    first = sharing_of(local("t"))
    calls = first.tables.storages.calls(Location.parse(str(tmp_path / "t")))
    second = sharing_of(local("t"), previous=sharing_of(local("t"), previous=first))
    # Another table of the mount.
    third = sharing_of(local("u"), previous=second)
    assert third.tables.storages.used() == [calls]
    without = sharing_of(configuration(STORAGE), previous=third)
    assert without.tables.storages.used() == []


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
    storages.store(table.location).keys._renew_at_seconds = 0
    assert storages.due() == [storages.store(table.location)]
    storages.renew_due()
    ended = time.monotonic() + 10
    while storages.due():
        assert time.monotonic() < ended
        time.sleep(0.01)


def test_keys_removed_from_the_configuration_are_not_used() -> None:
    keyed = sharing_of("gateway: {anonymous: true, tokenKeys: [{id: a, secret: a secret for the tests}]}\n")
    keyless = sharing_of("gateway: {anonymous: true}\n", previous=keyed)
    again = sharing_of("gateway: {anonymous: true}\n", previous=keyless)
    old, made = (state.sealer.seal("list", "alice", {"n": 1}, expires_ms=2000) for state in (keyed, keyless))
    with pytest.raises(InvalidToken):
        keyless.sealer.open("list", "alice", old, now_ms=1000)
    assert again.sealer.open("list", "alice", made, now_ms=1000) == {"n": 1}


async def test_a_kept_snapshot_is_returned_without_a_read(demo_tables) -> None:
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

        return await tables.read("a", table, of_a_storage_that_is_down)

    async def is_refused(call: Callable[[OpenTable], object]) -> None:
        with pytest.raises(_native.StorageUnavailable):
            await stale(call)

    try:
        # Nothing is kept before the first look.
        await is_refused(lambda opened: opened.snapshot())
        latest = await tables.read("a", table, lambda opened: opened.snapshot())
        await tables.read("a", table, lambda opened: (opened.signers, latest.totals()))
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


CONTAINERS = "abfss://one@acct.dfs.core.windows.net", "abfss://two@acct.dfs.core.windows.net"


def storages(*entries: str) -> Storages:
    text = f"version: 1\ngateway: {{anonymous: true, storages: [{', '.join(entries)}]}}"
    return Storages(loads(text), url_key=b"k" * 32, environment={"AWS_REGION": "eu-west-1"})


def test_buckets_and_containers_share_the_credentials_of_their_identity() -> None:
    def keys(of: Storages, location: str) -> object:
        return of.store(Location.parse(location)).keys

    key = "accountKey: a2V5"
    shared = storages(*(f"{{prefix: '{container}', {key}}}" for container in CONTAINERS))
    assert keys(shared, CONTAINERS[0]) is keys(shared, CONTAINERS[1])
    assert keys(shared, CONTAINERS[0]) is not keys(shared, CONTAINERS[0].replace("acct", "other"))
    apart = storages(
        f"{{prefix: '{CONTAINERS[0]}', {key}}}", f"{{prefix: '{CONTAINERS[1]}', accountKey: b3RoZXI=}}"
    )
    assert keys(apart, CONTAINERS[0]) is not keys(apart, CONTAINERS[1])
    none = storages("{prefix: 's3://role', roleArn: 'arn:aws:iam::123456789012:role/reader'}")
    assert keys(none, "s3://one/t") is keys(none, "s3://two/t")
    assert keys(none, "s3://one/t") is not keys(none, "s3://role/t")
    assert keys(none, "gs://one/t") is not keys(none, "s3://one/t")


def test_the_hosts_and_the_partitions_of_regions_are_those_of_botocore() -> None:
    session = botocore.session.Session()
    entry = S3Entry(Location("s3", "bucket", ""))
    for partition in session.get_available_partitions():
        if partition.startswith("aws-iso"):
            # Of secret networks: they need an `endpoint`.
            continue
        for region in session.get_available_regions("s3", partition):
            assert partition_of("", region) == partition
        client = session.create_client(
            "s3", region_name=region, aws_access_key_id="a", aws_secret_access_key="b"
        )
        usual = f"https://s3.{region}.amazonaws.com"
        assert (s3_endpoint(region, entry) or usual) == client.meta.endpoint_url


@pytest.mark.parametrize(
    ("keys", "host"),
    [
        ("region: eu-west-1", None),
        ("dualStack: true", "https://s3.dualstack.eu-west-1.amazonaws.com"),
        ("fips: true, region: us-east-2", "https://s3-fips.us-east-2.amazonaws.com"),
        ("fips: true, dualStack: true", "https://s3-fips.dualstack.eu-west-1.amazonaws.com"),
        ("region: cn-north-1", "https://s3.cn-north-1.amazonaws.com.cn"),
        ("region: us-gov-west-1", None),
        ("region: eusc-de-east-1", "https://s3.eusc-de-east-1.amazonaws.eu"),
        ("endpoint: 'https://acct.r2.cloudflarestorage.com'", "https://acct.r2.cloudflarestorage.com"),
    ],
)
def test_a_bucket_of_aws_is_reached_and_signed_at_the_host_of_its_entry(keys: str, host: str | None) -> None:
    held = storages(
        f"{{prefix: 's3://bucket', accessKeyId: a, secretAccessKey: b, requesterPays: true, {keys}}}"
    )
    location = Location.parse("s3://bucket/t")
    entry = held.entry(location)
    assert isinstance(entry, S3Entry)
    region = entry.region or "eu-west-1"
    assert s3_endpoint(region, entry) == host
    url, _ = held.store(location).signer(location, "id").sign("t/a", now_ms=0, lifetime_seconds=60)
    expected = (host or f"https://s3.{region}.amazonaws.com").replace("https://", "https://bucket.")
    assert url.startswith(f"{expected}/t/a?")
    assert "x-amz-request-payer=requester" in url


def test_every_kind_of_entry_has_a_store() -> None:
    assert {*get_args(StorageForm), LocalEntry} - {StorageEntry} == registry._STORES.keys()


def test_a_url_of_azure_and_google_is_signed_at_the_public_endpoint() -> None:
    held = storages(
        f"{{prefix: '{CONTAINERS[0]}', accountKey: a2V5, publicEndpoint: 'https://files.example.com'}}",
        "{prefix: 'gs://bucket', accessKeyId: a, secretAccessKey: b, publicEndpoint: 'https://files.example.com'}",
    )
    for text, start in (
        (f"{CONTAINERS[0]}/t", "https://files.example.com/one/t/a?"),
        ("gs://bucket/t", "https://files.example.com/bucket/t/a?"),
    ):
        location = Location.parse(text)
        url, _ = held.store(location).signer(location, "id").sign("t/a", now_ms=0, lifetime_seconds=60)
        assert url.startswith(start)


def test_another_root_without_credentials_fails_its_own_files_alone(tmp_path: Path) -> None:
    user, key = tmp_path / "user.json", "accessKeyId: a, secretAccessKey: b"
    user.write_text(json.dumps(UNUSABLE))
    gateway = f"""
    anonymous: true
    allowedRoots: ['gs://bucket/kept']
    storages: [{{prefix: 's3://bucket', {key}}}, {{prefix: 'gs://bucket', credentialsFile: {user}}}]
    """
    tables = "[{name: s, schemas: [{name: d, tables: [{name: t, location: 's3://bucket/t'}]}]}]"
    state = sharing_of(f"shares: {tables}\ngateway: {gateway}")
    (table,) = state.catalog.tables()
    signers = state.tables.open(table).url_signers
    made = signers.signers()
    assert signers.is_valid
    assert signers.signers() is made
    store = state.tables.storages.store(Location.parse("gs://bucket/kept"))
    assert store in state.tables.storages.due(), "its credentials are requested in the background"
    assert store.keys is not None
    # Once it has some, the signers are made again.
    store.keys._request = lambda: GcsCredentials(access_id=Secret("a"), secret=Secret("b"))
    store.keys._refused = None
    store.native = _native.Storage.s3("bucket", region="auto")
    store.renew()
    assert not signers.is_valid
    assert signers.signers() is not made
    assert signers.is_valid
    state.tables.close()


LISTED = (
    b"<?xml version='1.0'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><Name>bucket</Name>"
    b"<KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>"
)


def test_two_prefixes_of_a_bucket_are_read_each_with_its_own_key() -> None:
    accepted = {"t1": "KEYONE", "t2": "KEYTWO"}

    def answer(request: Request) -> Response:
        key = request.headers["authorization"].partition("Credential=")[2].partition("/")[0]
        held = accepted[request.query["prefix"].strip("/")]
        return Response(200, LISTED, {"Content-Type": "application/xml"}) if key == held else Response(403)

    with serving(answer) as service:

        def configured(first: str) -> str:
            entries = (("t1", first), ("t2", "KEYTWO"))
            given = f"endpoint: '{service.url}', pathStyle: true, retrySeconds: 0, secretAccessKey: s"
            storages = (
                f"{{prefix: 's3://bucket/{at}/', accessKeyId: {key}, {given}}}" for at, key in entries
            )
            return f"gateway: {{anonymous: true, storages: [{', '.join(storages)}]}}"

        def read(state: GatewayState, prefix: str) -> _native.Storage:
            location = Location.parse(f"s3://bucket/{prefix}")
            store = state.tables.storages.store(location)
            store.renew()
            store.native.list_directories(location.key)
            return store.native

        first = sharing_of(configured("KEYONE"))
        natives = [read(first, prefix) for prefix in ("t1", "t2", "t1", "t2")]
        accepted["t1"] = "KEYNEW"
        after = sharing_of(configured("KEYNEW"), previous=first)
        assert [read(after, prefix) for prefix in ("t1", "t2", "t1")] == natives[:3]
        # A request of the configuration before may end after the reload.
        with pytest.raises(_native.StorageDenied):
            read(first, "t1")
        read(after, "t1")
        for state in (first, after):
            state.tables.close()


@pytest.mark.parametrize(
    ("place", "keys"),
    [
        ("s3://bucket", "accessKeyId: {}, secretAccessKey: s"),
        ("abfss://bucket@acct.dfs.core.windows.net", "identity: managedIdentity, clientId: {}"),
        ("gs://bucket", "accessKeyId: {}, secretAccessKey: s"),
        ("gs://bucket", "impersonate: '{}@project.iam.gserviceaccount.com'"),
    ],
)
def test_identities_of_one_bucket_share_no_native_storage(place: str, keys: str) -> None:
    held = storages(*(f"{{prefix: '{place}/{one}/', {keys.format(one)}}}" for one in ("one", "two")))
    one, two = (held.store(Location.parse(f"{place}/{prefix}/t")) for prefix in ("one", "two"))
    assert one.native is not two.native
    assert held.store(Location.parse(f"{place}/one/u")).native is one.native


ROLES = """
gateway:
  anonymous: true
  allowedRoots: ['s3://bucket/kept']
  storages:
  - {prefix: 's3://bucket/kept', roleArn: 'arn:aws:iam::123456789012:role/kept'}
  - {prefix: 's3://bucket', roleArn: 'arn:aws:iam::123456789012:role/reader'}
shares: [{name: s, schemas: [{name: d, tables: [
  {name: t, location: 's3://bucket/t'}, {name: u, location: 's3://bucket/u'}]}]}]
"""


class TokenService:
    """Sessions of roles; it may hang or be away for each of them."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.away: set[str] = set()
        self.hanging: set[str] = set()
        self.released = threading.Event()

    def request(self, role: str) -> S3Credentials:
        self.requests.append(role)
        if role in self.hanging:
            assert self.released.wait(10)
        if role in self.away:
            raise CredentialsUnavailable("the token service is away")
        expires = datetime.now(UTC) + timedelta(hours=1)
        return S3Credentials(Secret(role), Secret("s"), Secret("t"), expires)


@pytest.mark.parametrize(
    ("status", "code", "renewed"),
    [
        (400, "ExpiredToken", 1),
        (403, "InvalidAccessKeyId", 1),
        (403, "AccessDenied", 0),
        (503, "SlowDown", 0),
    ],
)
@pytest.mark.parametrize(
    "call",
    [
        lambda opened: opened.snapshot(),
        lambda opened: opened.snapshot(version=0),
        lambda opened: opened.version_at_or_after(1),
        lambda opened: opened.changes(start=TimeTravel(version=0), end=TimeTravel(), change_data_feed=False),
    ],
)
async def test_a_session_that_the_store_does_not_accept_is_renewed_before_its_end(
    token_service: TokenService,
    call: Callable[[OpenTable], object],
    status: int,
    code: str,
    renewed: int,
) -> None:
    body = f"<Error><Code>{code}</Code></Error>".encode()
    with serving(lambda _: Response(status, body)) as service:
        entry = (
            f"{{prefix: 's3://bucket', roleArn: 'arn:aws:iam::123456789012:role/reader', "
            f"endpoint: '{service.url}', pathStyle: true, retrySeconds: 0}}"
        )
        table = "{name: t, location: 's3://bucket/t', historyShared: true}"
        tables = f"[{{name: s, schemas: [{{name: d, tables: [{table}]}}]}}]"
        state = sharing_of(f"shares: {tables}\ngateway: {{anonymous: true, storages: [{entry}]}}")
        (shared,) = state.catalog.tables()
        keys = state.tables.storages.store(shared.location).keys
        assert keys is not None
        for seconds in (0, 10, 10):
            keys._now_seconds = lambda seconds=seconds: time.time() + seconds
            with pytest.raises(_native.LogError):
                await state.tables.read("a", shared, call)
        # The first refusal is of a session that was just requested.
        assert len(token_service.requests) == 1 + renewed
        state.tables.close()


@pytest.fixture
def token_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenService]:
    service = TokenService()

    def request(identity: AwsIdentity) -> S3Credentials:
        assert identity._entry is not None
        return service.request(str(identity._entry.role_arn).rpartition("/")[2])

    monkeypatch.setattr(AwsIdentity, "request", request)
    yield service
    service.released.set()


def until(holds: Callable[[], bool]) -> None:
    ended = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < ended
        time.sleep(0.01)


def test_a_reload_keeps_sessions_while_the_token_service_is_away(token_service: TokenService) -> None:
    first = sharing_of(ROLES)
    location = Location.parse("s3://bucket/t")
    known = first.tables.storages.store(location).renew()
    token_service.away |= {"reader", "another"}
    after = sharing_of(ROLES + "preSignedUrlTimeoutSeconds: 600", previous=first).tables.storages
    assert after.store(location).renew() is known
    other = sharing_of(ROLES.replace("role/reader", "role/another"), previous=first).tables.storages
    with pytest.raises(CredentialsFailed):
        other.store(location).renew()


def test_a_user_delegation_key_belongs_to_a_lifetime_of_urls() -> None:
    def keys(seconds: int, previous: GatewayState | None = None) -> tuple[GatewayState, Any]:
        entry = f"{{prefix: '{CONTAINERS[0]}', identity: managedIdentity}}"
        text = f"gateway: {{anonymous: true, storages: [{entry}]}}\npreSignedUrlTimeoutSeconds: {seconds}"
        state = sharing_of(text, previous)
        found = state.tables.storages.store(Location.parse(f"{CONTAINERS[0]}/t")).keys
        assert found is not None
        return state, found

    first, held = keys(3600)
    held._current = AzureCredentials(token=Secret("t"), expires=datetime.now(UTC) + timedelta(hours=1))
    same, kept = keys(3600, first)
    assert kept.current is held.current
    assert keys(7 * 24 * 3600, same)[1].current is None


async def test_an_identity_without_credentials_does_not_open_the_breaker_of_its_bucket(
    token_service: TokenService,
) -> None:
    held = sharing_of(ROLES).tables.storages
    dead, alive = (Location.parse(f"s3://bucket/{key}/t") for key in ("kept", "other"))
    token_service.away.add("kept")
    calls = held.calls(dead)
    assert held.calls(alive) is calls
    for _ in range(20):
        with pytest.raises(CredentialsFailed):
            await calls.run(Caller("a", "t"), held.store(dead).renew)
    assert calls.breaker.state is State.CLOSED
    assert await calls.run(Caller("a", "t"), held.store(alive).renew)
    # Nor does it close one that is open.
    calls.breaker.state = State.PROBING
    with pytest.raises(CredentialsFailed):
        await calls.run(Caller("a", "t"), held.store(dead).renew)
    assert calls.breaker.state is State.PROBING
    held.close()


def test_an_identity_that_hangs_stops_the_renewal_of_no_other(token_service: TokenService) -> None:
    held = sharing_of(ROLES).tables.storages
    stores = [held.store(Location.parse(f"s3://bucket/{key}/t")) for key in ("kept", "other")]
    for store in stores:
        store.renew()
        assert store.keys is not None
        store.keys._renew_at_seconds = 0
    token_service.requests.clear()
    token_service.hanging.add("kept")
    held.renew_due()
    until(lambda: held.due() == stores[:1] and "kept" in token_service.requests)
    for _ in range(5):
        held.renew_due()
    assert sorted(token_service.requests) == ["kept", "reader"]
    token_service.released.set()
    until(lambda: held.due() == [])


def test_an_allowed_root_whose_identity_hangs_delays_tables_once_and_shortly(
    token_service: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_signers, "FIRST_REQUEST_SECONDS", 0.5)
    token_service.hanging.add("kept")
    state = sharing_of(ROLES)
    opened = [state.tables.open(table) for table in state.catalog.tables()]
    start = time.monotonic()
    for table in opened:
        assert table.signers is table.signers
        assert table.url_signers.is_valid
    assert time.monotonic() - start < 5
    assert token_service.requests.count("kept") == 1
    token_service.released.set()
    until(lambda: not opened[0].url_signers.is_valid)
    made = opened[0].signers
    assert opened[0].url_signers.is_valid
    assert opened[0].signers is made
    state.tables.close()
