"""Requests of the doctor: bounded, without retries and redirects, through the proxy of the environment.

In: a URL and the service that it belongs to. Out: an `Answer`. Raises StepFailed with the reason if there is
none. The proxy is that of HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as for clients; ~/.netrc is not read.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from types import TracebackType
from typing import Self
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

import aiohttp
import orjson
from yarl import URL

from gateway.doctor.authorities import Authorities
from gateway.doctor.connection_errors import STORE, UNTRUSTED, Service, explain
from gateway.doctor.findings import Findings, Owner, Problem, StepFailed
from gateway.doctor.urls import host_in, host_of, parse_url

CONNECT_SECONDS = 10.0
"""At most half of the time for an answer."""
MAX_BODY_BYTES = 8 * 1024 * 1024
USER_AGENT = "delta-gateway-doctor"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, whose body can be a first part."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    received_seconds: float
    """The time of this machine when the headers arrived, in seconds since 1970."""

    @property
    def is_page(self) -> bool:
        """Return whether the body is a web page."""
        start = self.body[:256].lstrip().lower()
        return "text/html" in self.headers.get("content-type", "").lower() or start.startswith(
            (b"<!doctype", b"<html")
        )

    def json(self) -> object:
        """Return the document of the body; None if it is not JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None

    def lines(self) -> list[dict[str, object]]:
        """Return the complete lines of the body that are JSON objects. Raises ValueError for another line."""
        parsed = [orjson.loads(line) for line in self.body.split(b"\n") if line.strip()]
        if not all(isinstance(line, dict) for line in parsed):
            raise ValueError("a line is not an object")
        return parsed


class Transport:
    """A client session, as a context."""

    def __init__(self, timeout_seconds: float, findings: Findings) -> None:
        self._findings = findings
        self._authorities = Authorities()
        self._only_by_machine: set[str] = set()
        """Hosts whose certificates requests does not trust, and this machine does."""
        self._timeout = aiohttp.ClientTimeout(
            total=timeout_seconds, sock_connect=min(timeout_seconds / 2, CONNECT_SECONDS)
        )

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout,
            headers={"User-Agent": USER_AGENT},
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def send(
        self,
        service: Service,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        max_bytes: int = MAX_BODY_BYTES,
        max_lines: int | None = None,
    ) -> Answer:
        """Send a request, and read until a number of bytes or lines. Raises StepFailed."""
        proxy = proxy_for(url, by_requests=service is not STORE)
        if proxy is not None and not host_in(proxy):
            raise StepFailed(
                Problem(
                    "the proxy of HTTPS_PROXY or HTTP_PROXY is not a URL",
                    Owner.NETWORK,
                    "write it as http://proxy.example.com:3128, or remove the variable",
                )
            )
        is_secure = any((address or "").startswith("https:") for address in (url, proxy))

        async def request(context: ssl.SSLContext | bool) -> Answer:
            async with self._session.request(
                method,
                # A signed URL is sent as it is.
                URL(url, encoded=True),
                headers=headers,
                data=body,
                proxy=proxy,
                allow_redirects=False,
                ssl=context,
            ) as response:
                received_seconds = time.time()
                content, is_whole = await _read(response, max_bytes, max_lines)
                if not is_whole:
                    response.close()
            names = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, names, content, received_seconds)

        try:
            if not is_secure:
                answer = await request(True)
            elif service is STORE:
                answer = await request(self._authorities.of_machine)
            else:
                answer = await self._as_requests(request, host_of(url))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise StepFailed(await explain(error, service, url, proxy)) from None
        _check_path(answer, service, url, proxy)
        return answer

    async def _as_requests(self, request: Callable[[ssl.SSLContext], Awaitable[Answer]], host: str) -> Answer:
        """Send a request by the authorities of requests, or else by those of the machine with a warning."""
        if host in self._only_by_machine:
            return await request(self._authorities.of_machine)
        try:
            return await request(self._authorities.of_requests)
        except aiohttp.ClientConnectorCertificateError as error:
            if getattr(error.certificate_error, "verify_code", 0) not in UNTRUSTED:
                raise
        # Nothing was sent yet.
        answer = await request(self._authorities.of_machine)
        self._only_by_machine.add(host)
        problem = Problem(
            f"only this machine trusts the certificate of {host}: the Python client does not",
            Owner.RECIPIENT,
            "set REQUESTS_CA_BUNDLE to a file that has the authority of the certificate in PEM, besides the "
            "public ones",
        )
        self._findings.warn("certificate", problem)
        return answer


