"""Which URLs of other services the server fetches: by HTTPS, and not from private addresses by default."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from yarl import URL

_NUMERIC = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$")
"""A host whose last label is a number. No name ends in one."""
_OF_IPV4 = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""IPv6 addresses that end in an IPv4 address: of NAT64 (RFC 6052) and IPv4-compatible ones."""
_INTERNET = tuple(map(IPv6Network, ("2000::/3", "64:ff9b::/96", "::ffff:0:0/96")))
"""Where addresses of the internet lie: `is_global` also has those of sites (`fec0::/10`), and those by which
translators and tunnels of a site lead to its IPv4 addresses, such as `64:ff9b:1::/48` (RFC 8215)."""


def is_accepted_url(url: str, *, allow_private_addresses: bool) -> bool:
    """Return whether a URL may be fetched, judged by its text."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if not host.isascii():
            # As the client writes it, which may be an address: by digits of another script, or full stops.
            host = URL(url).raw_host or ""
    except ValueError:
        return False
    if not host or parts.username is not None or parts.scheme not in ("http", "https"):
        return False
    is_local = host == "localhost"
    try:
        address = ip_address(host)
    except ValueError:
        if _NUMERIC.search(host):
            # Systems read `127.1` and `2130706433` as addresses, which would not be checked as such.
            return False
        is_private = is_local
    else:
        is_local = address.is_loopback
        is_private = not is_public(address)
    if is_private and not allow_private_addresses:
        return False
    return parts.scheme == "https" or (is_local and allow_private_addresses)


def is_public_text(address: str) -> bool:
    """Return whether the address of a peer is of the internet."""
    return is_public(ip_address(address.partition("%")[0]))


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is of the internet, also the IPv4 address that an IPv6 address stands for."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and any(address in network for network in _OF_IPV4):
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None and not is_public(inner):
            return False
        if not any(address in network for network in _INTERNET):
            return False
    return address.is_global and not address.is_multicast
