"""Tables on a store with sessions, read by engines that have nothing but the keys of an answer.

MinIO verifies the keys and holds the session's policy.
"""

import hashlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from botocore.exceptions import ClientError
from deltalake import DeltaTable
from support.aws_identity import ROLE
from support.directory_readers import ENGINES, NotRead, store_options
from support.gateway_process import TOKEN, RunningGateway, running_gateway, storage_with_sessions, table_path
from support.versitygw import S3Server
from tables.demo import ROWS

from gateway.client.pages import ShareClient
from gateway.client.profile import Profile
from gateway.client.table_name import TableName
from gateway.config import Location
from gateway.config.networks import parse_networks
from gateway.config.secret import Secret
from gateway.config.storages.s3 import S3Entry
from gateway.spark.verify.directory import compare_directory
from gateway.spark.verify.errors import NotCompared
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.aws.vendor import issued_session
from gateway.storage.vending.credential import CredentialRequest

BUCKET, LAKE = "directory-access", "lake"
QUOTED = 'it\'s "quoted"'
NEIGHBOURS = [
    "orders2",
    "orders*",
    "order?",
    "orders$",
    "orders${*}",
    "*",
    "?rders",
    '"',
    "'",
    "Orders",
    "{orders}",
]
TABLES = {
    "orders": f"{LAKE}/orders",
    "cities": f"{LAKE}/cities",
    "readings": f"{LAKE}/readings",
    "quoted": f"{LAKE}/{QUOTED}/orders",
}
BOB = "the-token-of-bob"
LOG = "_delta_log/00000000000000000000.json"


@pytest.fixture(scope="module")
def store(s3_with_sts: S3Server, demo_tables: Path) -> S3Server:
    for name in ("orders", "cities", "readings"):
        s3_with_sts.upload(demo_tables / name, BUCKET, f"{LAKE}/{name}")
    s3_with_sts.upload(demo_tables / "orders", BUCKET, f"{LAKE}/{QUOTED}/orders")
    with closing(s3_with_sts.client()) as client:
        for name in NEIGHBOURS:
            client.put_object(Bucket=BUCKET, Key=f"{LAKE}/{name}/_delta_log/x", Body=b"secret")
        client.put_object(Bucket=BUCKET, Key="orders/x", Body=b"secret")
    return s3_with_sts


