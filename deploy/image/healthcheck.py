#!/usr/bin/python3.11 -IS
"""Exits with 0 if the server answers /healthz with 200: `healthcheck [URL]`.

Without an argument the URL is DELTA_GATEWAY_HEALTH_URL. The certificate is not verified: the server is on
this machine, and its certificate names another host.
"""

import os
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 3.0


def is_healthy(url: str) -> bool:
    """Return whether a GET of the URL is answered with 200."""
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port)
    if parts.scheme == "https":
        import ssl  # noqa: PLC0415 - loads OpenSSL, which plain HTTP does not need

        context = ssl._create_unverified_context()  # noqa: SLF001
        connection: HTTPConnection = HTTPSConnection(*address, timeout=TIMEOUT_SECONDS, context=context)
    else:
        connection = HTTPConnection(*address, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", parts.path or "/healthz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    url = sys.argv[1] if len(sys.argv) > 1 else os.environ["DELTA_GATEWAY_HEALTH_URL"]
    sys.exit(0 if is_healthy(url) else 1)
