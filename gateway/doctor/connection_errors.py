"""Errors of connections in words: DNS, refused connections, TLS, proxies, time-outs.

In: an exception of urllib3 or below. Out: a `Problem`. For a certificate that is not trusted, the issuer is
read by a second handshake that sends nothing, because its name shows an interception.
"""

from __future__ import annotations

import errno
import http.client
import re
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from urllib3.exceptions import (
    ConnectTimeoutError,
    LocationValueError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
    ProxySchemeUnknown,
    SSLError,
)
from urllib3.exceptions import TimeoutError as RequestTimeout

from gateway.doctor.findings import Owner, Problem
from gateway.doctor.urls import host_of, is_loopback

HANDSHAKE_SECONDS = 5.0
_TUNNEL = re.compile(r"Tunnel connection failed: (\d{3})")
# Of OpenSSL's x509_vfy.h.
NOT_YET_VALID, EXPIRED, SELF_SIGNED, SELF_SIGNED_IN_CHAIN, NO_ISSUER, NO_SIGNATURE = 9, 10, 18, 19, 20, 21
OTHER_HOST, OTHER_ADDRESS = 62, 64
UNTRUSTED = frozenset({SELF_SIGNED, SELF_SIGNED_IN_CHAIN, NO_ISSUER, NO_SIGNATURE})


@dataclass(frozen=True, slots=True)
class Service:
    """A service that is called, and the people who run it."""

    name: str
    owner: Owner


SERVER = Service("the server", Owner.PROVIDER)
TOKEN_ENDPOINT = Service("the token endpoint", Owner.IDENTITY_PROVIDER)
OWN_TOKEN_ENDPOINT = Service("the token endpoint of the server", Owner.PROVIDER)
STORE = Service("the store of the data files", Owner.PROVIDER)


class AnswerCut(OSError):
    """Raised when a body ends before its end."""


def is_untrusted(error: Exception) -> bool:
    """Return whether an error is about a certificate with an unknown authority."""
    return getattr(_certificate_error(error), "verify_code", None) in UNTRUSTED


def _certificate_error(error: Exception) -> ssl.SSLCertVerificationError | None:
    cause = error.args[0] if isinstance(error, SSLError) and error.args else error
    return cause if isinstance(cause, ssl.SSLCertVerificationError) else None


def explain(error: Exception, service: Service, url: str, proxy: str | None) -> Problem:
    host = host_of(url)
    if isinstance(error, ProxyError):
        answer = _TUNNEL.search(str(error.original_error))
        if answer is not None:
            return proxy_answer(int(answer[1]), host, proxy)
        if not _is_timeout(error.original_error) and not isinstance(error.original_error, SSLError):
            return _proxy_unreachable(proxy)
        error = error.original_error
    certificate = _certificate_error(error)
    if certificate is not None:
        issuer = _issuer(url) if proxy is None else None
        return _certificate(certificate, service, host, issuer)
    if isinstance(error, (SSLError, ssl.SSLError)):
        return _handshake(error, service, host)
    if isinstance(error, NameResolutionError):
        return _no_address(error, service, host)
    if isinstance(error, LocationValueError) and not isinstance(error, ProxySchemeUnknown):
        return Problem(f"the URL of {service.name} is not one", service.owner, "correct it")
    if _is_timeout(error):
        return _timeout(error, service, host)
    return _broken(error, service, url)


def _is_timeout(error: Exception) -> bool:
    # A refused connection is one of the time-outs of urllib3.
    return isinstance(error, (RequestTimeout, TimeoutError)) and not isinstance(error, NewConnectionError)


def proxy_answer(status: int, host: str, proxy: str | None) -> Problem:
    """Return the problem of a proxy that answers itself."""
    if status == 407:  # noqa: PLR2004 - Proxy Authentication Required
        advice = "give the user and password of the proxy in HTTPS_PROXY, or exempt the host by NO_PROXY"
        return Problem(f"the proxy {host_of(proxy)} requires a login (407)", Owner.NETWORK, advice)
    return Problem(
        f"the proxy {host_of(proxy)} does not connect to {host} ({status})",
        Owner.NETWORK,
        f"let {host} pass the proxy, or exempt it by NO_PROXY",
    )


def _proxy_unreachable(proxy: str | None) -> Problem:
    return Problem(
        f"the proxy {host_of(proxy)} of HTTPS_PROXY or HTTP_PROXY cannot be reached",
        Owner.NETWORK,
        "correct the address of the proxy, or exempt the host by NO_PROXY",
    )


def _certificate(error: Exception, service: Service, host: str, issuer: str | None) -> Problem:
    code = getattr(error, "verify_code", 0)
    if code == EXPIRED:
        return Problem(
            f"the certificate of {host} has expired, or the clock of this machine is ahead",
            service.owner,
            "renew the certificate; the recipient looks at the clock of this machine",
        )
    if code == NOT_YET_VALID:
        return Problem(
            f"the certificate of {host} is not valid yet, so the clock of this machine is behind",
            Owner.RECIPIENT,
            "set the clock of this machine by NTP",
        )
    if code in {OTHER_HOST, OTHER_ADDRESS}:
        return Problem(
            f"the certificate that answers for {host} is for another name{_by(issuer)}",
            service.owner,
            "serve a certificate with this name; if the issuer is your network, its people exempt the host",
        )
    if code in UNTRUSTED:
        return Problem(
            f"no certificate authority of this machine has issued the certificate of {host}{_by(issuer)}",
            Owner.NETWORK,
            "if the issuer is your own organisation, TLS is intercepted: install its authority for clients "
            "(SSL_CERT_FILE and REQUESTS_CA_BUNDLE for Python, a trust store for Java) or exempt the host; "
            f"otherwise {service.owner} serves the whole chain of a public authority",
        )
    reason = getattr(error, "verify_message", "no reason")
    return Problem(
        f"the certificate of {host} is not accepted ({reason}){_by(issuer)}",
        service.owner,
        "serve a certificate that clients accept",
    )


