"""TLS with certificates by files or made at start, renewed while the server runs."""

import asyncio
import datetime as dt
import hashlib
import ipaddress
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.gateway_process import RunningGateway, running_gateway, share
from support.nightly import at_night
from support.processes import free_port
from support.waiting import everywhere, until, wait_until

from gateway.config import Ssl
from gateway.limits.drain_rate import DrainRate
from gateway.routes.files import DataFile
from gateway.server.tls import listener_context, renew
from gateway.tables.local_files import LocalFile
from gateway.web.accepting import RECEIVED_BYTES, Site
from gateway.web.body_writer import BodyWriter, connection_of
from gateway.web.connections import Handler, Runner
from gateway.web.response import TLS_PIECE_BYTES, WholeResponse
from gateway.web.strangers import TLS_BYTES

RENEWALS = 300
PASSWORD = "a password of the tests"
SOON_SECONDS = 30


class Certificate:
    """A certificate and its key in a directory, as an operator's tool would write and renew them."""

    def __init__(self, directory: Path, password: str | None = None) -> None:
        self.file, self.key_file = directory / "certificate.pem", directory / "key.pem"
        self.password = password
        self.serial = 0
        self.renew()

    @property
    def settings(self) -> dict[str, str]:
        found = {"certificateFile": str(self.file), "certificateKeyFile": str(self.key_file)}
        if self.password:
            password_file = self.file.with_name("password")
            password_file.write_text(f"{self.password}\n")
            found["certificatePasswordFile"] = str(password_file)
        return found

    def renew(self, *, key_too: bool = True) -> None:
        self.serial += 1
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
        now = dt.datetime.now(dt.UTC)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(self.serial)
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(address, critical=False)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        hidden = (
            serialization.BestAvailableEncryption(self.password.encode())
            if self.password
            else serialization.NoEncryption()
        )
        if key_too:
            self.key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, hidden))
        self.file.write_bytes(made.public_bytes(pem))


