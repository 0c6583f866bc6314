"""The doctor where no answer arrives: DNS, ports, TLS, proxies, time-outs."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from support.findings import Examine, failed, steps, warned
from support.http_service import Response, serving
from support.processes import free_port
from support.sharing_server import SharingServer, sharing

from gateway.doctor.transport import proxy_for
from gateway.server.self_signed import self_signed_pair


@pytest.fixture
def profile(sharing_server: SharingServer, tmp_path: Path) -> Path:
    return sharing_server.profile(tmp_path / "acme.share")


def test_a_name_without_an_address_is_the_recipient_s(
    sharing_server: SharingServer, tmp_path: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    endpoint = "https://no-such-host.invalid/delta-sharing"
    found = failed(examine(sharing_server.profile(tmp_path / "a.share", endpoint=endpoint)))
    assert found.message == "the name no-such-host.invalid has no address"
    assert found.owner == "recipient"


def test_a_name_server_that_does_not_answer_is_the_network_s(
    sharing_server: SharingServer, tmp_path: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    profile = sharing_server.profile(tmp_path / "a.share", endpoint="https://share.example.com")
    found = failed(examine(profile))
    assert found.message == "the name server of this machine does not answer for share.example.com"
    assert found.owner == "network"


def test_a_port_that_nothing_listens_on(
    sharing_server: SharingServer, tmp_path: Path, examine: Examine
) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}/delta-sharing"
    found = failed(examine(sharing_server.profile(tmp_path / "a.share", endpoint=endpoint)))
    assert found.message == "nothing answers at 127.0.0.1, which is this machine itself"
    assert found.advice.startswith("start the service, if it belongs on this machine; ")
    assert found.owner == "provider"


@contextmanager
def answering(content: bytes, *, closes: bool = True) -> Iterator[int]:
    """A port that reads a request and sends some bytes; without `closes` it then waits."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(content)
                    if not closes:
                        ended.wait(10)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("content", "scheme", "owner", "message"),
    [
        (b"", "http", "network", "was closed without an answer"),
        (b"SSH-2.0-OpenSSH\r\n", "http", "recipient", "does not answer with HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "http", "provider", "was cut before its end"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "https", "recipient", "does not answer with TLS"),
    ],
)
def test_a_port_of_another_service(
    sharing_server: SharingServer,
    tmp_path: Path,
    examine: Examine,
    *,
    content: bytes,
    scheme: str,
    owner: str,
    message: str,
) -> None:
    with answering(content) as port:
        endpoint = f"{scheme}://127.0.0.1:{port}"
        found = failed(examine(sharing_server.profile(tmp_path / "a.share", endpoint=endpoint)))
    assert message in found.message
    assert found.owner == owner
    assert ("a server with TLS: its address begins with https://" in found.advice) is (not content)


def test_a_server_that_does_not_answer_in_time(
    sharing_server: SharingServer, tmp_path: Path, examine: Examine
) -> None:
    with answering(b"", closes=False) as port:
        profile = sharing_server.profile(tmp_path / "a.share", endpoint=f"http://127.0.0.1:{port}")
        found = failed(examine(profile, timeout_seconds=0.3))
    assert found.message == "the server at 127.0.0.1 does not answer in time"
    assert "--timeout" in found.advice


def test_a_firewall_that_drops_packets_is_the_networks(
    sharing_server: SharingServer, tmp_path: Path, examine: Examine
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as stack:
        address = listener.getsockname()
        # The queue of the listener is full: it answers no further connection.
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        profile = sharing_server.profile(tmp_path / "a.share", endpoint=f"http://127.0.0.1:{address[1]}")
        found = failed(examine(profile, timeout_seconds=0.6))
    assert found.message == "no connection to 127.0.0.1 in time"
    assert found.owner == "network"
    assert "a firewall drops the packets" in found.advice


def certificate(path: Path, *, issuer: str = "", starts: int = -1, ends: int = 30) -> Path:
    """A file with a key and a certificate of 127.0.0.1, by default self-signed, valid for some days."""
    key, authority = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    organisation = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, issuer or "none")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(organisation if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=starts))
        .not_valid_after(now + timedelta(days=ends))
        .add_extension(address, critical=False)
        .sign(authority if issuer else key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + made.public_bytes(pem))
    return path


def test_a_certificate_of_an_unknown_authority_is_shown_with_its_issuer(
    tmp_path: Path, examine: Examine
) -> None:
    with sharing(certificate(tmp_path / "pair.pem", issuer="Proxy of Acme")) as server:
        found = failed(examine(server.profile(tmp_path / "a.share")))
    assert found.message == (
        "no certificate authority of this machine has issued the certificate of 127.0.0.1; "
        "its issuer is 'Proxy of Acme'"
    )
    assert found.owner == "network"
    assert "SSL_CERT_FILE" in found.advice


def test_a_certificate_that_the_machine_trusts_is_accepted(
    tmp_path: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = tmp_path / "pair.pem"
    pair.write_bytes(self_signed_pair("127.0.0.1"))
    monkeypatch.setenv("SSL_CERT_FILE", str(pair))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(pair))
    with sharing(pair) as server:
        assert {status for _, status in steps(examine(server.profile(tmp_path / "a.share")))} == {"ok"}


