"""Requests of the doctor: bounded, without retries and redirects, through the proxy of the environment.

In: a URL and the service that it belongs to. Out: an `Answer`. Raises Problem with the reason if there is
none. The proxy is that of HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as for clients; ~/.netrc is not read.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from urllib.request import getproxies_environment

import orjson
import urllib3
from urllib3.exceptions import DecodeError, HTTPError, ProtocolError

from gateway.client.proxies import proxy_of_environment
from gateway.client.transport import DEFAULT_PORTS, Connections, Response
from gateway.doctor.authorities import Authorities
from gateway.doctor.connection_errors import STORE, AnswerCut, Service, explain, is_untrusted, proxy_answer
from gateway.doctor.findings import Findings, Owner, Problem
from gateway.doctor.urls import host_in, host_of, parse_url

CONNECT_SECONDS = 10.0
"""At most half of the time for an answer."""
MAX_BODY_BYTES = 8 * 1024 * 1024
READ_BYTES = 64 * 1024
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
    """Requests over kept connections."""

    def __init__(self, timeout_seconds: float, findings: Findings) -> None:
        self._findings = findings
        self._authorities = Authorities()
        self._only_by_machine: set[str] = set()
        """Hosts whose certificates requests does not trust, and this machine does."""
        self._timeout_seconds = timeout_seconds
        self._connections = Connections()

    def close(self) -> None:
        self._connections.close()

    def send(
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
        """Send a request, and read until a number of bytes or lines. Raises Problem."""
        proxy = proxy_for(url, by_requests=service is not STORE)
        if proxy is not None and not host_in(proxy):
            raise Problem(
                "the proxy of HTTPS_PROXY or HTTP_PROXY is not a URL",
                Owner.NETWORK,
                "write it as http://proxy.example.com:3128, or remove the variable",
            )
        is_secure = any((address or "").startswith("https:") for address in (url, proxy))

        def request(context: ssl.SSLContext | None) -> Answer:
            parts = parse_url(url)
            if parts is None or parts.scheme not in DEFAULT_PORTS or not parts.hostname:
                raise urllib3.exceptions.LocationValueError
            connect_seconds = min(self._timeout_seconds / 2, CONNECT_SECONDS)
            deadline = time.monotonic() + self._timeout_seconds
            response = self._connections.send(
                method,
                parts,
                proxy=proxy,
                timeout=urllib3.Timeout(connect=connect_seconds, read=self._timeout_seconds),
                headers={"User-Agent": USER_AGENT, **(headers or {})},
                body=body,
                context=context,
            )
            received_seconds = time.time()
            content = _read(response, deadline, max_bytes, max_lines)
            names = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, names, content, received_seconds)

        try:
            if not is_secure:
                answer = request(None)
            elif service is STORE:
                answer = request(self._authorities.of_machine)
            else:
                answer = self._as_requests(request, host_of(url))
        except (HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            raise explain(error, service, url, proxy) from None
        _check_path(answer, service, url, proxy)
        return answer

    def _as_requests(self, request: Callable[[ssl.SSLContext], Answer], host: str) -> Answer:
        """Send a request by the authorities of requests, else, with a warning, by those of the machine."""
        if host in self._only_by_machine:
            return request(self._authorities.of_machine)
        try:
            return request(self._authorities.of_requests)
        except urllib3.exceptions.SSLError as error:
            if not is_untrusted(error):
                raise
        # Nothing was sent yet.
        answer = request(self._authorities.of_machine)
        self._only_by_machine.add(host)
        problem = Problem(
            f"only this machine trusts the certificate of {host}: the Python client does not",
            Owner.RECIPIENT,
            "set REQUESTS_CA_BUNDLE to a file that has the authority of the certificate in PEM, besides the "
            "public ones",
        )
        self._findings.warn("certificate", problem)
        return answer


def _read(response: Response, deadline: float, max_bytes: int, max_lines: int | None) -> bytes:
    """Return the first part of a body, by a time of the monotonic clock."""
    body, lines = bytearray(), 0
    try:
        while chunk := response.read1(READ_BYTES, decode_content=True):
            body += chunk
            lines += chunk.count(b"\n")
            if max_lines is not None and lines >= max_lines:
                return bytes(body[: body.rindex(b"\n")])
            if len(body) >= max_bytes:
                return bytes(body[:max_bytes])
            if time.monotonic() > deadline:
                raise TimeoutError
        return bytes(body)
    except (ProtocolError, DecodeError, http.client.HTTPException) as error:
        raise AnswerCut from error
    finally:
        # A body that was not read to its end ends its connection.
        response.close()


def proxy_for(url: str, *, by_requests: bool = True) -> str | None:
    """Return the proxy of the environment for a URL. The library requests knows networks in NO_PROXY."""
    parts = parse_url(url)
    if parts is None:
        return None
    exempt = getproxies_environment().get("no", "") if by_requests else ""
    return None if _is_in_network(parts.hostname or "", exempt) else proxy_of_environment(parts)


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
    """Raise Problem for answers of something between this machine and the service."""
    if answer.status == 407:  # noqa: PLR2004 - Proxy Authentication Required
        raise proxy_answer(answer.status, host_of(url), proxy)
    if 300 <= answer.status < 400 and (location := answer.headers.get("location")):  # noqa: PLR2004 - redirects
        raise _redirect(service, url, location)
    if answer.is_page and answer.status in {200, 403, 502, 503, 511}:
        raise Problem(
            f"an HTML page with status {answer.status} arrived instead of an answer of {service.name}",
            Owner.NETWORK,
            f"let {host_of(url)} pass the proxy, login page or web filter between, then try again; "
            f"if the page is that of {service.name}, {service.owner} looks at its address",
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