def shown(gateway: RunningGateway, context: ssl.SSLContext | None = None) -> x509.Certificate:
    """The certificate that the server shows, after a whole request."""
    context = context or trusting_everyone()
    with (
        socket.create_connection(("127.0.0.1", gateway.port), SOON_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in connection.recv(4096)
        found = connection.getpeercert(binary_form=True)
    assert found is not None
    return x509.load_der_x509_certificate(found)


def every_worker_shows(gateway: RunningGateway, serial: int) -> bool:
    return everywhere(lambda: shown(gateway).serial_number, serial)()


def trusting_everyone() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@asynccontextmanager
async def tls_client(handler: Handler) -> AsyncIterator[ssl.SSLSocket]:
    """A client of a server that has twenty seconds."""
    runner = Runner(handler)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    tls, context = listener_context(Ssl(self_signed=True), "127.0.0.1"), trusting_everyone()
    await Site(runner, listener, ssl_context=tls).start()
    client = await asyncio.to_thread(
        lambda: context.wrap_socket(socket.create_connection(listener.getsockname(), 20))
    )
    try:
        async with asyncio.timeout(20):
            yield client
    finally:
        client.close()
        await runner.cleanup()


SHARES = [share("s", {})]
SECTION = {"drainDelaySeconds": 0}


@pytest.mark.processes
@pytest.mark.parametrize("password", [PASSWORD, *at_night(None)], ids=["with_password", "plain"])
def test_a_client_that_trusts_the_certificate_reads_and_one_that_does_not_refuses(tmp_path, password):
    certificate = Certificate(tmp_path, password)
    with running_gateway(tmp_path, SHARES, SECTION, ssl=certificate.settings) as gateway:
        assert shown(gateway, ssl.create_default_context(cafile=certificate.file)).serial_number == 1
        with pytest.raises(ssl.SSLCertVerificationError):
            shown(gateway, ssl.create_default_context())


@pytest.mark.processes
def test_plain_http_and_versions_before_tls_1_2_get_no_answer(tmp_path):
    with running_gateway(tmp_path, SHARES, SECTION, ssl=Certificate(tmp_path).settings) as gateway:
        old = trusting_everyone()
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(OSError, match=r"(?i)version|handshake|reset|closed|eof"):
            shown(gateway, old)
        with socket.create_connection(("127.0.0.1", gateway.port), SOON_SECONDS) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP/1.1 200" not in plain.recv(4096)
        assert shown(gateway).serial_number == 1


@pytest.mark.processes
@pytest.mark.parametrize("workers", [2, *at_night(1)])
def test_a_renewed_certificate_serves_new_connections_and_a_wrong_one_leaves_the_old(tmp_path, workers):
    certificate = Certificate(tmp_path)
    settings = certificate.settings
    with running_gateway(tmp_path, SHARES, SECTION, workers=workers, ssl=settings) as gateway:
        wait_until(lambda: "serving" in gateway.log.read_text())
        certificate.renew()
        wait_until(lambda: every_worker_shows(gateway, 2))
        certificate.renew(key_too=False)
        gateway.process.send_signal(signal.SIGHUP)
        wait_until(lambda: gateway.log.read_text().count("cannot be used") >= workers)
        assert every_worker_shows(gateway, 2)
        certificate.renew()
        wait_until(lambda: every_worker_shows(gateway, 4))


async def test_no_connection_fails_while_the_certificate_is_renewed(tmp_path):
    certificate = Certificate(tmp_path)
    settings = Ssl(certificate_file=certificate.file, certificate_key_file=certificate.key_file)
    context = listener_context(settings, "127.0.0.1")
    assert context is not None

    def renewals() -> None:
        for _ in range(RENEWALS):
            certificate.renew()
            renew(context, settings)

    async def serial() -> int:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting_everyone())
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
        return x509.load_der_x509_certificate(found).serial_number

    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        renewing = asyncio.ensure_future(asyncio.to_thread(renewals))
        serials = [await serial()]
        while not renewing.done():
            serials.append(await serial())
        await renewing
        assert serials == sorted(serials)
        assert await serial() == RENEWALS + 1


@pytest.mark.processes
@pytest.mark.parametrize("workers", [2, *at_night(1)])
def test_the_admin_listener_has_separate_tls_with_renewed_certificates(tmp_path, workers):
    certificate, port = Certificate(tmp_path, PASSWORD), free_port()
    admin = {"port": port, "tokenSha256": hashlib.sha256(b"admin").hexdigest(), "ssl": certificate.settings}
    section = {**SECTION, "admin": admin}
    with running_gateway(tmp_path, SHARES, section, workers=workers) as gateway:
        listener = replace(gateway, port=port)
        wait_until(lambda: "serving" in gateway.log.read_text())
        assert shown(listener, ssl.create_default_context(cafile=certificate.file)).serial_number == 1
        with socket.create_connection(("127.0.0.1", port), SOON_SECONDS) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP/1.1 200" not in plain.recv(4096)
        # What clients read has none, as configured.
        assert gateway.request("GET", "/healthz").status == 200
        certificate.renew()
        wait_until(lambda: shown(listener).serial_number == 2)
        certificate.renew(key_too=False)
        wait_until(lambda: "cannot be used" in gateway.log.read_text())
        assert shown(listener).serial_number == 2
        log = gateway.log.read_text()
        assert "the certificate of the admin listener was reloaded" in log
        assert "the changed certificate of the admin listener is refused" in log
        assert "configuration was read" not in log


@pytest.mark.processes
def test_a_certificate_made_at_start_is_for_the_host(tmp_path):
    with running_gateway(tmp_path, SHARES, SECTION, ssl={"selfSigned": True}) as gateway:
        names = shown(gateway).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file or directory"), (b"p\xe4ss", "it is not UTF-8")]
)
def test_a_password_that_cannot_be_read_is_one_error_with_its_file(tmp_path, content, reason):
    password = tmp_path / "password"
    if content is not None:
        password.write_bytes(content)
    settings = Ssl(False, tmp_path / "certificate.pem", tmp_path / "key.pem", password)
    with pytest.raises(OSError, match=f"the certificate's password, {password}, cannot be read: {reason}"):
        listener_context(settings, "localhost")


