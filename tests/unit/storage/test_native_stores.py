"""The native storages and signers of Azure and Google, as Python sees them."""

import base64
import json
import os
import select
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from support.google_identity import account_key
from support.native import native
from support.scripted_server import listening

from gateway.cli.storage_errors import explain_error

ACCOUNT_KEY = base64.b64encode(b"a secret key").decode()
TOKEN = "ya29.a-secret-token"


def delegation_key() -> Any:
    return native().DelegationKey(
        object_id="oid",
        tenant_id="tid",
        start="2026-01-01T00:00:00Z",
        expiry="2026-01-02T00:00:00Z",
        service="b",
        version="2022-11-02",
        value=ACCOUNT_KEY,
    )


def test_no_repr_shows_a_secret() -> None:
    azure = native().Storage.azure("account1", "container-1")
    azure.replace_account_key(ACCOUNT_KEY)
    gcs = native().Storage.gcs("bucket")
    gcs.replace_bearer_token(TOKEN)
    private_key = account_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    s3 = {"access_key_id": "AKIA-ID", "secret_access_key": "of s3", "session_token": "to+ken"}
    signers = [
        native().Signer.s3("bucket", region="r", **s3),
        native().Signer.azure("account1", "container-1", account_key=ACCOUNT_KEY),
        native().Signer.azure("account1", "container-1", delegation_key=delegation_key()),
        native().Signer.gcs("bucket", access_id="GOOG1EID", secret="a secret"),
        native().Signer.gcs("bucket", email="a@b", access_token=TOKEN),
        native().Signer.gcs("bucket", email="a@b", private_key=private_key),
    ]
    shown = repr([azure, gcs, delegation_key(), *signers])
    for secret in (ACCOUNT_KEY, TOKEN, "GOOG1EID", "a secret", private_key.splitlines()[1], *s3.values()):
        assert secret not in shown


def test_requests_without_credentials_are_denied() -> None:
    for storage in (native().Storage.azure("account1", "container-1"), native().Storage.gcs("bucket")):
        with pytest.raises(native().StorageDenied) as raised:
            storage.list_directories("t")
        assert raised.value.detail is not None
        assert "no credentials" in raised.value.detail


def test_the_detail_of_a_refused_listing_is_explained_and_has_no_token() -> None:
    with listening() as answers:
        storage = native().Storage.s3(
            "bucket",
            region="us-east-1",
            endpoint=answers.url,
            path_style=True,
            access_key_id="id",
            secret_access_key="secret",
            session_token=TOKEN,
        )
        for status, code, words in (
            (400, "ExpiredToken", "or the URL that they signed, have ended"),
            (400, "AuthorizationHeaderMalformed", "the bucket is in the region eu-west-9"),
            (403, "RequestTimeTooSkewed", "the operator sets the clock"),
            (404, "NoSuchBucket", "the bucket does not exist; the operator looks at the location"),
        ):
            body = (
                f"<Error><Code>{code}</Code><Message>Refused.</Message><Region>eu-west-9</Region>"
                f"<Token-0>{TOKEN}</Token-0><StringToSign>{TOKEN}</StringToSign></Error>"
            )
            answers.answers.append((status, {"Connection": "close"}, body.encode()))
            with pytest.raises(native().LogError) as raised:
                storage.list_directories("t")
            detail = raised.value.detail
            assert detail is not None
            assert f"<Code>{code}</Code>" in detail
            assert TOKEN not in detail
            explained = explain_error("s3", raised.value)
            assert words in explained
            assert code in explained


def test_the_environment_changes_no_request_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    """URLs are signed without these settings, so reads are. Some the client would not accept."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "without a secret",
        "AWS_CONDITIONAL_PUT": "dynamo:table",
        "AWS_SERVER_SIDE_ENCRYPTION": "aws:kms",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_REQUEST_PAYER": "true",
        "AWS_UNSIGNED_PAYLOAD": "true",
    }.items():
        monkeypatch.setenv(name, value)
    with listening() as answers:
        storage = native().Storage.s3("bucket", region="eu-west-9", endpoint=answers.url, path_style=True)
        storage.replace_credentials(access_key_id="id", secret_access_key="secret")
        answers.answers.append((404, {"Connection": "close"}, b"<Error><Code>NoSuchBucket</Code></Error>"))
        with pytest.raises(native().LogError):
            storage.list_directories("t")
        (sent,) = answers.headers
    headers = {name.lower(): value for name, value in sent.items()}
    assert "/eu-west-9/s3/" in headers["authorization"]
    assert "x-amz-request-payer" not in headers
    assert headers["x-amz-content-sha256"] != "UNSIGNED-PAYLOAD"


def test_the_keys_of_the_environment_are_looked_for_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of authorities may be missing at the first request, as while it is replaced."""
    authorities = tmp_path / "authorities.pem"
    authorities.touch()
    values = {"ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "secret", "CA_BUNDLE": str(authorities)}
    for name, value in values.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with listening() as answers:
        storage = native().Storage.s3("bucket", region="eu-west-9", endpoint=answers.url, path_style=True)
        authorities.unlink()
        with pytest.raises(native().LogError):
            storage.list_directories("t")
        assert not answers.headers
        authorities.touch()
        answers.answers.append((404, {"Connection": "close"}, b"<Error><Code>NoSuchBucket</Code></Error>"))
        with pytest.raises(native().LogError):
            storage.list_directories("t")
        assert len(answers.headers) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: native().Signer.azure("account1", "container-1"),
        lambda: native().Signer.azure(
            "account1", "container-1", account_key=ACCOUNT_KEY, delegation_key=delegation_key()
        ),
        lambda: native().Signer.gcs("bucket"),
        lambda: native().Signer.gcs("bucket", access_id="id"),
        lambda: native().Signer.gcs("bucket", email="a@b"),
        lambda: native().Signer.gcs("bucket", email="a@b", private_key="pem", access_token=TOKEN),
        lambda: native().Signer.gcs("bucket", access_id="id", secret="s", email="a@b", access_token=TOKEN),
        lambda: native().Storage.gcs("bucket").replace_account_key(ACCOUNT_KEY),
        lambda: (
            native()
            .Storage.azure("account1", "container-1")
            .replace_credentials(access_key_id="id", secret_access_key="secret")
        ),
    ],
)
def test_other_keys_than_one_of_the_store_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(native().InvalidArgument):
        make()


