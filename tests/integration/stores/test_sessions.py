"""Tables on S3 by sessions: roles, profiles and instances whose keys a store with sessions verifies."""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.aws_identity import (
    ROLE,
    InstanceMetadata,
    Session,
    Sts,
    credential_process_output,
    running_instance,
    running_sts,
    single_sign_on_answer,
)
from support.gateway_process import RunningGateway, files_of, running_gateway, share
from support.http_service import Request, Response, json_response
from support.http_service import serving as portal
from support.native import native
from support.nightly import some_at_night
from support.odd_tables import ODD_KEYS, in_log, write_log
from support.official_client import OfficialClient
from support.raw_http import get
from support.versitygw import S3Server
from tables.demo import ROWS

from gateway.config import Location
from gateway.config.secret import Secret
from gateway.config.storages.s3 import S3Entry
from gateway.storage.aws.identity import AwsIdentity
from gateway.storage.refreshing_credentials import RefreshingCredentials

BUCKET, ROOT = "sessions", "ware house/50%+=ü"
LONG_LIVED = ("AKIATESTS", "the-long-lived-secret")
EXTERNAL_ID = "share:2026/x"


@pytest.fixture(scope="module")
def store(s3_with_sts: S3Server, demo_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> S3Server:
    """MinIO with the demo's cities and a table of odd keys."""
    table = tmp_path_factory.mktemp("sessions") / "odd"
    write_log(table, {in_log(key): key.encode() for key in ODD_KEYS})
    s3_with_sts.upload(table, BUCKET, f"{ROOT}/odd")
    s3_with_sts.upload(demo_tables / "cities", BUCKET, f"{ROOT}/cities")
    with closing(s3_with_sts.client()) as client:
        for key in ODD_KEYS:
            client.put_object(Bucket=BUCKET, Key=f"{ROOT}/odd/{key}", Body=key.encode())
    return s3_with_sts


def issue(store: S3Server, seconds: int) -> Session:
    """Keys of a session that the store verifies."""
    with closing(store.client(service="sts")) as client:
        lifetime = max(900, seconds)
        issued = client.assume_role(RoleArn=ROLE, RoleSessionName="tests", DurationSeconds=lifetime)
    keys = issued["Credentials"]
    ends = (datetime.now(UTC) + timedelta(seconds=seconds)).replace(microsecond=0)
    return Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], ends)


@pytest.fixture
def sts(store: S3Server) -> Iterator[Sts]:
    """A token service with one role, whose sessions the store verifies."""
    service = Sts(*LONG_LIVED, issue=lambda seconds: issue(store, seconds), external_id=EXTERNAL_ID)
    with running_sts(service):
        yield service


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No identity of this machine."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


@contextmanager
def serving(
    store: S3Server, directory: Path, entry: dict[str, Any], tables: tuple[str, ...] = ("odd",), **keys: Any
) -> Iterator[RunningGateway]:
    storage = {
        "prefix": f"s3://{BUCKET}/",
        "endpoint": store.endpoint,
        "region": store.region,
        "pathStyle": True,
        **entry,
    }
    directory.mkdir(exist_ok=True)
    shared = [share("demo", {table: f"s3://{BUCKET}/{ROOT}/{table}" for table in tables})]
    with running_gateway(
        directory, shared, {"storages": [storage], "drainDelaySeconds": 0}, **keys
    ) as served:
        yield served


def role(sts: Sts, **changes: Any) -> dict[str, Any]:
    """The keys of an entry whose long-lived key assumes the role."""
    return {
        "accessKeyId": LONG_LIVED[0],
        "secretAccessKey": LONG_LIVED[1],
        "roleArn": ROLE,
        "externalId": EXTERNAL_ID,
        "stsEndpoint": sts.url,
        **changes,
    }


def check(gateway: RunningGateway) -> list[dict[str, Any]]:
    """Every URL opens its file, and needs the session's token."""
    files = files_of(gateway)
    opened = [get(file["url"]) for file in files]
    assert sorted(opened) == sorted((200, key.encode()) for key in ODD_KEYS)
    assert all("X-Amz-Security-Token=" in file["url"] for file in files)
    return files