def test_files_of_another_kind_or_without_their_password_are_one_error_in_words(tmp_path):
    certificate = Certificate(tmp_path, PASSWORD)
    swapped = Ssl(certificate_file=certificate.key_file, certificate_key_file=certificate.file)
    locked = Ssl(certificate_file=certificate.file, certificate_key_file=certificate.key_file)
    for settings in (swapped, locked):
        with pytest.raises(OSError, match="cannot be used: one is not such a PEM file, or cert"):
            listener_context(settings, "localhost")


@pytest.mark.processes
def test_files_that_cannot_be_used_stop_the_start_and_are_named(tmp_path):
    certificate = Certificate(tmp_path)
    certificate.renew(key_too=False)
    with (
        pytest.raises(RuntimeError, match=r"certificate\.pem and the key .*key\.pem cannot be used"),
        running_gateway(tmp_path, SHARES, SECTION, ssl=certificate.settings),
    ):
        pass


async def test_a_handshake_that_does_not_end_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.web.accepting.LIFE_SECONDS", 0.2)

    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    runner = Runner(handler)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    tls = listener_context(Ssl(self_signed=True), "127.0.0.1")
    await Site(runner, listener, ssl_context=tls).start()
    try:
        for sent in (b"", b"\x16\x03\x01\x02\x00\x01\x00"):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(sent)
            async with asyncio.timeout(20):
                assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
    finally:
        await runner.cleanup()


async def test_an_idle_connection_and_a_late_handshake_delay_no_end() -> None:
    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    runner = Runner(handler)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    tls, context = listener_context(Ssl(self_signed=True), "127.0.0.1"), trusting_everyone()
    await Site(runner, listener, ssl_context=tls).start()
    idle, late = (
        context.wrap_socket(
            socket.create_connection(listener.getsockname(), 20), do_handshake_on_connect=False
        )
        for _ in range(2)
    )

    def request() -> bytes:
        idle.do_handshake()
        idle.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return idle.recv(4096)

    def ended() -> bytes:
        late.do_handshake()
        return late.recv(1)

    try:
        async with asyncio.timeout(20):
            assert b"200 OK" in await asyncio.to_thread(request)
            await runner.stop_accepting()
            assert await asyncio.to_thread(ended) == b""
            # Neither client closes its connection, as a pool does not.
            await runner.sent(60)
    finally:
        idle.close()
        late.close()
        await runner.cleanup()


@pytest.mark.parametrize("kept", [True, False])
async def test_an_answer_is_sent_before_its_connection_is_closed_or_idle(*, kept: bool) -> None:
    """TLS gives a closed connection half a minute, which is too short for the buffers of a slow reader."""
    length, ended = 4 * 1024 * 1024, asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: ended.set())
        request.transport.set_write_buffer_limits(length)
        response = web.Response(body=bytes(length))
        if not kept:
            response.force_close()
        return response

    async with tls_client(handler) as client:

        def received() -> int:
            count = 0
            while count < length:
                count += len(client.recv(65536))
            return count

        await asyncio.to_thread(client.sendall, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ended.wait(), 0.3)
        assert await asyncio.to_thread(received) >= length
        await ended.wait()