def test_a_url_expires_before_its_delegation_key_and_the_session_of_its_identity() -> None:
    now_ms, hour_ms = 1_767_225_600_000, 3_600_000
    for end_ms, expected_ms in [(None, 24 * hour_ms), (now_ms + hour_ms, hour_ms)]:
        signer = native().Signer.azure(
            "account1", "container-1", delegation_key=delegation_key(), credentials_expire_ms=end_ms
        )
        _, expires_ms = signer.sign("key", now_ms=now_ms, lifetime_seconds=7 * 86_400)
        assert expires_ms == now_ms + expected_ms - 60_000


class Iam(BaseHTTPRequestHandler):
    """Answers `signBlob` with bytes that are no real signature."""

    protocol_version = "HTTP/1.1"
    requests = 0

    def do_POST(self) -> None:
        Iam.requests += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"signedBlob": base64.b64encode(b"\xab" * 256).decode()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def answer(table: Path, signer: Any) -> bytes:
    snapshot = native().Table(native().Storage.local(), str(table)).snapshot()
    snapshot.totals()
    options = native().AnswerOptions(
        native().Signers("gs://bucket/t", signer),
        response_format="parquet",
        now_ms=int(time.time() * 1000),
        lifetime_seconds=60,
    )
    chunks, body = snapshot.files(options), b""
    while not chunks.done:
        chunk = chunks.next_chunk()
        if chunk is not None:
            body += bytes(chunk)
        elif not chunks.done:
            select.select([chunks.fileno()], [], [], 20)
    return body


def test_an_answer_above_the_number_of_remote_signatures_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "t", "schemaString": '{"type":"struct","fields":[]}', "partitionColumns": []}},
    ]
    actions += [
        {"add": {"path": f"{n}", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
        for n in range(3)
    ]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    Iam.requests = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Iam)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def signer(most: int) -> Any:
        return native().Signer.gcs(
            "bucket",
            email="a@b",
            access_token=TOKEN,
            iam_endpoint=f"http://127.0.0.1:{server.server_port}",
            max_remote_signatures=most,
        )

    with pytest.raises(native().TooManySignatures, match=r"more than 2 files.* HMAC key"):
        answer(tmp_path, signer(2))
    assert Iam.requests == 0
    assert answer(tmp_path, signer(3)).count(b"X-Goog-Signature=" + b"ab" * 256) == 3
    assert Iam.requests == 3
    server.shutdown()
    server.server_close()


def test_credentials_of_the_environment_are_requested_within_the_time_of_the_storage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        storage = native().Storage.s3(
            "bucket",
            region="us-east-1",
            endpoint="http://127.0.0.1:1",
            timeout_seconds=0.2,
            retry_seconds=0.1,
        )
        began = time.monotonic()
        with pytest.raises(native().StorageUnavailable):
            storage.list_directories("t")
    assert time.monotonic() - began < 15


def test_a_panic_of_native_code_is_an_error_with_its_place_and_without_its_text(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with listening() as answers:
        storage = native().Storage.s3(
            "bucket",
            region="us-east-1",
            endpoint=answers.url,
            path_style=True,
            # No header can have it: the client of the store panics.
            access_key_id="hidden\n",
            secret_access_key="secret",
        )
        with pytest.raises(native().NativePanic) as raised:
            storage.list_directories("t")
    assert raised.value.detail is not None
    assert ".rs:" in raised.value.detail
    shown = f"{raised.value} {raised.value.detail} {capfd.readouterr().err}"
    assert "native code panicked at" in shown
    assert "Invalid" not in shown
    assert "hidden" not in shown
    assert "report it" in explain_error("s3", raised.value)
