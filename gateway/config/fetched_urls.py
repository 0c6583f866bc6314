"""Which URLs of other services the server fetches: by HTTPS, and not from private addresses by default."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

_NUMERIC = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$")
"""A host whose last label is a number. No name ends in one."""


def is_accepted_url(url: str, *, allow_private_addresses: bool) -> bool:
    """Return whether a URL may be fetched, as far as the URL tells it."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
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
        is_private = not address.is_global
    if is_private and not allow_private_addresses:
        return False
    return parts.scheme == "https" or (is_local and allow_private_addresses)
