"""Where a request comes from, and whether its recipient may come from there.

In: the peer's address, the X-Forwarded-For header and the proxies that the configuration trusts. Out: one
address, or None when the header cannot be read; None is on no allow-list. Addresses are compared as numbers:
an IPv4 address in IPv6 clothes is the IPv4 address.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_FORWARDED_HOPS = 32
MAPPED_PREFIX_BITS = 96  # ::ffff:0:0/96 holds the IPv4 addresses


def parse_network(text: str) -> Network:
    """`10.0.0.0/8`, `2001:db8::/32` or one address. ValueError says what is wrong."""
    network = ip_network(text.strip(), strict=True)
    if isinstance(network, IPv6Network) and network.prefixlen >= MAPPED_PREFIX_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - MAPPED_PREFIX_BITS))
    return network


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse each; ValueError for the first that is none."""
    return tuple(parse_network(text) for text in texts)


def parse_address(text: str) -> Address | None:
    """One address as proxies write it: bare, with a port, in brackets, with a zone; else None."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return _plain(address)


def _plain(address: Address) -> Address:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def contains(networks: Sequence[Network], address: Address) -> bool:
    """Whether any of the networks holds the address."""
    return any(address.version == network.version and address in network for network in networks)


def client_address(
    peer: str | None, forwarded_for: Sequence[str], trusted: Sequence[Network]
) -> Address | None:
    """Who really asks: the last hop that is not one of our own proxies.

    `forwarded_for` holds the header's values in order of arrival. Each hop appends the address that it saw,
    so the list is believed from its right end, and only as long as the hop that wrote it is trusted.
    """
    address = parse_address(peer) if peer else None
    if address is None or not contains(trusted, address):
        return address
    hops = [hop for value in forwarded_for for hop in value.split(",")]
    if len(hops) > MAX_FORWARDED_HOPS:
        return None
    for hop in reversed(hops):
        address = parse_address(hop)
        if address is None or not contains(trusted, address):
            return address
    return address


def allowed(networks: Sequence[Network], address: Address | None) -> bool:
    """No allow-list lets everybody in; with one, an unknown address stays out."""
    if not networks:
        return True
    return address is not None and contains(networks, address)
