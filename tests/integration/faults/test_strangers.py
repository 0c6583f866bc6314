"""Connections without a token: many, slow, ahead of their answers, and unread. Recipients notice nothing."""

import http.client
import json
import os
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest
from support.gateway_directory import TOKEN, Gateway
from support.nightly import at_night
from support.process_resources import resident
from support.waiting import wait_until

pytestmark = pytest.mark.processes

MANY = int(os.environ.get("DELTA_GATEWAY_STRANGERS", "2000"))
MOST_BYTES = 64 * 1024 * 1024
FIELDS = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 200) for number in range(100))
"""A head that is nearly as long as it may be."""
HEAD = b"GET /delta-sharing/openapi.json HTTP/1.1\r\nHost: x\r\n"
HOSTILE = {
    "a head that does not end": (HEAD + FIELDS, False),
    "requests ahead, answers unread": ((HEAD + FIELDS + b"\r\n") * 12, False),
    "short requests ahead, answers unread": ((HEAD + b"\r\n") * 200, False),
    "half closed": (HEAD + FIELDS, True),
    "nothing": (b"", False),
    "half a body": (
        b"POST /delta-sharing/activate HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\nx",
        False,
    ),
}


UNFINISHED = (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", False)
"""The begin of a TLS handshake."""


def listens(port):
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 20):
        return True
    return False


def hostile(address, kind, source):
    """A connection that holds what it can, from one of many addresses."""
    sent, is_half_closed = kind
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.bind((source, 0))
    connection.settimeout(20)
    connection.connect(address)
    connection.setblocking(False)
    with suppress(OSError):
        connection.send(sent)
    if is_half_closed:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
    return connection


def latencies(gateway):
    """How long a recipient's requests take, each on a new connection."""
    found = []
    for _ in range(150):
        began = time.monotonic()
        assert gateway.shares() == (200, ["sales"])
        found.append(time.monotonic() - began)
    return sorted(found)


@pytest.mark.alone
@pytest.mark.parametrize("listener", ["sharing", *at_night("admin", "handshakes")])
def test_thousands_of_hostile_connections_cost_little_and_recipients_notice_nothing(tmp_path, listener):
    gateway = Gateway(tmp_path)
    if listener == "handshakes":
        gateway.settings["gateway"]["admin"]["ssl"] = {"selfSigned": True}
        gateway.write()
    with gateway.running(), ExitStack() as stack:
        wait_until(lambda: listens(gateway.admin_port))
        alone = latencies(gateway)
        before = resident(gateway)
        address = ("127.0.0.1", gateway.port if listener == "sharing" else gateway.admin_port)
        kinds = [UNFINISHED] if listener == "handshakes" else [*HOSTILE.values()]
        for number in range(MANY):
            source = f"127.0.{number // 250 + 1}.{number % 250 + 1}"
            stack.enter_context(hostile(address, kinds[number % len(kinds)], source))
        beside = latencies(gateway)
        assert resident(gateway) - before < MOST_BYTES
        # Twice, and what a busy machine may add to either.
        assert beside[-2] < 2 * alone[-2] + 0.5, (alone[-5:], beside[-5:])
        if listener == "sharing":
            closed = "delta_gateway_closed_unauthenticated_connections_total{"
            gateway.until(lambda: closed in gateway.admin("GET", "/metrics")[1].decode())
            wait_until(lambda: "connections without a valid token were closed" in gateway.log())


def test_connections_of_one_address_are_bounded_and_those_of_recipients_stay(tmp_path):
    gateway = Gateway(tmp_path)
    with gateway.running(), ExitStack() as stack:
        known = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)

        def ask():
            known.request("GET", "/delta-sharing/shares", headers={"Authorization": f"Bearer {TOKEN}"})
            return json.loads(known.getresponse().read())

        assert ask()
        address = ("127.0.0.1", gateway.port)
        idle, sockets = (
            [stack.enter_context(socket.create_connection(address, 20)) for _ in range(300)] for _ in range(2)
        )
        for connection in sockets:
            connection.sendall(HEAD)
        assert gateway.shares()[0] == 200
        assert ask()
        known.close()
        # The oldest ones are closed, the last ones are not, nor are those that have sent nothing.
        assert sockets[0].recv(1) == b""
        sockets[-1].sendall(b"\r\n")
        idle[0].sendall(HEAD + b"\r\n")
        assert idle[0].recv(12) == b"HTTP/1.1 200"
        assert sockets[-1].recv(12) == b"HTTP/1.1 200"


