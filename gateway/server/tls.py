"""TLS by certificate files, or by a certificate made at the start.

In: the `ssl` section. Out: a context for the listener, TLS 1.2 or newer. `renew` reads changed files while
the context is in use: later connections get the new certificate. Files that do not match leave it unchanged.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from gateway.config import Ssl


def listener_context(settings: Ssl | None, host: str, pair: bytes | None = None) -> ssl.SSLContext | None:
    """Return a listener's context; None for plain HTTP. Raises OSError for files that cannot be used.

    `pair` is the self-signed key and certificate that all workers share.
    """
    if settings is None:
        return None
    context = _server_context()
    if settings.self_signed:
        # Imported only here: the library takes longer to load than most commands to run.
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
    """Return the certificate files, with the file of the password."""
    if settings is None:
        return []
    files = (settings.certificate_file, settings.certificate_key_file, settings.certificate_password_file)
    return [file for file in files if file is not None]


def renew(context: ssl.SSLContext, settings: Ssl) -> None:
    """Read the certificate files for the next connections. Raises OSError for files that cannot be used."""
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
        text = getattr(reason, "reason", None) or getattr(reason, "strerror", None) or type(reason).__name__
        # OpenSSL says no more than that.
        if "PEM lib" in text:
            text = "one is not such a PEM file, or certificatePasswordFile does not have the key's password"
        raise OSError(f"the certificate {certificate} and the key {key} cannot be used: {text}") from None


def _password(settings: Ssl) -> str:
    file = settings.certificate_password_file
    try:
        # Without a password OpenSSL would ask on the terminal.
        return file.read_text(encoding="utf-8-sig").rstrip("\r\n") if file else ""
    except (OSError, UnicodeDecodeError) as reason:
        text = reason.strerror if isinstance(reason, OSError) else "it is not UTF-8"
        raise OSError(f"the file of the certificate's password, {file}, cannot be read: {text}") from None


def _load_pair(context: ssl.SSLContext, pair: bytes) -> None:
    # The standard library reads keys from files only; this file is private and deleted at once.
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "pair.pem"
        file.touch(mode=0o600)
        file.write_bytes(pair)
        context.load_cert_chain(file)