@pytest.fixture(scope="module")
def gateway(store: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    entry = storage_with_sessions(store, f"s3://{BUCKET}/")
    tables = [
        {
            "name": name,
            "location": f"s3://{BUCKET}/{key}",
            "historyShared": True,
            "accessModes": ["url", "dir"],
        }
        for name, key in TABLES.items()
    ]
    recipients = [
        {
            "name": name,
            "tokens": [{"sha256": hashlib.sha256(token.encode()).hexdigest()}],
            "shares": ["*"],
            "networks": networks,
        }
        for name, token, networks in (("tests", TOKEN, []), ("bob", BOB, ["127.0.0.0/8", "::1"]))
    ]
    shares = [{"name": "demo", "schemas": [{"name": "default", "tables": tables}]}]
    directory = tmp_path_factory.mktemp("directory-access")
    section = {"storages": [entry], "recipients": recipients, "drainDelaySeconds": 0}
    with running_gateway(directory, shares, section, temporaryCredentialValiditySeconds=900) as gateway:
        yield gateway


def vended(gateway: RunningGateway, table: str, *, token: str | None = None) -> dict[str, Any]:
    path = f"{table_path(f'demo.default.{table}')}/temporary-table-credentials"
    answer = gateway.request("POST", path, token=token)
    assert answer.status == 200, (answer.body, gateway.log.read_text()[-3000:])
    found: dict[str, Any] = answer.json["credentials"]
    assert found["location"] == f"s3://{BUCKET}/{TABLES[table]}"
    return found


def status_of(call: Any, **arguments: Any) -> int:
    try:
        call(Bucket=BUCKET, **arguments)
    except ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
    return 200


def rows_of(found: list[dict[str, Any]], table: str) -> list[tuple[str, ...]]:
    columns = {
        "orders": ("order", "customer", "amount"),
        "cities": ("city", "inhabitants", "founded", "region"),
        # Engines write times in different forms.
        "readings": ("sensor", "celsius"),
    }
    # An engine may leave null out.
    return sorted(tuple(str(row.get(name)) for name in columns[table]) for row in found)


def expected_rows(table: str) -> list[tuple[str, ...]]:
    rows = [(row[0], row[2]) for row in ROWS[table]] if table == "readings" else ROWS[table]
    return sorted(tuple(map(str, row)) for row in rows)


BY_DAY = {("duckdb", "readings"), ("deltalake", "orders")}
"""For each engine the table that has the most of what it can read."""


@pytest.mark.parametrize(
    ("engine", "table"),
    [
        pytest.param(engine, table, marks=[] if (engine, table) in BY_DAY else [pytest.mark.nightly])
        for engine in ENGINES
        for table in ("orders", "cities", "readings")
        # It reads no deletion vectors.
        if (engine, table) != ("deltalake", "readings")
    ],
)
def test_an_engine_reads_a_table_by_the_keys_alone(
    store: S3Server, gateway: RunningGateway, engine: str, table: str
) -> None:
    credentials = vended(gateway, table)
    options = store_options(credentials, store.endpoint, store.region)
    found = ENGINES[engine](credentials["location"], options)
    assert rows_of(found, table) == expected_rows(table)
    without = options | {"AWS_SESSION_TOKEN": vended(gateway, "quoted")["awsTempCredentials"]["sessionToken"]}
    with pytest.raises(NotRead):
        ENGINES[engine](credentials["location"], without)
    with pytest.raises(NotRead):
        ENGINES[engine](f"s3://{BUCKET}/{TABLES['cities' if table == 'orders' else 'orders']}", options)


@pytest.mark.parametrize("table", TABLES)
def test_the_files_of_the_directory_are_those_of_the_urls(
    store: S3Server, gateway: RunningGateway, table: str
) -> None:
    answer = gateway.query(
        f"demo.default.{table}", {}, "responseformat=parquet,delta;readerfeatures=deletionvectors"
    )
    urls = [
        line["file"].get("url") or line["file"]["deltaSingleAction"]["add"]["path"]
        for line in answer.lines
        if "file" in line
    ]
    keys = {unquote(urlsplit(url).path).removeprefix(f"/{BUCKET}/") for url in urls}
    assert keys
    credentials = vended(gateway, table)
    if table != "quoted":
        options = store_options(credentials, store.endpoint, store.region)
        uris = DeltaTable(credentials["location"], storage_options=options).file_uris()
        # It keeps a percent sign of a key as it is, and encodes other characters.
        assert {*map(unquote, uris)} == {unquote(f"s3://{BUCKET}/{key}") for key in keys}
    with closing(store.client(credentials["awsTempCredentials"])) as client:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{TABLES[table]}/")
        listed = {one["Key"] for page in pages for one in page["Contents"]}
        assert keys <= listed
        for key in keys:
            assert status_of(client.get_object, Key=key) == 200


@pytest.mark.parametrize("table", TABLES)
def test_verify_finds_the_same_files_by_both_ways(
    store: S3Server, gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    client = ShareClient(Profile.load(str(gateway.profile)), TableName.parse(f"demo.default.{table}"))
    head = client.head()
    assert head.access_modes == ("url", "dir")
    environment = {"AWS_REGION": store.region, "AWS_ENDPOINT_URL": store.endpoint}
    for has_history in (True, False):
        found = compare_directory(client, head.version, has_history=has_history, environment=environment)
        assert found == []
    if table == "orders":
        with pytest.raises(NotCompared, match="new version meanwhile"):
            compare_directory(client, 0, has_history=False, environment=environment)
        monkeypatch.setattr(client, "version", lambda: 0)
        earlier = compare_directory(client, 0, has_history=False, environment=environment)
        assert len([line for line in earlier if "files" in line]) == 2


@pytest.mark.parametrize("table", ["orders", "quoted"])
def test_everything_outside_of_the_directory_and_every_change_is_denied(
    store: S3Server, gateway: RunningGateway, table: str
) -> None:
    root = TABLES[table]
    others = [*(f"{LAKE}/{name}" for name in NEIGHBOURS), "orders", *({*TABLES.values()} - {root})]
    with closing(store.client(vended(gateway, table)["awsTempCredentials"])) as client:
        log = f"{root}/{LOG}"
        assert status_of(client.get_object, Key=log) == 200
        assert status_of(client.list_objects_v2, Prefix=f"{root}/_delta_log/") == 200
        for other in others:
            for key in (f"{other}/_delta_log/x", f"{other}/x", other):
                assert status_of(client.get_object, Key=key) == 403, key
            for prefix in (f"{other}/", f"{other}/_delta_log/"):
                assert status_of(client.list_objects_v2, Prefix=prefix) == 403, prefix
        up = "../" * root.count("/")
        for key in (
            f"{root}/{up}cities/{LOG}",
            f"{root}/_delta_log/../{up}cities/{LOG}",
            f"{root}/{up}../orders/x",
        ):
            # The key of an object that is there, once its dots are resolved.
            assert status_of(client.get_object, Key=key) in {400, 403}, key
        for prefix in ("", LAKE, f"{LAKE}/", root):
            assert status_of(client.list_objects_v2, Prefix=prefix) == 403, prefix
        assert status_of(client.list_objects_v2) == 403
        assert status_of(client.put_object, Key=f"{root}/x", Body=b"") == 403
        assert status_of(client.delete_object, Key=log) == 403
        assert status_of(client.get_bucket_policy) == 403


def test_keys_for_a_recipients_networks_work_from_there_alone(
    store: S3Server, gateway: RunningGateway
) -> None:
    key = f"{TABLES['orders']}/_delta_log/00000000000000000000.json"
    near = vended(gateway, "orders", token=BOB)
    with closing(store.client(near["awsTempCredentials"])) as client:
        assert status_of(client.get_object, Key=key) == 200
    entry = S3Entry(
        Location("s3", BUCKET, ""),
        endpoint=store.endpoint,
        sts_endpoint=store.endpoint,
        path_style=True,
        directory_role_arn=ROLE,
    )
    far = issued_session(
        entry,
        CredentialRequest(
            Location("s3", BUCKET, TABLES["orders"]), "carol", parse_networks(["192.0.2.0/24"]), 900
        ),
        S3Credentials(Secret(store.access_key_id), Secret(store.secret_access_key)),
        {},
        region=store.region,
    )
    fields = {name: value.reveal() for name, value in far.fields.items()}
    with closing(store.client(fields)) as client:
        assert status_of(client.get_object, Key=key) == 403
        assert status_of(client.list_objects_v2, Prefix=f"{TABLES['orders']}/") == 403


def test_no_log_line_has_a_key_or_the_location(gateway: RunningGateway) -> None:
    found = vended(gateway, "orders")
    log = gateway.logged("temporary-table-credentials")
    for secret in found["awsTempCredentials"].values():
        assert secret not in log
    assert BUCKET not in log
