"""Profile files, by which recipients connect."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Literal, NotRequired, TypedDict

PROFILE_VERSION = 1
OAUTH_PROFILE_VERSION = 2
ACTIVATION = "/activate"
"""Path of the page that gives a profile by a link, below the sharing endpoint."""
ACTIVATION_FILES = ("", ".css", ".js", ".svg")
"""What the addresses of the page and its files end with."""
_CODED_LINK = re.compile(f"{ACTIVATION}(?:#|%(?=23|2523))")
TOKEN_ENDPOINT = "/oauth/token"  # noqa: S105 - a path
"""Path of the server's token endpoint, below the sharing endpoint."""


class Profile(TypedDict):
    """A profile file. It holds the plain token, which is stored nowhere else.

    With a `type` it is for a client that gets its tokens from a token endpoint, and holds none.
    """

    shareCredentialsVersion: int
    endpoint: str
    bearerToken: NotRequired[str]
    expirationTime: NotRequired[str]
    type: NotRequired[Literal["oauth_client_credentials"]]
    tokenEndpoint: NotRequired[str]
    clientId: NotRequired[str]
    clientSecret: NotRequired[str]
    scope: NotRequired[str]


def profile(endpoint: str, token: str, expiration_time: str | None = None) -> Profile:
    """Return the content of a profile file."""
    values = Profile(shareCredentialsVersion=PROFILE_VERSION, endpoint=endpoint, bearerToken=token)
    if expiration_time is not None:
        values["expirationTime"] = expiration_time
    return values


def oauth_profile(
    endpoint: str,
    *,
    token_endpoint: str | None,
    client_id: str | None,
    client_secret: str | None = None,
    scope: str | None = None,
) -> Profile:
    """Return a profile for a client that requests its tokens.

    A value of None becomes a placeholder in angle brackets, which the recipient replaces: clients refuse a
    profile of this type with an empty field.
    """
    values = Profile(
        shareCredentialsVersion=OAUTH_PROFILE_VERSION,
        type="oauth_client_credentials",
        endpoint=endpoint,
        tokenEndpoint=token_endpoint or "<the token endpoint of your identity provider>",
        clientId=client_id or "<the id of your client>",
        clientSecret=client_secret or "<the secret of your client>",
    )
    if scope is not None:
        values["scope"] = scope
    return values


def activation_url(endpoint: str, code: str) -> str:
    """Return an activation link. Browsers send its part behind `#` to no server."""
    return f"{endpoint}{ACTIVATION}#{code}"


def without_code(path: str, prefixes: Iterable[str]) -> str:
    """Return a decoded path without the code of an activation link whose `#` was coded once or twice.

    Below other prefixes than the server's, as a proxy may make them, the coded `#` shows the code.
    """
    for prefix in prefixes:
        # A path of the server may have several slashes after its prefix.
        rest = path.removeprefix(prefix).lstrip("/")
        if path.startswith(f"{prefix}/") and f"/{rest}".startswith(ACTIVATION):
            page = len(path) - len(rest) + len(ACTIVATION) - 1
            return path if path[page:] in ACTIVATION_FILES else path[: page + 1]
    elsewhere = _CODED_LINK.search(path)
    return path if elsewhere is None else path[: elsewhere.end()]


def profile_text(content: Profile) -> str:
    """Return the text of a profile file."""
    return json.dumps(content, indent=2) + "\n"
