"""Requests to services beside the stores: the catalog of a table, its token endpoint, issuers of credentials.

A request is bounded in time and bytes, follows no redirect, and goes to public addresses unless others are
allowed. urllib3 is imported by the first one: it takes 6% of the CPU of a server's start.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from gateway.client.proxies import proxy_of_environment
from gateway.config.fetched_urls import is_public_text

if TYPE_CHECKING:
    import urllib3

REQUEST_SECONDS = 10.0
MAX_ANSWER_BYTES = 8 * 1024 * 1024


class NoAnswer(Exception):
    """Raised where a service did not answer; the text says what it did instead, without its address."""


class Answer(NamedTuple):
    """A whole answer. The names of its headers may have any case."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class _Unbounded(OSError):
    """Raised for an answer beyond the bounds of a request. The text has nothing of the answer."""


def send(
    method: str, url: str, headers: dict[str, str], body: bytes | None = None, *, private: bool
) -> Answer:
    """Return an answer, of any status. Raises NoAnswer."""
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - as above

    try:
        return _answer(method, url, headers, body, private=private)
    except _Unbounded as error:
        raise NoAnswer(str(error)) from None
    except (HTTPError, OSError, ValueError) as error:
        # Its text may have the address.
        raise NoAnswer(f"cannot be reached ({type(error).__name__})") from None


def _answer(method: str, url: str, headers: dict[str, str], body: bytes | None, *, private: bool) -> Answer:
    import urllib3  # noqa: PLC0415 - as above

    # A proxy resolves the names of its requests itself.
    manager = _manager(proxy_of_environment(urlsplit(url)), private=private)
    ends = time.monotonic() + REQUEST_SECONDS
    sent = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
    response = manager.request(
        method,
        url,
        headers=sent,
        body=body,
        redirect=False,
        # A kept connection may be closed by the other side at this moment. A repeated POST only issues twice.
        retries=urllib3.Retry(
            total=1, redirect=False, status=False, other=False, read=1, connect=0, allowed_methods=None
        ),
        timeout=urllib3.Timeout(connect=REQUEST_SECONDS / 2, read=REQUEST_SECONDS / 2),
        preload_content=False,
    )
    body_read = bytearray()
    try:
        while piece := response.read1(64 * 1024):
            body_read += piece
            if len(body_read) > MAX_ANSWER_BYTES:
                raise _Unbounded(f"answers more than {MAX_ANSWER_BYTES >> 20} MiB")
            if time.monotonic() > ends:
                raise _Unbounded(f"does not end its answer in {REQUEST_SECONDS:.0f} seconds")
        response.release_conn()
        return Answer(response.status, bytes(body_read), response.headers)
    finally:
        # Only a connection whose answer was read to its end is kept.
        response.close()


@cache
def _manager(proxy: str | None, *, private: bool) -> urllib3.PoolManager:
    """Return the connections by a proxy, to any address, or to public ones."""
    import urllib3  # noqa: PLC0415 - as above

    from gateway.client.transport import proxy_manager  # noqa: PLC0415 - as above

    if proxy:
        return proxy_manager(proxy)
    manager = urllib3.PoolManager(maxsize=8)
    if private:
        return manager

    class PublicConnection(urllib3.connection.HTTPSConnection):
        """A connection to a public address, which is checked before anything is sent."""

        def _new_conn(self) -> Any:
            connected = super()._new_conn()
            if not is_public_text(str(connected.getpeername()[0])):
                connected.close()
                raise OSError("its host has a private address; allowPrivateAddresses accepts it")
            return connected

    class PublicPool(urllib3.HTTPSConnectionPool):
        ConnectionCls = PublicConnection

    manager.pool_classes_by_scheme = {"https": PublicPool}
    return manager