@pytest.mark.parametrize("other", [None, "another.pem"])
def test_a_certificate_that_only_the_machine_trusts_is_a_warning_for_the_python_client(
    tmp_path: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch, other: str | None
) -> None:
    pair = tmp_path / "pair.pem"
    pair.write_bytes(self_signed_pair("127.0.0.1"))
    monkeypatch.setenv("SSL_CERT_FILE", str(pair))
    if other:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate(tmp_path / other)))
    with sharing(pair) as server:
        found = warned(examine(server.profile(tmp_path / "a.share")))
    assert (found.step, str(found.owner)) == ("certificate", "recipient")
    assert "127.0.0.1: the Python client does not" in found.message
    assert "REQUESTS_CA_BUNDLE" in found.advice


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_bundle_of_requests_is_for_the_server_and_not_for_the_store(
    tmp_path: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    pair = tmp_path / "pair.pem"
    pair.write_bytes(self_signed_pair("127.0.0.1"))
    monkeypatch.setenv(variable, str(pair))
    with sharing(pair) as server:
        found = failed(examine(server.profile(tmp_path / "a.share")))
    assert (found.step, str(found.owner)) == ("file", "network")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be used: No such file"), (b"x", "cannot be used: no certificates in PEM")],
)
def test_a_bundle_that_cannot_be_read_is_the_recipient_s(
    *, tmp_path: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch, content: bytes | None, message: str
) -> None:
    bundle = tmp_path / "bundle.pem"
    if content is not None:
        bundle.write_bytes(content)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    with sharing(certificate(tmp_path / "pair.pem")) as server:
        found = failed(examine(server.profile(tmp_path / "a.share")))
    assert message in found.message
    assert str(found.owner) == "recipient"


def test_a_certificate_of_another_name(
    tmp_path: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = tmp_path / "pair.pem"
    pair.write_bytes(self_signed_pair("share.example.com"))
    monkeypatch.setenv("SSL_CERT_FILE", str(pair))
    with sharing(pair) as server:
        found = failed(examine(server.profile(tmp_path / "a.share")))
    assert "is for another name" in found.message
    assert found.owner == "provider"


@pytest.mark.parametrize(
    ("starts", "ends", "message", "owner"),
    [(-9, -1, "has expired", "provider"), (1, 9, "not valid yet", "recipient")],
)
def test_a_certificate_that_is_not_valid_now(
    tmp_path: Path,
    examine: Examine,
    monkeypatch: pytest.MonkeyPatch,
    *,
    starts: int,
    ends: int,
    message: str,
    owner: str,
) -> None:
    pair = certificate(tmp_path / "pair.pem", starts=starts, ends=ends)
    monkeypatch.setenv("SSL_CERT_FILE", str(pair))
    with sharing(pair) as server:
        found = failed(examine(server.profile(tmp_path / "a.share")))
    assert message in found.message
    assert found.owner == owner


@pytest.mark.parametrize(
    ("status", "scheme", "message"),
    [
        (407, "http", "the proxy 127.0.0.1 requires a login (407)"),
        (407, "https", "the proxy 127.0.0.1 requires a login (407)"),
        (403, "https", "the proxy 127.0.0.1 does not connect to share.example.com (403)"),
    ],
)
def test_a_proxy_that_refuses_is_named(
    sharing_server: SharingServer,
    tmp_path: Path,
    examine: Examine,
    monkeypatch: pytest.MonkeyPatch,
    *,
    status: int,
    scheme: str,
    message: str,
) -> None:
    refusal = f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode()
    with serving(lambda _: Response(status)) as proxy, answering(refusal) as port:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//user:a-password@"))
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        endpoint = f"{scheme}://share.example.com/delta-sharing"
        findings = examine(sharing_server.profile(tmp_path / "a.share", endpoint=endpoint))
    found = failed(findings)
    assert (found.message, str(found.owner)) == (message, "network")
    assert "a-password" not in repr(findings)
    assert [one.message for one in findings if one.step == "proxy"] == [
        "requests use the proxy 127.0.0.1 of the environment"
    ]


def test_a_proxy_that_is_not_there(
    sharing_server: SharingServer, tmp_path: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", f"127.0.0.1:{free_port()}")
    profile = sharing_server.profile(tmp_path / "a.share", endpoint="https://share.example.com")
    found = failed(examine(profile))
    assert "cannot be reached" in found.message
    assert "NO_PROXY" in found.advice


@pytest.mark.parametrize("proxy", ["http://[bad:3128", "http://user:a-password@proxy:99999", "http://"])
def test_a_proxy_that_is_not_a_url_is_the_networks(
    profile: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    findings = examine(profile)
    found = failed(findings)
    assert (found.message, str(found.owner)) == (
        "the proxy of HTTPS_PROXY or HTTP_PROXY is not a URL",
        "network",
    )
    assert "a-password" not in repr(findings)


def test_hosts_of_no_proxy_are_reached_directly(
    profile: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert {status for _, status in steps(examine(profile))} == {"ok"}


@pytest.mark.parametrize(
    ("exempt", "host", "is_exempt"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("a.example, 10.1.2.3/24", "10.1.2.9", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("0.0.0.0/0", "10.1.2.3", False),
        ("10.0.0.0/x", "10.1.2.3", False),
        ("10.0.0.0/" + "9" * 5000, "10.1.2.3", False),
        ("10.0.0.0/255.0.0.0", "10.1.2.3", False),
        ("10.0.0.0/8", "ten.example", False),
    ],
)
def test_networks_of_no_proxy_are_for_the_server_and_not_for_the_store(
    *, monkeypatch: pytest.MonkeyPatch, exempt: str, host: str, is_exempt: bool
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", exempt)
    proxy = "http://proxy.example:3128"
    assert proxy_for(f"http://{host}/x") == (None if is_exempt else proxy)
    assert proxy_for(f"http://{host}/x", by_requests=False) == proxy


def test_the_store_and_the_server_are_told_apart(
    sharing_server: SharingServer, profile: Path, examine: Examine
) -> None:
    sharing_server.store = f"http://127.0.0.1:{free_port()}"
    found = failed(examine(profile))
    assert found.step == "file"
