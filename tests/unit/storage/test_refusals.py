"""Why a store cannot be read: each reason by a double, in the log of a server and in `check`."""

import base64
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from support.gateway_app import PREFIX, serve

from gateway.cli.check import check_table
from gateway.cli.storage_errors import explain
from gateway.config import loads
from gateway.server.self_signed import self_signed_pair
from gateway.state import GatewayState
from gateway.storage.refusals import TABLE

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"
NAMES = {"s3": "S3", "gs": "Google"}
ENTRIES: dict[str, dict[str, Any]] = {
    "s3": {"prefix": "s3://bucket-1/", "region": "eu-west-1", "pathStyle": True},
    "azure": {
        "prefix": "abfss://container-1@account1.dfs.core.windows.net/",
        "accountKey": base64.b64encode(b"a secret key").decode(),
    },
    "gs": {"prefix": "gs://bucket-1/"},
}
KEYS = {"accessKeyId": "id", "secretAccessKey": "a secret"}
KNOWN = {
    code: texts for group in TABLE.values() for codes, texts in group.items() for code in codes.split(" ")
}
OF_URLS = ("NoSuchKey", "BlobNotFound", "PathNotFound", "404", "301", "s3:301", "")
"""Of a log an absent object is no error; redirects have the code of S3, or are bad requests."""
AZURE, GOOGLE = "azure", "gs"
ANSWERS: dict[str, tuple[str, int]] = {
    "AccessDenied": ("s3", 403),
    "gs:AccessDenied": (GOOGLE, 403),
    "AuthorizationPermissionMismatch": (AZURE, 403),
    "KMS": ("s3", 400),
    "KeyVaultEncryptionKeyNotFound": (AZURE, 403),
    "KeyVaultAccessTokenCannotBeAcquired": (AZURE, 403),
    "KeyVaultVaultNotFound": (AZURE, 403),
    "AuthorizationFailure": (AZURE, 403),
    "AuthorizationSourceIPMismatch": (AZURE, 403),
    "PublicAccessNotPermitted": (AZURE, 409),
    "SecurityPolicyViolated": (GOOGLE, 403),
    "403": ("s3", 403),
    "AuthenticationFailed": (AZURE, 403),
    "InvalidAuthenticationInfo": (AZURE, 401),
    "AuthenticationRequired": (GOOGLE, 401),
    "401": (GOOGLE, 401),
    "ExpiredToken": ("s3", 400),
    "gs:InvalidArgument": (GOOGLE, 400),
    "InvalidAccessKeyId": ("s3", 403),
    "XAdminUserNotFound": ("s3", 404),
    "InvalidToken": ("s3", 403),
    "KeyBasedAuthenticationNotPermitted": (AZURE, 403),
    "SignatureDoesNotMatch": ("s3", 403),
    "RequestTimeTooSkewed": ("s3", 403),
    "OutOfRangeInput": (AZURE, 400),
    "gs:ExpiredToken": (GOOGLE, 400),
    "AuthorizationHeaderMalformed": ("s3", 400),
    "AuthorizationQueryParametersError": ("s3", 400),
    "IllegalLocationConstraintException": ("s3", 400),
    "PermanentRedirect": ("s3", 301),
    "AuthorizationProtocolMismatch": (AZURE, 403),
    "UserProjectAccessDenied": (GOOGLE, 403),
    "UserProjectMissing": (GOOGLE, 400),
    "NotImplemented": ("s3", 501),
    "MethodNotAllowed": ("s3", 405),
    "405": (AZURE, 405),
    "501": (GOOGLE, 501),
    "AccountIsDisabled": (AZURE, 403),
    "AllAccessDisabled": ("s3", 403),
    "ContainerNotFound": (AZURE, 404),
    "FilesystemNotFound": (AZURE, 404),
    "ResourceNotFound": (AZURE, 404),
    "ContainerBeingDeleted": (AZURE, 409),
    "FilesystemBeingDeleted": (AZURE, 409),
    "NoSuchBucket": ("s3", 404),
    "InvalidObjectState": ("s3", 403),
    "BlobArchived": (AZURE, 409),
    "BlobBeingRehydrated": (AZURE, 409),
    "DecompressiveTranscoding": (GOOGLE, 400),
    "SlowDown": ("s3", 503),
    "ServerBusy": (AZURE, 503),
    "429": (GOOGLE, 429),
    "503": (GOOGLE, 503),
    "InternalError": ("s3", 500),
    "500": (AZURE, 500),
    "502": ("s3", 502),
    "504": (GOOGLE, 504),
    "400": ("s3", 400),
}
CA = "the certificate of the endpoint is of an unknown authority; SSL_CERT_FILE names a file with it"
NO_STORE = (
    "another server than a store may be at the endpoint; the operator looks at its host, its port and its "
    "path, then at whether the store has started"
)
PATIENT_SECONDS = 20.0
"""A store of these tests may wait for the processor."""
CONNECTIONS = {
    "closed": "nothing listens at the endpoint; look at its host and its port, and at whether the store runs",
    "silent": "the endpoint does not answer in time; look for a firewall that drops packets",
    "no name": "the name of the endpoint's host cannot be resolved; look at its spelling and at DNS",
    "plain": "the endpoint speaks no TLS: its URL may have to begin with http://",
    "authority": CA,
    "proxy": "the proxy refuses the connection; NO_PROXY names hosts without a proxy",
    "cut": "the connection was cut, by the store or by something on the way; look at proxies and firewalls",
}


