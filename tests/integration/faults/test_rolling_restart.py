"""Two replicas behind a plain TCP balancer that restart one after the other while clients read."""

import asyncio
import http.client
import json
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress

from support.gateway_directory import TOKEN, Gateway

CLIENTS = 4
REQUESTS_PER_CONNECTION = 20
DRAIN_DELAY_SECONDS = 1.0
"""Longer than the balancer takes to notice that a replica is not ready."""
POLL_SECONDS = 0.1
QUERY = "/delta-sharing/shares/demo/schemas/default/tables/orders/query"


class Balancer:
    """Forwards each connection to a replica whose readiness succeeded at the last look."""

    def __init__(self, replicas):
        self.replicas = replicas
        self.ready = set()
        self.forwarding = set()
        self.port = 0

    async def serve(self, started, ended):
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        looking = [asyncio.ensure_future(self._look(replica)) for replica in self.replicas]
        started.set()
        while not ended.is_set():
            await asyncio.sleep(POLL_SECONDS)
        server.close()
        # A connection whose task is left when the loop closes is found by a later test, as unclosed.
        await asyncio.sleep(POLL_SECONDS)
        for task in (*looking, *self.forwarding):
            task.cancel()
        await asyncio.gather(*looking, *self.forwarding, return_exceptions=True)

    async def _look(self, replica):
        while True:
            status = await asyncio.to_thread(_readiness, replica)
            (self.ready.add if status == 200 else self.ready.discard)(replica.port)
            await asyncio.sleep(POLL_SECONDS)

    async def _forward(self, reader, writer):
        task = asyncio.current_task()
        self.forwarding.add(task)
        try:
            await self._relay(reader, writer)
        finally:
            self.forwarding.discard(task)
            writer.transport.abort()

    async def _relay(self, reader, writer):
        ports = list(self.ready)
        random.shuffle(ports)
        for port in ports:
            with suppress(OSError):
                to_server, from_server = await asyncio.open_connection("127.0.0.1", port)
                try:
                    await asyncio.gather(_copy(reader, from_server), _copy(to_server, writer))
                finally:
                    from_server.transport.abort()
                return


def _readiness(replica):
    with suppress(OSError, http.client.HTTPException):
        return replica.get("/readyz")[0]
    return None


async def _copy(reader, writer):
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()
        await writer.wait_closed()


def read(port, expected, stop, outcomes):
    """Query until `stop`, over connections that are used several times."""
    while not stop.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            for used in range(REQUESTS_PER_CONNECTION):
                outcome, is_open = _query(connection, expected, is_reused=used > 0)
                outcomes[outcome] += 1
                if not is_open or stop.is_set():
                    break
        finally:
            connection.close()


def _query(connection, expected, *, is_reused):
    """Return the outcome of a query, and whether its connection can be used again."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    try:
        connection.request("POST", QUERY, "{}", headers)
        response = connection.getresponse()
    except (http.client.RemoteDisconnected, ConnectionError):
        # A server may close an idle connection, which HTTP clients answer by another one.
        return ("repeated" if is_reused else "failed"), False
    try:
        files = ids(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        return "cut", False
    is_open = response.headers.get("Connection", "").lower() != "close"
    return ("answered" if response.status == 200 and files == expected else "wrong"), is_open


def ids(body):
    return {json.loads(line).get("file", {}).get("id") for line in body.splitlines()}


def replica(directory, tables):
    directory.mkdir()
    gateway = Gateway(
        directory, publicUrl="http://sharing.example.com", drainDelaySeconds=DRAIN_DELAY_SECONDS
    )
    orders = {"name": "orders", "location": str(tables / "orders"), "id": "orders-1"}
    gateway.settings["shares"] = [{"name": "demo", "schemas": [{"name": "default", "tables": [orders]}]}]
    gateway.settings["gateway"]["recipients"][0]["shares"] = ["demo"]
    gateway.write()
    return gateway


def test_replicas_that_restart_in_turn_fail_no_request(tmp_path, demo_tables):
    replicas = [replica(tmp_path / name, demo_tables) for name in ("first", "second")]
    balancer, started, ended, stop = (
        Balancer(replicas),
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )
    outcomes = Counter()
    with ExitStack() as running:
        processes = [ExitStack() for _ in replicas]
        for one, process in zip(replicas, processes, strict=True):
            running.push(process)
            process.enter_context(one.running())
        status, body, _ = replicas[0].get(
            QUERY, method="POST", body={}, headers={"Content-Type": "application/json"}
        )
        assert status == 200
        expected = {json.loads(line).get("file", {}).get("id") for line in body.splitlines()}
        loop = threading.Thread(target=lambda: asyncio.run(balancer.serve(started, ended)))
        loop.start()
        assert started.wait(10)
        while len(balancer.ready) < len(replicas):
            time.sleep(POLL_SECONDS)
        arguments = (balancer.port, expected, stop, outcomes)
        clients = [threading.Thread(target=read, args=arguments) for _ in range(CLIENTS)]
        try:
            for client in clients:
                client.start()
            for one, process in zip(replicas, processes, strict=True):
                before = outcomes["answered"]
                process.close()
                process.enter_context(one.running())
                while one.port not in balancer.ready:
                    time.sleep(POLL_SECONDS)
                assert outcomes["answered"] > before
        finally:
            stop.set()
            for client in clients:
                client.join()
            ended.set()
            loop.join()
    assert set(outcomes) <= {"answered", "repeated"}, outcomes
    assert outcomes["answered"] > 100
    # One for each connection that was idle when its replica ended, at the most.
    assert outcomes["repeated"] <= CLIENTS * len(replicas), outcomes
