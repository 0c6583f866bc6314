"""Texts for the log of failed requests to other services."""

from __future__ import annotations

import aiohttp

MAX_TEXT_LENGTH = 300


def client_error_text(error: Exception) -> str:
    """Return one line that says why a request failed, without any part of its answer."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answers {error.status}"
    if isinstance(error, aiohttp.InvalidURL):
        # That of a proxy may have a password.
        return "its URL, or that of the proxy, is not valid"
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientPayloadError):
        # The texts of these quote the answer, also over several lines.
        return "its answer is no valid HTTP"
    return " ".join(str(error).split())[:MAX_TEXT_LENGTH] or type(error).__name__