def test_the_role_of_a_store_with_sts_reads_and_signs(
    official_client: OfficialClient, store: S3Server, tmp_path: Path
) -> None:
    """MinIO itself is the token service."""
    entry = {
        "accessKeyId": store.access_key_id,
        "secretAccessKey": store.secret_access_key,
        "roleArn": ROLE,
        "stsEndpoint": store.endpoint,
        "sessionSeconds": 900,
    }
    with serving(store, tmp_path, entry, ("odd", "cities")) as gateway:
        now_ms = time.time() * 1000
        for file in check(gateway):
            # The session ends before the hour of a URL.
            assert 800_000 < file["expirationTimestamp"] - now_ms <= 900_000
            wrong = file["url"].replace("X-Amz-Security-Token=", "X-Amz-Security-Token=x", 1)
            assert get(wrong)[0] == 403
        for delta in (True, False):
            found = official_client.rows(
                gateway.profile, "demo.default.cities", ["city"], use_delta_format=delta
            )
            assert len(found) == len(ROWS["cities"])


def test_a_role_of_another_account_needs_its_external_id(store: S3Server, sts: Sts, tmp_path: Path) -> None:
    with serving(store, tmp_path / "right", role(sts, roleSessionName="gateway-eu")) as gateway:
        check(gateway)
        assert sts.names == ["gateway-eu"]
        log = gateway.log.read_text()
        for session in sts.sessions:
            assert session.secret_access_key not in log
            assert session.session_token not in log
    with serving(store, tmp_path / "wrong", role(sts, externalId="another")) as gateway:
        answer = gateway.query("demo.default.odd")
        assert (answer.status, answer.json["errorCode"]) == (403, "PERMISSION_DENIED")
        assert "trust" not in answer.json["message"]
        assert "externalId" in gateway.logged("AccessDenied")


REFUSALS = {
    "clock": ({"clock_offset": timedelta(minutes=20)}, {}, "SignatureDoesNotMatch"),
    "the role's longest session": ({"longest_seconds": 3600}, {"sessionSeconds": 7200}, "sessionSeconds"),
    "policies": ({"failures": [(400, "PackedPolicyTooLarge", "107%")] * 9}, {}, "PackedPolicyTooLarge"),
    "ended keys": ({"failures": [(403, "ExpiredToken", "expired")] * 9}, {}, "ExpiredToken"),
    "a disabled region": ({"failures": [(403, "RegionDisabledException", "")] * 9}, {}, "RegionDisabled"),
}


@pytest.mark.parametrize("refusal", some_at_night(REFUSALS.values()), ids=REFUSALS)
def test_a_refused_role_says_why_in_the_log_alone(
    store: S3Server, sts: Sts, tmp_path: Path, refusal: tuple[dict[str, Any], dict[str, Any], str]
) -> None:
    service, changes, reason = refusal
    for name, value in service.items():
        setattr(sts, name, value)
    with serving(store, tmp_path, role(sts, **changes)) as gateway:
        answer = gateway.query("demo.default.odd")
        assert answer.status in {403, 503}, answer.body
        assert reason not in answer.json["message"]
        gateway.logged(reason)


def test_a_chained_session_is_an_hour_at_most(store: S3Server, sts: Sts, tmp_path: Path) -> None:
    base = sts.issue(3600)
    sts.sessions.append(base)
    chained = {
        "accessKeyId": base.access_key_id,
        "secretAccessKey": base.secret_access_key,
        "sessionToken": base.session_token,
    }
    with serving(store, tmp_path / "hour", role(sts, **chained)) as gateway:
        check(gateway)
    with serving(store, tmp_path / "long", role(sts, **chained, sessionSeconds=7200)) as gateway:
        assert gateway.query("demo.default.odd").status == 403
        gateway.logged("sessionSeconds")


def test_sessions_are_renewed_at_half_of_their_life_and_after_a_failure(store: S3Server, sts: Sts) -> None:
    """On a clock of the test: a session lives for fifteen minutes at least."""
    clock = [time.time()]
    entry = S3Entry(
        Location.parse(f"s3://{BUCKET}/"),
        access_key_id=Secret(LONG_LIVED[0]),
        secret_access_key=Secret(LONG_LIVED[1]),
        role_arn=ROLE,
        external_id=EXTERNAL_ID,
        sts_endpoint=sts.url,
    )
    identity = AwsIdentity(entry, {}, store.region)
    keys = RefreshingCredentials(identity.request, lambda: clock[0])
    first = keys.get()
    clock[0] += 1700
    assert keys.get() is first
    clock[0] += 200
    sts.failures += [(400, "Throttling", "Rate exceeded")] * 2
    # The session lives on while the token service fails.
    assert keys.get() is first
    clock[0] += 10
    second = keys.get()
    assert second.access_key_id.reveal() == sts.sessions[-1].access_key_id
    assert len(sts.sessions) == 2
    clock[0] += 7200
    sts.failures += [(400, "Throttling", "Rate exceeded")] * 2
    with pytest.raises(native().StorageUnavailable):
        keys.get()