def test_many_clients_that_come_at_once_from_one_address_are_all_answered(tmp_path):
    gateway = Gateway(tmp_path)
    request = HEAD.replace(b"openapi.json", b"shares") + b"Authorization: Bearer %s\r\n\r\n" % TOKEN.encode()
    with gateway.running(), ExitStack() as stack:
        address = ("127.0.0.1", gateway.port)
        # On a busy machine they have waited for more than the grace: of those 1,024 stay open.
        sockets = [stack.enter_context(socket.create_connection(address, 20)) for _ in range(1000)]
        for connection in sockets:
            connection.sendall(request)
        # A busy server says so, and cuts no connection.
        assert {connection.recv(12)[-3:] for connection in sockets} <= {b"200", b"503"}


@pytest.mark.parametrize(
    ("fields", "ending", "status"),
    [(120, b"", b"400"), *at_night((100, b"\r\n", b"200"), (120, b"\r\n", b"400"))],
)
def test_a_head_is_bounded_as_a_whole(tmp_path, fields, ending, status):
    head = HEAD + b"".join(b"X-%d: %s\r\n" % (number, b"a" * 300) for number in range(fields))
    gateway = Gateway(tmp_path)
    with gateway.running(), socket.create_connection(("127.0.0.1", gateway.port), 20) as connection:
        connection.sendall(head + ending)
        assert connection.recv(12)[-3:] == status


QUERY = b"POST /delta-sharing/shares/sales/schemas/a/tables/b/query HTTP/1.1\r\nHost: x\r\n"
LISTING = b"GET /delta-sharing/shares HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % TOKEN.encode()


@pytest.mark.parametrize(
    ("head", "pieces"),
    [
        (QUERY + b"Transfer-Encoding: chunked\r\n\r\n", [b"2\r\n{}\r\n", b"0\r\n\r\n"]),
        *at_night(
            (QUERY + b"Content-Length: 2\r\n\r\n", [b"{}"]), (QUERY + b"Content-Length: 2\r\n\r\n{", [b"}"])
        ),
    ],
    ids=["chunked", "length", "half"],
)
def test_a_request_that_comes_with_the_end_of_a_body_is_answered(tmp_path, head, pieces):
    gateway = Gateway(tmp_path)
    with gateway.running(), connected(gateway) as (connection, answers):
        for _ in range(2):
            connection.sendall(head)
            for piece in pieces[:-1]:
                time.sleep(0.05)
                connection.sendall(piece)
            time.sleep(0.05)
            connection.sendall(pieces[-1] + LISTING + b"\r\n")
            assert [status_of(answers), status_of(answers)] == [b"401", b"200"]


@pytest.mark.parametrize(
    "upgrade", [b"websocket", *at_night(b"h2c\r\nHTTP2-Settings: AAMAAABk")], ids=["websocket", "h2c"]
)
def test_a_connection_goes_on_after_an_upgrade_that_is_not_taken(tmp_path, upgrade):
    # Java's client asks for h2c with each query over plain HTTP, and sends head and body apart.
    asked = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\n" % upgrade
    gateway = Gateway(tmp_path)
    with gateway.running(), connected(gateway) as (connection, answers):
        for _ in range(2):
            connection.sendall(QUERY + asked + b"Content-Length: 2\r\n\r\n")
            time.sleep(0.05)
            connection.sendall(b"{}")
            assert status_of(answers) == b"401"
            connection.sendall(LISTING + asked + b"\r\n")
            assert status_of(answers) == b"200"


@contextmanager
def connected(gateway):
    """A connection, and its answers as a file."""
    with (
        socket.create_connection(("127.0.0.1", gateway.port), 20) as connection,
        connection.makefile("rb") as answers,
    ):
        yield connection, answers


def status_of(answers):
    """Reads an answer with a length."""
    status, length = answers.readline().split()[1], 0
    while (line := answers.readline()) != b"\r\n":
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    answers.read(length)
    return status


def test_pipelined_requests_are_answered_in_order_one_at_a_time(tmp_path):
    gateway = Gateway(tmp_path)
    count, body = 200, b'{"a": 1}'
    one = (
        b"GET /delta-sharing/shares HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % TOKEN.encode()
        + b"POST /delta-sharing/shares/sales/schemas/a/tables/b/query HTTP/1.1\r\nHost: x\r\n"
        + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    with gateway.running(), socket.create_connection(("127.0.0.1", gateway.port), 20) as connection:
        sending = threading.Thread(target=connection.sendall, args=(one * count,))
        sending.start()
        found = []
        answers = connection.makefile("rb")
        found.extend(status_of(answers) for _ in range(3 * count))
        sending.join()
        assert found == [b"200", b"401", b"200"] * count
