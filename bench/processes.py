"""The processes of a server: which of them holds a connection, and the CPU of all."""

import http.client
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psutil
from measure import cpu_seconds
from servers import Server

MOST_CONNECTIONS = 500


@contextmanager
def connections_of_workers(server: Server, workers: int) -> Iterator[list[http.client.HTTPConnection]]:
    """Return one connection to each worker. The kernel chooses the worker of a new connection."""
    with ExitStack() as stack:
        found: dict[int, http.client.HTTPConnection] = {}
        for _ in range(MOST_CONNECTIONS):
            if len(found) == workers:
                break
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            holder = _holder(server, connection.sock.getsockname()[1])
            if holder is None or holder in found:
                connection.close()
            else:
                found[holder] = stack.enter_context(closing(connection))
        if len(found) < workers:
            raise AssertionError(f"{len(found)} of {workers} workers got a connection")
        yield list(found.values())


def _holder(server: Server, client_port: int) -> int | None:
    """Return the process that has accepted the connection from a port."""
    for pid in server.workers:
        for held in psutil.Process(pid).net_connections("tcp"):
            if held.raddr and (held.laddr.port, held.raddr.port) == (server.port, client_port):
                return pid
    return None


def cpu_of_group(pid: int) -> float:
    """Return the CPU seconds of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(cpu_seconds(one) for one in (pid, *map(int, children)))