def test_a_server_that_starts_without_the_token_service_reads_when_it_is_back(
    store: S3Server, sts: Sts, tmp_path: Path
) -> None:
    sts.failures += [(500, "InternalFailure", "")] * 2
    with serving(store, tmp_path, role(sts)) as gateway:
        deadline = time.monotonic() + 40
        while (answer := gateway.query("demo.default.odd")).status != 200:
            assert answer.status in {403, 503}
            assert time.monotonic() < deadline, gateway.log.read_text()[-3000:]
            time.sleep(0.05)
        check(gateway)


def test_a_profile_with_a_credential_process_reads_and_signs(store: S3Server, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho '{credential_process_output(issue(store, 900))}'\n")
    program.chmod(0o755)
    (tmp_path / "config").write_text(f"[profile archive]\ncredential_process = {program}\n")
    with serving(store, tmp_path / "served", {"profile": "archive"}) as gateway:
        check(gateway)


def test_a_profile_with_a_role_reads_and_signs(
    store: S3Server, sts: Sts, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AWS_ENDPOINT_URL_STS", sts.url)
    (tmp_path / "credentials").write_text(
        f"[base]\naws_access_key_id = {LONG_LIVED[0]}\naws_secret_access_key = {LONG_LIVED[1]}\n"
    )
    (tmp_path / "config").write_text(
        f"[profile archive]\nrole_arn = {ROLE}\nsource_profile = base\nexternal_id = {EXTERNAL_ID}\n"
    )
    with serving(store, tmp_path / "served", {"profile": "archive"}) as gateway:
        check(gateway)
    assert len(sts.sessions) == 1


def test_a_single_sign_on_reads_and_signs(
    store: S3Server, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    session = issue(store, 900)

    def answer(request: Request) -> Response:
        if request.headers.get("x-amz-sso_bearer_token") != "the-token-of-the-sign-on":
            return json_response({"message": "Session token not found or invalid"}, 401)
        return single_sign_on_answer(session)

    start = "https://tests.awsapps.com/start"
    (tmp_path / "config").write_text(
        f"[profile archive]\nsso_start_url = {start}\nsso_region = us-east-1\n"
        "sso_account_id = 123456789012\nsso_role_name = reader\n"
    )
    cache = tmp_path / ".aws/sso/cache"
    cache.mkdir(parents=True)
    ends = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    token = {"startUrl": start, "region": "us-east-1", "accessToken": "the-token-of-the-sign-on"}
    file = cache / f"{hashlib.sha1(start.encode()).hexdigest()}.json"
    file.write_text(json.dumps(token | {"expiresAt": ends}))
    environment.setenv("HOME", str(tmp_path))
    with portal(answer) as service:
        environment.setenv("AWS_ENDPOINT_URL_SSO", service.url)
        with serving(store, tmp_path / "served", {"profile": "archive"}) as gateway:
            check(gateway)


def test_the_role_of_an_instance_reads_and_signs(
    store: S3Server, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.delenv("AWS_EC2_METADATA_DISABLED")
    metadata = InstanceMetadata(issue=lambda seconds: issue(store, min(seconds, 3600)))
    with running_instance(metadata) as service:
        environment.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        with serving(store, tmp_path, {}) as gateway:
            check(gateway)
    assert metadata.sessions


def test_a_web_identity_reads_and_signs(
    store: S3Server, sts: Sts, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("the-token-of-the-cluster")
    sts.web_identities.add("the-token-of-the-cluster")
    # A trust policy for a web identity asks for no external id.
    sts.external_id = None
    environment.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    environment.setenv("AWS_ROLE_ARN", ROLE)
    environment.setenv("AWS_ENDPOINT_URL_STS", sts.url)
    with serving(store, tmp_path / "served", {}) as gateway:
        check(gateway)
