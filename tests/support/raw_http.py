"""Requests for URLs that are sent exactly as they are written."""

import http.client
from urllib.parse import urlsplit


def get(url: str, method: str = "GET", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """Sends the URL exactly as it is written."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request(
            method, f"{parts.path}?{parts.query}" if parts.query else parts.path, headers=headers or {}
        )
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
