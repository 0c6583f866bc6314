"""Requests to other servers: only to public addresses, with their errors in words."""

from __future__ import annotations

import errno
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.client.proxies import proxy_of_environment
from gateway.config.fetched_urls import is_public_text


class PublicResolver(AbstractResolver):
    """Resolves names to public addresses only, so that a provider's document cannot name an inner host.

    A proxy resolves the names of its requests itself, and its own host may have a private address.
    """

    def __init__(self, proxy_hosts: frozenset[str] = frozenset()) -> None:
        """`proxy_hosts`: names that may have any address."""
        self._resolver = aiohttp.ThreadedResolver()
        self._proxy_hosts = proxy_hosts

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        """Return the public addresses of a host. Raises OSError if there are none."""
        results = await self._resolver.resolve(host, port, family)
        if host.casefold() in self._proxy_hosts:
            return results
        public = [result for result in results if is_public_text(result["host"])]
        if not public:
            # aiohttp shows the text of an error with a number alone.
            raise OSError(
                errno.EADDRNOTAVAIL, "its host has a private address; allowPrivateAddresses accepts it"
            )
        return public

    async def close(self) -> None:
        await self._resolver.close()


def proxy_hosts() -> frozenset[str]:
    """Return the hosts of the proxies that the environment names."""
    urls = (url for scheme, url in getproxies_environment().items() if scheme != "no")
    # The name may have no scheme, as for other programs.
    hosts = (urlsplit(url if "://" in url else f"http://{url}").hostname for url in urls)
    return frozenset(host for host in hosts if host is not None)


def proxy_of(url: str) -> dict[str, Any]:
    """Return the options of a request for the proxy that the environment names for its URL.

    With `trust_env` the client would do the same, and also send the secrets of a `.netrc` for the host.
    Raises OSError for a proxy of another kind, which no secret must pass by. One for all programs, such as of
    SOCKS, is left to those that know it.
    """
    proxies, parts = getproxies_environment(), urlsplit(url)
    named = proxy_of_environment(parts) if proxies else None
    if named is None:
        return {}
    if urlsplit(named).scheme in ("http", "https"):
        return {"proxy": named}
    if proxies.get(parts.scheme):
        raise OSError("the proxy that the environment names for it is none of HTTP")
    return {}


MAX_TEXT_LENGTH = 300


def client_error_text(error: Exception) -> str:
    """Return one line that says why a request failed, without any part of its answer."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answers {error.status}"
    if isinstance(error, aiohttp.InvalidURL):
        # The URL of a proxy may have a password.
        return "its URL, or the URL of the proxy, is not valid"
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientPayloadError):
        # The texts of these quote the answer, also over several lines.
        return "its answer is not valid HTTP"
    return " ".join(str(error).split())[:MAX_TEXT_LENGTH] or type(error).__name__
