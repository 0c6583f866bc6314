"""Roles of AWS over HTTP: their credentials, when these end, and errors without the answer's text."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import orjson
import pytest
from support.aws_identity import InstanceMetadata, running_instance
from support.http_service import Response, serving

from gateway.config import Location, Secret
from gateway.config.storages.s3 import S3Entry
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.aws.roles import role_of
from gateway.storage.credentials import CredentialsUnavailable

ENTRY = S3Entry(Location("s3", "bucket", ""))

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
def lending() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Lending)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
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
    role = role_of(environments[kind], "us-east-1", ENTRY)
    assert role is not None
    assert role.name == kind
    found = role.assume()
    assert found == S3Credentials(
        Secret("lent-key"), Secret("lent-secret"), Secret("lent-token"), datetime(2026, 1, 1, 6, tzinfo=UTC)
    )


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("web identity", {"AWS_ROLE_ARN": "arn:aws:iam::1:role/another"}, "the token service answers 403"),
        ("web identity", {"AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere"}, "AWS_WEB_IDENTITY_TOKEN_FILE names"),
        ("container", {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": ""}, "credentials service answers 403"),
        ("container", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "file:///etc/passwd"}, "is not accepted"),
        ("container", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://192.0.2.1/"}, "is not accepted"),
        ("instance", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}, "cannot be reached"),
    ],
)
def test_the_error_of_a_refused_role_names_the_service_and_not_its_answer(
    environments, kind: str, change: dict[str, str], reason: str
) -> None:
    role = role_of(environments[kind] | change, "us-east-1", ENTRY)
    assert role is not None
    with pytest.raises(CredentialsUnavailable, match=reason) as refused:
        role.assume()
    assert "lent" not in str(refused.value)


def test_the_instance_gives_its_keys_without_a_proxy_and_with_their_true_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    # botocore claims a later end for keys that are about to end.
    metadata = InstanceMetadata(seconds=60)
    with running_instance(metadata) as service:
        role = role_of({"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url}, "us-east-1", ENTRY)
        assert role is not None
        found = role.assume()
    assert found.expires == metadata.sessions[0].ends
    assert found.source == "the role reader of the instance"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Response(404), "the instance has no role|gives no session"),
        (Response(200, b"not JSON"), "the instance has no role|did not answer"),
        (Response(500, b"hidden"), "cannot be reached, or gives no session|answers 500"),
    ],
)
def test_an_odd_instance_service_gives_no_keys_and_no_text(answer: Response, reason: str) -> None:
    with serving(lambda _: answer) as service:
        role = role_of({"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url}, "us-east-1", ENTRY)
        assert role is not None
        with pytest.raises(CredentialsUnavailable, match=reason) as refused:
            role.assume()
    assert "hidden" not in str(refused.value)


def test_the_instance_service_is_not_called_where_it_is_disabled() -> None:
    assert role_of({"AWS_EC2_METADATA_DISABLED": "true"}, "us-east-1", ENTRY) is None
