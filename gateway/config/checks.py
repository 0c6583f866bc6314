"""Checks that several sections of the configuration share. Each raises Invalid with the field's name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from gateway.config.errors import Invalid, shown
from gateway.config.networks import parse_networks

MAX_NAME_LENGTH = 255
MAX_COMMENT_LENGTH = 65_536
DOTS = frozenset({".", ".."})
"""Names that clients remove from paths."""
MAX_PROPERTIES, MAX_PROPERTY_LENGTH = 50, 1000

_OF_NOTHING = hashlib.sha256(b"").hexdigest()
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?")
_UNSPEAKABLE = re.compile(r"[/\x00-\x1f\x7f]")


def check_name(name: str) -> None:
    """Raise Invalid for a name of a share, schema, table or volume that a path cannot have."""
    if len(name) > MAX_NAME_LENGTH:
        raise Invalid("name", f"is longer than {MAX_NAME_LENGTH} characters")
    if _UNSPEAKABLE.search(name):
        raise Invalid("name", "may not contain '/' or control characters")
    if name in DOTS:
        raise Invalid("name", "may not be '.' or '..', which clients remove from paths")


def name_warnings(names: Iterable[str]) -> Iterator[str]:
    """Iterate over warnings of names of shares, schemas and tables that not all clients can address."""
    for name in names:
        if " " in name:
            yield f"{name!a} contains a blank, which not all clients support"
        if "." in name:
            yield f"{name!a} contains a dot, so no official client can address it"


def check_hash(field: str, sha256: str) -> None:
    """Raise Invalid for a text that is no SHA-256, or that of an empty text: everyone knows it.

    Commands print it for a variable without a value.
    """
    if not _SHA256.fullmatch(sha256):
        raise Invalid(field, "expected 64 hexadecimal digits; `delta-gateway token` prints them")
    if sha256.lower() == _OF_NOTHING:
        raise Invalid(field, "is the SHA-256 of an empty text; give that of a token")


def check_length(field: str, text: str | None, limit: int) -> None:
    """Raise Invalid for a text of more than `limit` characters."""
    if text is not None and len(text) > limit:
        raise Invalid(field, f"has a text of more than {limit} characters")


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise Invalid for too many properties, and for one without a name or with a long text."""
    if len(properties) > MAX_PROPERTIES:
        raise Invalid("properties", f"has more than {MAX_PROPERTIES} entries")
    for name, text in properties.items():
        if not name:
            raise Invalid("properties", "has an entry without a name")
        check_length("properties", name, MAX_NAME_LENGTH)
        check_length("properties", text, MAX_PROPERTY_LENGTH)


def check_unique(field: str, names: list[str]) -> None:
    """Raise Invalid where two names differ in their case at most."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise Invalid(field, f"'{name}' is listed twice (names are case-insensitive)")
        seen.add(name.casefold())


def check_networks(field: str, networks: tuple[str, ...]) -> None:
    """Raise Invalid for a text that is no address and no network."""
    try:
        parse_networks(networks)
    except ValueError as reason:
        raise Invalid(field, f"{reason}; accepted: addresses and networks such as 10.0.0.0/8") from None


def check_host(field: str, host: str) -> None:
    """Raise Invalid for a text that is no address and no name: to a name service `*` is 0.0.0.0."""
    with suppress(ValueError):
        if not _HOST.fullmatch(host.encode("idna").decode().lower()):
            # An address of IPv6 may have a zone, of any characters.
            ip_address(host if host.isprintable() else "")
        return
    raise Invalid(field, f"{shown(host)} is neither an address nor the name of a host")


def check_url(field: str, url: str | None) -> None:
    """Check the URL of a host, with an optional path. Raises Invalid."""
    if url is None:
        return
    accepted = "accepted: https://host, http://host:port"
    # The messages have no part of a URL that may be a password or a signature: they are logged.
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise Invalid(field, f"a user or password in a URL is not accepted; {accepted}")
    if not _is_url(url):
        raise Invalid(field, f"{shown(url)} is not a URL; {accepted}")


def _is_url(url: str) -> bool:
    if not re.fullmatch(r"https?://[^/?#\s\\]+(/[^?#\s]*)?", url) or not url.isprintable():
        return False
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if parts.netloc.startswith("["):
            ip_address(host)
            return parts.netloc.partition("]")[2] in ("", f":{port}")
    except ValueError:
        return False
    return bool(_HOST.fullmatch(host)) and parts.netloc.lower() in (host, f"{host}:{port}")