@pytest.mark.parametrize("form", ["whole", "chunked", "of HTTP/1.0", "a local file"])
async def test_what_is_encrypted_and_not_sent_is_one_piece(form: str, tmp_path: Path) -> None:
    """OpenSSL keeps the memory of it until the connection is closed."""
    length, transports = 4 * 1024 * 1024, list[asyncio.Transport]()
    (tmp_path / "file").write_bytes(bytes(length))
    local = LocalFile(os.fsencode(tmp_path), (b"file",))

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        transports.append(request.transport)
        if form == "whole":
            return WholeResponse(bytes(length))
        if form == "a local file":
            return DataFile(local, ThreadPoolExecutor(1), DrainRate(), lambda: 1024 * 1024, {})
        response = web.StreamResponse()
        writer = await response.prepare(request)
        body = BodyWriter(response, writer, DrainRate(), connection_of(request))
        for _ in range(2):
            await body.write(memoryview(bytes(length // 2)))
        await body.end(b"")
        return response

    version = b"1.0" if form == "of HTTP/1.0" else b"1.1"
    async with tls_client(handler) as client:
        await asyncio.to_thread(client.sendall, b"GET / HTTP/%s\r\nHost: x\r\n\r\n" % version)
        await until(lambda: transports and transports[0].get_write_buffer_size() > 0)
        sizes = list[int]()

        def received() -> int:
            count = 0
            while count < length:
                sizes.append(transports[0].get_write_buffer_size())
                count += len(client.recv(65536))
            return count

        assert await asyncio.to_thread(received) >= length
    # Within a write, as another thread sees it, a piece counts before and behind its encryption.
    assert 0 < max(sizes) < 3 * TLS_PIECE_BYTES


def test_a_client_that_leaves_within_an_answer_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """The event loop of the server resumes the writer of a connection that is lost."""

    async def leave() -> None:
        is_lost = asyncio.Event()

        async def handler(_request: web.BaseRequest) -> web.StreamResponse:
            task = asyncio.current_task()
            assert task is not None
            task.add_done_callback(lambda _: is_lost.set())
            return WholeResponse(bytes(4 * 1024 * 1024))

        async with tls_client(handler) as client:
            await asyncio.to_thread(client.sendall, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.to_thread(client.recv, 65536)
            await asyncio.sleep(0.1)
            client.close()
            await is_lost.wait()

    uvloop.run(leave())
    assert not caplog.records


async def test_what_is_received_and_not_read_is_bounded() -> None:
    """Each buffer keeps its memory until the connection is closed."""
    may_end = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        await may_end.wait()
        # The rest of the body would be read for a while.
        assert request.transport is not None
        request.transport.abort()
        return WholeResponse()

    async with tls_client(handler) as client:

        def sent() -> int:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            client.settimeout(1)
            client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n")
            count = 0
            with suppress(TimeoutError):
                while count < 9999999:
                    count += client.send(bytes(4096))
            return count

        # Two buffers of the kernel, of TLS and of the body.
        assert await asyncio.to_thread(sent) < 32 * RECEIVED_BYTES
        may_end.set()


async def test_unfinished_handshakes_are_bounded_and_the_oldest_end(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 4
    monkeypatch.setattr("gateway.web.strangers.MAX_HELD_BYTES_IN_FLOOD", most * TLS_BYTES)
    monkeypatch.setattr("gateway.web.strangers.MAX_HELD_BYTES", most * TLS_BYTES)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=await request.read())

    runner = Runner(handler)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    tls = listener_context(Ssl(self_signed=True), "127.0.0.1")
    await Site(runner, listener, ssl_context=tls).start()
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    address, opened = listener.getsockname(), []
    try:
        async with asyncio.timeout(20):
            for number in range(2 * most):
                opened.append(await asyncio.open_connection(*address))
                expected = min(number + 1, most)
                await until(lambda expected=expected: len(runner.strangers) == expected)
            assert [await reader.read() for reader, _ in opened[:most]] == [b""] * most
            # The body comes with the end of the handshake, or behind it.
            reader, writer = await asyncio.open_connection(*address, ssl=client)
            opened.append((reader, writer))
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(2) == b"hi"
            for _, writer in opened:
                writer.close()
            await until(lambda: len(runner.strangers) == 0)
    finally:
        await runner.cleanup()