async def _read(
    response: aiohttp.ClientResponse, max_bytes: int, max_lines: int | None
) -> tuple[bytes, bool]:
    """Return the first part of a body, and whether it is all."""
    body, lines = bytearray(), 0
    async for chunk in response.content.iter_any():
        body += chunk
        lines += chunk.count(b"\n")
        if max_lines is not None and lines >= max_lines:
            return bytes(body[: body.rindex(b"\n")]), False
        if len(body) >= max_bytes:
            return bytes(body[:max_bytes]), False
    return bytes(body), True


def proxy_for(url: str, *, by_requests: bool = True) -> str | None:
    """Return the proxy of the environment for a URL. The library requests knows networks in NO_PROXY."""
    parts, proxies = parse_url(url), getproxies_environment()
    if parts is None:
        return None
    proxy: str | None = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is None or proxy_bypass_environment(parts.netloc.rpartition("@")[2], proxies):
        return None
    if by_requests and _is_in_network(parts.hostname or "", proxies.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_in_network(host: str, exempt: str) -> bool:
    """Return whether a host is an address of IPv4 in a network of NO_PROXY, such as 10.0.0.0/8."""
    try:
        address = IPv4Address(host)
    except AddressValueError:
        return False
    for item in exempt.replace(" ", "").split(","):
        mask = item.partition("/")[2]
        try:
            # For requests, masks are numbers above 0.
            if mask.isdecimal() and int(mask) and address in IPv4Network(item, strict=False):
                return True
        except ValueError:
            continue
    return False


def _check_path(answer: Answer, service: Service, url: str, proxy: str | None) -> None:
    """Raise StepFailed for answers of something between this machine and the service."""
    if answer.status == 407:  # noqa: PLR2004 - Proxy Authentication Required
        raise StepFailed(
            Problem(
                f"the proxy {host_of(proxy)} requires a login (407)",
                Owner.NETWORK,
                "give the user and password of the proxy in HTTPS_PROXY, or exempt the host by NO_PROXY",
            )
        )
    if 300 <= answer.status < 400 and (location := answer.headers.get("location")):  # noqa: PLR2004 - redirects
        raise StepFailed(_redirect(service, url, location))
    if answer.is_page and answer.status in {200, 403, 502, 503, 511}:
        raise StepFailed(
            Problem(
                f"an HTML page with status {answer.status} arrived instead of an answer of {service.name}",
                Owner.NETWORK,
                f"let {host_of(url)} pass the proxy, login page or web filter between, then try again; "
                f"if the page is that of {service.name}, {service.owner} looks at its address",
            )
        )


def _redirect(service: Service, url: str, location: str) -> Problem:
    """Return the problem of a redirect, which clients follow without the token or not at all."""
    source, target = parse_url(url), parse_url(location)
    if source is None or target is None or target.hostname in (None, source.hostname):
        is_upgrade = source is not None and target is not None and source.scheme < target.scheme == "https"
        same = "to https" if is_upgrade else "to another path"
        return Problem(
            f"{service.name} redirects requests {same}",
            Owner.RECIPIENT,
            "write the address that it redirects to into the profile",
        )
    return Problem(
        f"requests for {source.hostname} are redirected to {target.hostname}",
        Owner.NETWORK,
        f"if that is a login page of your network, log in or let {source.hostname} pass; otherwise the "
        "provider sends a profile with the address of the server",
    )
