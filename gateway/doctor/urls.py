"""URLs of profiles and servers, which may be malformed."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

UNKNOWN_HOST = "?"
DEFAULT_PORTS = {"https": 443, "http": 80}


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


def is_same_host(url: str, other: str) -> bool:
    """Return whether two URLs have the same host and port."""
    return _host_and_port(url) == _host_and_port(other)


def _host_and_port(url: str) -> tuple[str | None, int | None]:
    parts = parse_url(url)
    if parts is None:
        return None, None
    return parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)


def is_loopback(host: str | None) -> bool:
    """Return whether a host is this machine."""
    return host is not None and (host in {"localhost", "::1"} or host.startswith("127."))
