"""A recipient's profile file: the server's endpoint and the bearer token.

In: a path, or the profile's JSON text itself. Out: a `Profile` that is sent to executors. The token is a
secret: no representation shows it.
"""

import datetime as dt
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class ProfileError(ValueError):
    """Raised when the profile cannot be used; the message has the reason and never quotes the file."""


@dataclass(frozen=True)
class Profile:
    """The endpoint of a recipient's server, and the bearer token."""

    endpoint: str
    bearer_token: str = field(repr=False)

    @classmethod
    def load(cls, path_or_json: str) -> "Profile":
        """Read a profile file in any encoding of UTF, or its JSON text (where no file system is shared)."""
        text = path_or_json if path_or_json.lstrip().startswith("{") else _content(path_or_json)
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ProfileError("the profile is not JSON") from error
        return cls._of(document)

    @classmethod
    def _of(cls, document: Any) -> "Profile":
        if not isinstance(document, dict):
            raise ProfileError("the profile is not a JSON object")
        if document.get("type", "bearer_token") != "bearer_token":
            raise ProfileError("only profiles with a bearer token are supported")
        if _is_past(document.get("expirationTime")):
            raise ProfileError("the profile has expired")
        endpoint, token = document.get("endpoint"), document.get("bearerToken")
        if not isinstance(endpoint, str) or not isinstance(token, str):
            raise ProfileError("the profile has no endpoint or no bearerToken")
        return cls(endpoint.rstrip("/"), token)


def _is_past(text: Any) -> bool:
    try:
        expires = dt.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return False
    # A time without a zone is in UTC.
    return expires.replace(tzinfo=expires.tzinfo or dt.UTC) < dt.datetime.now(dt.UTC)


def _content(path: str) -> bytes:
    try:
        return Path(path.removeprefix("file://")).read_bytes()
    except OSError as error:
        raise ProfileError(f"the profile file cannot be read: {error.strerror}") from error
