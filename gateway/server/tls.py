"""TLS by certificate files, or by a certificate made at start.

In: the `ssl` section. Out: a context for the listener, TLS 1.2 or newer. `renew` reads changed files while
the context is in use: later connections get the new certificate. Files that do not fit each other leave it
as it was.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.config import Config, Ssl


def server_context(config: Config, pair: bytes | None = None) -> ssl.SSLContext | None:
    """Make the listener's context; None for plain HTTP. Raises OSError when the files cannot be used.

    `pair` is what `self_signed_pair` made for this server, where its certificate is self-signed.
    """
    return listener_context(config.ssl, config.host, pair)


def listener_context(settings: Ssl | None, host: str, pair: bytes | None = None) -> ssl.SSLContext | None:
    """As `server_context`, for any listener."""
    if settings is None:
        return None
    context = _server_context()
    if settings.self_signed:
        # Imported here: loading the library takes longer than a command may.
        from gateway.server.self_signed import self_signed_pair  # noqa: PLC0415

        _load_pair(context, pair or self_signed_pair(host))
    else:
        _load(context, settings)
    return context


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def files_of(settings: Ssl | None) -> list[Path]:
    """The files that certificates are read from, the password's among them."""
    if settings is None:
        return []
    files = (settings.certificate_file, settings.certificate_key_file, settings.certificate_password_file)
    return [file for file in files if file is not None]


def renew(context: ssl.SSLContext, settings: Ssl) -> None:
    """Read the certificate files for the next connections. Raises OSError when they cannot be used."""
    if settings.self_signed:
        return
    renewed = _server_context()
    _load(renewed, settings)

    def hand_over(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = renewed

    # OpenSSL calls this for each connection, also without a server name. Loading into the context itself
    # would leave it with a certificate but no key for a moment, in which handshakes fail.
    context.sni_callback = hand_over


def _load(context: ssl.SSLContext, settings: Ssl) -> None:
    certificate, key = settings.certificate_file, settings.certificate_key_file
    if certificate is None:
        return
    password = _password(settings)
    try:
        context.load_cert_chain(certificate, key, password)
    except (OSError, ValueError) as reason:
        said = getattr(reason, "reason", None) or getattr(reason, "strerror", None) or type(reason).__name__
        raise OSError(f"the certificate {certificate} and the key {key} cannot be used: {said}") from None


def _password(settings: Ssl) -> str:
    file = settings.certificate_password_file
    # Without one OpenSSL would ask for it on the terminal.
    return file.read_text(encoding="utf-8").rstrip("\r\n") if file else ""


def _load_pair(context: ssl.SSLContext, pair: bytes) -> None:
    # The standard library takes a key from a file alone; this one is its owner's and gone at once.
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "pair.pem"
        file.touch(mode=0o600)
        file.write_bytes(pair)
        context.load_cert_chain(file)