def _by(issuer: str | None) -> str:
    return f"; its issuer is {issuer!r}" if issuer else ""


def _issuer(url: str) -> str | None:
    """Return the name of the issuer of the certificate that a host shows."""
    from cryptography import x509  # noqa: PLC0415 - after a failure only

    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname = False
    # Nothing is sent over this connection.
    context.verify_mode = ssl.CERT_NONE
    address = (parts.hostname or "", parts.port or 443)
    try:
        with (
            socket.create_connection(address, HANDSHAKE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
        names = x509.load_der_x509_certificate(shown or b"").issuer
    except (OSError, ValueError):
        return None
    attributes = [*names.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)]
    attributes += names.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return ", ".join(str(attribute.value) for attribute in attributes) or None


def _handshake(error: Exception, service: Service, host: str) -> Problem:
    inner = error.args[0] if error.args else None
    reason = getattr(error, "reason", None) or getattr(inner, "reason", None) or ""
    if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}:
        return Problem(
            f"{host} does not answer with TLS on this port",
            Owner.RECIPIENT,
            "look at scheme and port of the address; a proxy that answers in plain text is another cause",
        )
    if "CERTIFICATE_REQUIRED" in reason:
        return Problem(
            f"{host} requires a certificate of the client, which the protocol does not have",
            service.owner,
            "serve the recipients without client certificates",
        )
    return Problem(
        f"no TLS connection to {host} is possible ({reason or type(error).__name__})",
        Owner.NETWORK,
        f"let TLS to {host} pass unchanged; {service.owner} looks at the versions of TLS of the server",
    )


def _no_address(error: NameResolutionError, service: Service, host: str) -> Problem:
    if getattr(error.__cause__, "errno", None) == socket.EAI_AGAIN:
        return Problem(
            f"the name server of this machine does not answer for {host}",
            Owner.NETWORK,
            "look at the DNS and the network of this machine",
        )
    where = "endpoint of the profile" if service is SERVER else "address"
    return Problem(
        f"the name {host} has no address",
        Owner.RECIPIENT if service is SERVER else Owner.NETWORK,
        f"compare the {where} with the one that the provider has; if it is right, the DNS of this network "
        "does not know the name, for example of a private zone",
    )


def _timeout(error: Exception, service: Service, host: str) -> Problem:
    if isinstance(error, ConnectTimeoutError):
        return Problem(
            f"no connection to {host} in time",
            Owner.NETWORK,
            f"let this machine connect to {host}: a firewall drops the packets, or a proxy is needed",
        )
    return Problem(
        f"{service.name} at {host} does not answer in time",
        service.owner,
        "look at the load of the service; a larger --timeout waits longer",
    )


def _without_tls(url: str) -> str:
    """Return a further cause of a closed connection, for a URL without TLS."""
    return (
        ", and so does a server with TLS: its address begins with https://" if url.startswith("http:") else ""
    )


def _broken(error: Exception, service: Service, url: str) -> Problem:
    host = host_of(url)
    # urllib3 keeps the socket's error as a cause, or beside its text.
    inner = next(
        (candidate for candidate in (error.__cause__, *error.args) if isinstance(candidate, Exception)), error
    )
    number = getattr(inner, "errno", None)
    if number == errno.ECONNREFUSED:
        if is_loopback(host):
            return Problem(
                f"nothing answers at {host}, which is this machine itself",
                service.owner,
                "start the service, if it belongs on this machine; else the address was made for another "
                "machine: use the public name of the service",
            )
        return Problem(
            f"{host} refuses connections on this port",
            service.owner,
            "look whether the service runs, and at the port of its address; a firewall can refuse, too",
        )
    if number in {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN}:
        return Problem(
            f"there is no route to {host}", Owner.NETWORK, "look at the network and the VPN of this machine"
        )
    if isinstance(error, AnswerCut):
        return Problem(
            f"the answer of {service.name} was cut before its end",
            service.owner,
            "look at the log of the service; a proxy between can cut long answers, too",
        )
    if isinstance(inner, http.client.HTTPException) and not isinstance(inner, http.client.RemoteDisconnected):
        return Problem(
            f"{host} does not answer with HTTP",
            Owner.RECIPIENT,
            "look at scheme and port of the address: https is needed, or another service has the port",
        )
    return Problem(
        f"the connection to {host} was closed without an answer ({type(inner).__name__})",
        Owner.NETWORK,
        f"let this machine connect to {host}: firewalls and proxies close connections so{_without_tls(url)}; "
        f"if others can connect, {service.owner} looks at the service",
    )
