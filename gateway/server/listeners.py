"""The listening sockets of a server: bound before anything else starts, one for each worker.

In: a host and a port. Out: bound sockets, which the kernel distributes new connections among.
"""

from __future__ import annotations

import errno
import socket


class CannotListen(OSError):
    """Raised for an address that cannot be listened on; the text has the address and the reason."""


def bind(host: str, port: int, sockets: int) -> list[socket.socket]:
    """Bind several sockets to one port; the kernel distributes new connections among those that listen.

    Port 0 chooses a free port. Raises CannotListen, also when another server has the port.
    """
    bound: list[socket.socket] = []
    try:
        for _ in range(sockets):
            bound.append(_bind(host, port, is_first=not bound))
            port = bound[0].getsockname()[1]
            if sockets > 1:
                bound[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        for listener in bound:
            listener.close()
        reasons = {
            errno.EADDRINUSE: "another program listens there",
            errno.EACCES: "it is for privileged users; set a port of 1024 or more",
        }
        reason = reasons.get(error.errno or 0) or error.strerror or str(error)
        raise CannotListen(f"cannot listen on {host} port {port}: {reason}") from None
    return bound


def allow_restart(listener: socket.socket) -> None:
    """Allow the next server to bind this port while connections linger. Call it before listening.

    It must not be set before the socket is bound: two servers could then bind one port until one listens.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def without_listening(listener: socket.socket) -> socket.socket:
    """Replace a socket by one that is bound to the same port and does not listen.

    Connections that wait in the old socket are reset, and new ones go to the other sockets of the port. A
    socket that is alone on its port is returned unchanged.
    """
    replacement = socket.socket(listener.family, listener.type, listener.proto)
    try:
        replacement.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        replacement.bind(listener.getsockname())
    except OSError:
        replacement.close()
        return listener
    listener.close()
    return replacement


def _bind(host: str, port: int, *, is_first: bool) -> socket.socket:
    """Bind one socket. The first one has the port to itself or fails; the others share it."""
    if not is_first:
        # Lingering connections of an earlier single server share their port by the first option only.
        return _bound(host, port, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    try:
        return _bound(host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        # Lingering connections of an ended server fail the first attempt, not this one.
        return _bound(host, port, socket.SO_REUSEADDR)


def _bound(host: str, port: int, *options: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # `localhost` is `::1`, too, and first on most systems: clients of 127.0.0.1 would be refused.
    family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    bound = socket.socket(family, kind, protocol)
    try:
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
