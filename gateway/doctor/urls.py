"""URLs of profiles and servers, which may be malformed."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

UNKNOWN_HOST = "?"


def parse_url(url: str) -> SplitResult | None:
    """Return the parts of a URL; None for a malformed one."""
    try:
        parts = urlsplit(url)
        # Both raise ValueError when they are read.
        _ = parts.port, parts.hostname
    except ValueError:
        return None
    return parts


def host_of(url: str | None) -> str:
    """Return the host of a URL, for messages."""
    return host_in(url) or UNKNOWN_HOST


def host_in(url: str | None) -> str | None:
    """Return the host of a URL; None for one without a host or a malformed one."""
    parts = parse_url(url or "")
    return (parts.hostname if parts else None) or None


def is_loopback(host: str | None) -> bool:
    """Return whether a host is this machine."""
    return host is not None and (host in {"localhost", "::1"} or host.startswith("127."))
