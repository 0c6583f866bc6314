"""The certificate authorities that clients trust.

In: the environment. Out: contexts of TLS. The official Python client calls servers and token endpoints by
requests, which trusts REQUESTS_CA_BUNDLE, or else the public authorities of its own bundle, and never those
of the machine. It reads data files by aiohttp, which trusts those of the machine or of SSL_CERT_FILE.
"""

from __future__ import annotations

import os
import ssl
from functools import cached_property
from pathlib import Path

from gateway.doctor.findings import Owner, Problem

BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class Authorities:
    """Contexts of TLS, which are made when they are needed."""

    @cached_property
    def of_machine(self) -> ssl.SSLContext:
        """The authorities of SSL_CERT_FILE, else of this machine."""
        return ssl.create_default_context()

    @cached_property
    def of_requests(self) -> ssl.SSLContext:
        """The authorities of the library requests. Raises Problem for a bundle that cannot be read."""
        for name in BUNDLES:
            if bundle := os.environ.get(name):
                return _of_bundle(name, Path(bundle))
        from botocore.httpsession import get_cert_path  # noqa: PLC0415 - https alone needs it

        # The bundle of certifi, or the same of botocore.
        return ssl.create_default_context(cafile=get_cert_path(verify=True))


def _of_bundle(name: str, bundle: Path) -> ssl.SSLContext:
    try:
        if bundle.is_dir():
            return ssl.create_default_context(capath=bundle)
        return ssl.create_default_context(cafile=bundle)
    except OSError as error:
        # Errors of OpenSSL are OSErrors whose text is no reason for a reader.
        reason = "no certificates in PEM" if isinstance(error, ssl.SSLError) else error.strerror
        raise Problem(
            f"the file of {name} cannot be used: {reason}",
            Owner.RECIPIENT,
            f"set {name} to a file of certificates in PEM, or remove the variable",
        ) from None
