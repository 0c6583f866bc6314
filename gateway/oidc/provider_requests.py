"""Requests of the server to identity providers.

In: an `Issuer` of the configuration, which decides about its URLs. Out: documents. Nothing is fetched from
private addresses unless the issuer allows them, no redirect is followed, and an answer is bounded in time and
bytes: also a provider, or who answers in its place, cannot send the server elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
import orjson

from gateway.config.fetched_urls import is_accepted_url
from gateway.config.oidc import Issuer
from gateway.outgoing import PublicResolver, client_error_text, proxy_hosts, proxy_of

FETCH_SECONDS = 5.0
MAX_DOCUMENT_BYTES = 256 * 1024
DISCOVERY = "/.well-known/openid-configuration"
OK = 200


class FetchError(Exception):
    """Raised when a provider's document cannot be fetched. The text is for the log."""


EXPECTED = (FetchError, ValueError, OSError, aiohttp.ClientError, TimeoutError)
"""The errors of a request whose texts are for the log."""


@dataclass(frozen=True, slots=True)
class ProviderAnswer:
    """An answer of a provider; `cache_control` is the text of that header."""

    status: int
    body: bytes
    cache_control: str


class ProviderSession:
    """A client of one provider, for a few requests."""

    def __init__(self, client: aiohttp.ClientSession, issuer: Issuer) -> None:
        self._client = client
        self._issuer = issuer

    async def get(self, url: str) -> ProviderAnswer:
        """Return a document. Raises `EXPECTED` errors."""
        answer = await self._request("GET", url)
        if answer.status != OK:
            raise FetchError(f"it answers {answer.status}")
        return answer

    async def post(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> ProviderAnswer:
        """Return the answer to a form, of any status. Raises `EXPECTED` errors."""
        content_type = {"Content-Type": "application/x-www-form-urlencoded"}
        return await self._request("POST", url, urlencode(form).encode(), {**content_type, **(headers or {})})

    async def discover(self) -> dict[str, Any]:
        """Return the discovery document of the issuer. Raises `EXPECTED` errors."""
        described: Any = orjson.loads((await self.get(self._issuer.issuer.rstrip("/") + DISCOVERY)).body)
        if not isinstance(described, dict) or described.get("issuer") != self._issuer.issuer:
            raise FetchError("the discovery document belongs to another issuer")
        return described

    async def _request(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> ProviderAnswer:
        if not is_accepted_url(url, allow_private_addresses=self._issuer.allow_private_addresses):
            raise FetchError("one of its URLs is not https, or has a private address")
        sent = {"Accept": "application/json", **(headers or {})}
        async with self._client.request(
            method, url, data=body, headers=sent, allow_redirects=False, **proxy_of(url)
        ) as response:
            read = bytearray()
            async for chunk in response.content.iter_any():
                read += chunk
                if len(read) > MAX_DOCUMENT_BYTES:
                    raise FetchError(f"its document has more than {MAX_DOCUMENT_BYTES} bytes")
            return ProviderAnswer(response.status, bytes(read), response.headers.get("Cache-Control", ""))


@asynccontextmanager
async def provider_session(issuer: Issuer) -> AsyncIterator[ProviderSession]:
    """Open a client of a provider."""
    resolver = None if issuer.allow_private_addresses else PublicResolver(proxy_hosts())
    connector = aiohttp.TCPConnector(resolver=resolver)
    timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
        yield ProviderSession(client, issuer)


def reason_of(error: Exception) -> str:
    """Return the text of an error for the log."""
    return client_error_text(error) if isinstance(error, EXPECTED) else type(error).__name__