def configuration(store: str, endpoint: str, timeout_seconds: float) -> dict[str, Any]:
    timings = {"retrySeconds": 0.05, "timeoutSeconds": timeout_seconds}
    entry = ENTRIES[store] | {"endpoint": endpoint, **timings}
    entry |= {} if store == AZURE else KEYS
    table = {"name": "t", "location": f"{entry['prefix']}t"}
    shares = [{"name": "s", "schemas": [{"name": "d", "tables": [table]}]}]
    return {"shares": shares, "gateway": {"anonymous": True, "storages": [entry]}}


def checked(store: str, endpoint: str, timeout_seconds: float = PATIENT_SECONDS) -> str:
    """What `check` says of the table."""
    document = {"version": 1, **configuration(store, endpoint, timeout_seconds)}
    state = GatewayState.of(loads(yaml.safe_dump(document)))
    try:
        (table,) = (table for share in state.catalog.all() for table in share.tables())
        return check_table(state, table).problem
    finally:
        state.tables.close()


async def logged(
    store: str, endpoint: str, caplog: pytest.LogCaptureFixture, timeout_seconds: float = PATIENT_SECONDS
) -> str:
    """What the log of a server says of a query of the table."""
    client, _ = await serve(yaml.safe_dump(configuration(store, endpoint, timeout_seconds)))
    answer = await client.post(f"{PREFIX}/shares/s/schemas/d/tables/t/query", json={})
    body = await answer.text()
    await client.close()
    (line,) = (record.getMessage() for record in caplog.records if record.name == "gateway.errors")
    assert answer.status >= 400
    assert not any(word in body for word in ("answers", "endpoint", "bucket"))
    return line


