"""The client's address, from the peer's address and `X-Forwarded-For` of trusted proxies."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from gateway.config.networks import Address, Network, contains, parse_address

MAX_FORWARDED_HOPS = 32


def address_of(request: web.BaseRequest, trusted: Sequence[Network]) -> Address | None:
    """Return the address of the client that sent a request: the one rule for all listeners."""
    return client_address(request.remote, request.headers.getall("X-Forwarded-For", []), trusted)


def client_address(
    peer: str | None, forwarded_for: Sequence[str], trusted: Sequence[Network]
) -> Address | None:
    """Return the client's address: the last hop that is not a trusted proxy.

    `forwarded_for` holds the header's values in order of arrival. Each hop appends the address that it saw,
    so the list is believed from its right end, and only as long as the hop that wrote it is trusted.
    """
    address = parse_address(peer) if peer else None
    if address is None or not contains(trusted, address):
        return address
    # A hundred fields of commas hold half a million hops.
    split = (value.rsplit(",", MAX_FORWARDED_HOPS) for value in reversed(forwarded_for))
    for number, hop in enumerate(hop for hops in split for hop in reversed(hops)):
        address = parse_address(hop) if number < MAX_FORWARDED_HOPS else None
        if address is None or not contains(trusted, address):
            return address
    return address
