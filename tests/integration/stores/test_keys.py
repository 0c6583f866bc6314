"""Keys of a bucket: refused keys are reported as the provider's, and temporary keys are used."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import pytest
from support.gateway_process import running_gateway, share, storage, table_path
from support.raw_http import get
from support.versitygw import VersityGw

LIFETIME = timedelta(minutes=40)
KEYLESS = ("accessKeyId", "secretAccessKey")
TABLE = "demo.default.orders"


@pytest.fixture
def stored(demo_tables: Path, versitygw: VersityGw) -> list[dict]:
    versitygw.upload(demo_tables / "orders", "keys", "orders")
    return [share("demo", {"orders": "s3://keys/orders"})]


def test_refused_keys_are_reported_as_the_providers_on_every_route(
    stored: list[dict], versitygw: VersityGw, tmp_path: Path
) -> None:
    wrong = {**storage(versitygw, "s3://keys/"), "secretAccessKey": "not-the-secret"}
    with running_gateway(tmp_path, stored, {"storages": [wrong], "drainDelaySeconds": 0}) as gateway:
        for method, path in (
            ("POST", "query"),
            ("GET", "metadata"),
            ("GET", "version"),
            ("GET", "changes?startingVersion=0"),
        ):
            answer = gateway.request(method, f"{table_path(TABLE)}/{path}", {} if method == "POST" else None)
            assert (answer.status, answer.json["errorCode"]) == (403, "PERMISSION_DENIED"), path
            assert "provider" in answer.json["message"]
            for word in ("keys", "127.0.0.1", "not-the-secret", versitygw.access_key_id, "_delta_log"):
                assert word not in answer.json["message"]
        assert "not-the-secret" not in gateway.logged('"status":403')


@pytest.fixture
def lent(versitygw: VersityGw) -> Iterator[tuple[str, datetime]]:
    """A container's credentials service, and when the keys that it lends end."""
    ends = (datetime.now(UTC) + LIFETIME).replace(microsecond=0)
    keys = {
        "AccessKeyId": versitygw.access_key_id,
        "SecretAccessKey": versitygw.secret_access_key,
        "Expiration": ends.isoformat().replace("+00:00", "Z"),
    }

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = {"Token": "a-session-token"} if self.path.endswith("with-a-token") else {}
            body = orjson.dumps(keys | token)
            self.send_response(200 if self.headers["Authorization"] == "pass" else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/role", ends
        server.shutdown()
        thread.join()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    return monkeypatch


def test_a_table_is_read_and_signed_for_by_lent_keys_until_they_end(
    stored: list[dict], versitygw: VersityGw, lent: tuple[str, datetime], environment, tmp_path: Path
) -> None:
    service, ends = lent
    environment.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", service)
    environment.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pass")
    keyless = {key: value for key, value in storage(versitygw, "s3://keys/").items() if key not in KEYLESS}
    with running_gateway(tmp_path, stored, {"storages": [keyless], "drainDelaySeconds": 0}) as gateway:
        for _ in range(2):
            answer = gateway.query(TABLE, capabilities="responseformat=delta;readerfeatures=deletionvectors")
            assert answer.status == 200, answer.body
            files = [line["file"] for line in answer.lines if "file" in line]
            for file in files:
                assert ends - timedelta(seconds=90) < moment(file["expirationTimestamp"]) < ends
                url = file["deltaSingleAction"].get("add", {})["path"]
                assert get(url)[0] == 200
            assert files


def test_a_token_that_is_lent_with_the_keys_is_sent(
    stored: list[dict], versitygw: VersityGw, lent: tuple[str, datetime], environment, tmp_path: Path
) -> None:
    environment.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{lent[0]}/with-a-token")
    environment.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pass")
    keyless = {key: value for key, value in storage(versitygw, "s3://keys/").items() if key not in KEYLESS}
    with running_gateway(tmp_path, stored, {"storages": [keyless], "drainDelaySeconds": 0}) as gateway:
        # This store has no sessions, and refuses every session token.
        assert gateway.query(TABLE).status == 403
        gateway.logged("<Code>InvalidToken</Code>")
        assert "a-session-token" not in gateway.logged('"status":403')


def test_without_any_keys_the_error_lists_where_keys_may_be(
    stored: list[dict], versitygw: VersityGw, environment, tmp_path: Path
) -> None:
    environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
    keyless = {key: value for key, value in storage(versitygw, "s3://keys/").items() if key not in KEYLESS}
    with running_gateway(tmp_path, stored, {"storages": [keyless], "drainDelaySeconds": 0}) as gateway:
        answer = gateway.query(TABLE)
        assert (answer.status, answer.json["errorCode"]) == (403, "PERMISSION_DENIED")
        assert "AWS_ACCESS_KEY_ID" not in answer.json["message"]
        gateway.logged("no keys were found; supported: gateway.storages with")


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