@contextmanager
def answering(status: int, headers: dict[str, str], body: bytes) -> Iterator[str]:
    """A store with one answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), "Connection": "close", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_CONNECT = do_GET  # noqa: N815 - the names that http.server looks for

        def log_message(self, *args: Any) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[int]:
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_the_walk_has_every_reason() -> None:
    assert {*ANSWERS, *OF_URLS} == set(KNOWN)


@pytest.mark.parametrize("code", ANSWERS)
async def test_the_log_and_check_say_what_an_answer_means_and_what_to_do(
    code: str, caplog: pytest.LogCaptureFixture
) -> None:
    (store, status), (meaning, advice) = ANSWERS[code], KNOWN[code]
    name = "" if code.isdigit() else code.rpartition(":")[2]
    sent = f"{name}.DisabledException" if name == "KMS" else name
    region = {"x-amz-bucket-region": "eu-west-9"} if status == 301 else {}
    if advice == "the operator sets `region`":
        meaning = "the bucket is in the region eu-west-9"
    body = (
        f"<Error><Code>{sent}</Code><Message>M.</Message><Region>eu-west-9</Region></Error>" if sent else ""
    )
    said = f"the store answers {' '.join(filter(None, (str(status), sent)))}: {meaning}; {advice}"
    headers = {"x-ms-error-code": sent} if store == AZURE and sent else region
    with answering(status, headers, body.encode()) as endpoint:
        assert checked(store, endpoint).endswith(f": {said}")
        assert (await logged(store, endpoint, caplog)).endswith(f": {said}")


@pytest.mark.parametrize("body", [b"", b'{"detail":"Not Found"}', b"<Error><Code>Unheard</Code></Error>"])
@pytest.mark.parametrize("store", ENTRIES)
async def test_a_404_to_a_listing_is_about_the_endpoint_and_not_about_a_file(
    store: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with answering(404, {}, body) as endpoint:
        code = " Unheard" if b"Unheard" in body else ""
        said = f": the store answers 404{code}: {NO_STORE}"
        assert checked(store, endpoint).endswith(said)
        assert (await logged(store, endpoint, caplog)).endswith(said)


@pytest.mark.parametrize("code", OF_URLS)
def test_check_says_it_of_a_signed_url(code: str) -> None:
    store, _, name = code.rpartition(":")
    status = int(name) if name.isdigit() else 404 if name else 418
    body = "" if name.isdigit() or not name else f"<Error><Code>{name}</Code></Error>"
    assert str(explain(store or "s3" if code != "301" else AZURE, status, body)).endswith(
        "; ".join(KNOWN[code])
    )


@pytest.mark.parametrize("store", ENTRIES)
@pytest.mark.parametrize("fault", CONNECTIONS)
async def test_the_log_and_check_say_why_a_store_is_not_reached(
    fault: str,
    store: str,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with unreachable(fault, tmp_path) as address:
        endpoint = address
        if fault == "proxy":
            monkeypatch.setenv("HTTPS_PROXY", address)
            endpoint = "https://store.example.com"
        seconds = 1 if fault == "silent" else PATIENT_SECONDS
        assert CONNECTIONS[fault] in checked(store, endpoint, seconds)
        assert CONNECTIONS[fault] in await logged(store, endpoint, caplog, seconds)


def test_an_authority_with_the_name_of_a_known_one_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tmp_path / "known.pem"
    known.write_bytes(self_signed_pair("127.0.0.1"))
    monkeypatch.setenv("SSL_CERT_FILE", str(known))
    with unreachable("authority", tmp_path) as endpoint:
        assert CA in checked("s3", endpoint)


@contextmanager
def unreachable(fault: str, directory: Path) -> Iterator[str]:
    """The endpoint of a store that is not reached."""
    if fault == "no name":
        yield "http://nowhere.invalid"
    elif fault == "proxy":
        with answering(407, {}, b"") as proxy:
            yield proxy
    elif fault == "plain":
        with answering(403, {}, b"") as endpoint:
            yield endpoint.replace("http:", "https:")
    elif fault == "authority":
        pair = directory / "pair.pem"
        pair.write_bytes(self_signed_pair("127.0.0.1"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair)
        server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        with serving(server) as port:
            yield f"https://127.0.0.1:{port}"
    else:
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            port = listener.getsockname()[1]
            if fault == "closed":
                listener.close()
            if fault == "cut":
                Thread(target=cut, args=(listener,), daemon=True).start()
            yield f"http://127.0.0.1:{port}"


def cut(listener: socket.socket) -> None:
    """End each connection after its request."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(1)


def test_the_documentation_has_every_reason() -> None:
    """The rows of the page are the reasons of connections and those of the table, in its order."""
    expected = [
        f"| no answer | {' | '.join(said.replace(': ', '; ').split('; '))} |" for said in CONNECTIONS.values()
    ]
    expected += [
        f"| {', '.join(map(shown, codes.split(' ')))} | {meaning} | {advice} |"
        for group in TABLE.values()
        for codes, (meaning, advice) in group.items()
    ]
    expected.append(f"| `404` to a listing | {NO_STORE.replace('; ', ' | ', 1)} |")
    assert "\n".join(expected) in PAGE.read_text(), "\n".join(expected)


def shown(code: str) -> str:
    store, _, name = code.rpartition(":")
    return (f"`{name}` of {NAMES[store]}" if store else f"`{name}`") if name else "any other"
