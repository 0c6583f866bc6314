"""Parses networks and addresses, and finds the networks that contain an address."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
)
from itertools import pairwise

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
CACHED_ADDRESSES, CACHED_ADDRESS_LENGTH = 1024, 64
"""Clients and proxies send many requests from one address."""
MAPPED_PREFIX_BITS = 96  # ::ffff:0:0/96 holds the IPv4 addresses


def parse_network(text: str) -> Network:
    """Parse `10.0.0.0/8`, `2001:db8::/32` or one address. Raises ValueError with the reason."""
    network = ip_network(text.strip(), strict=True)
    if isinstance(network, IPv6Network) and network.prefixlen >= MAPPED_PREFIX_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - MAPPED_PREFIX_BITS))
    return network


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse each network; raises ValueError for the first invalid one."""
    return tuple(parse_network(text) for text in texts)


def parse_address(text: str) -> Address | None:
    """Parse an address in the forms of proxies: bare, with a port, in brackets, with a zone; else None."""
    return (_address if len(text) <= CACHED_ADDRESS_LENGTH else _address.__wrapped__)(text)


@lru_cache(CACHED_ADDRESSES)
def _address(text: str) -> Address | None:
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
    return any(address.version == network.version and address in network for network in networks)


def allowed(networks: Sequence[Network], address: Address | None) -> bool:
    """Return whether an address is in one of the networks; without networks every address is."""
    if not networks:
        return True
    return address is not None and contains(networks, address)


def address_range(networks: Sequence[Network]) -> tuple[IPv4Address, IPv4Address] | None:
    """Return the first and the last address of networks that are one range of IPv4; None for others."""
    if any(isinstance(network, IPv6Network) for network in networks):
        return None
    merged = sorted(collapse_addresses(network for network in networks if isinstance(network, IPv4Network)))
    for before, after in pairwise(merged):
        if int(before.broadcast_address) + 1 != int(after.network_address):
            return None
    return (merged[0].network_address, merged[-1].broadcast_address) if merged else None


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine. An address may have a zone."""
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
