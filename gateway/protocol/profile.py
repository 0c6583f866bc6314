"""Profile files, by which recipients connect."""

from __future__ import annotations

import json
from typing import NotRequired, TypedDict

PROFILE_VERSION = 1


class Profile(TypedDict):
    """A profile file. It holds the plain token, which is stored nowhere else."""

    shareCredentialsVersion: int
    endpoint: str
    bearerToken: str
    expirationTime: NotRequired[str]


def profile(endpoint: str, token: str, expiration_time: str | None = None) -> Profile:
    """Return the content of a profile file."""
    values = Profile(shareCredentialsVersion=PROFILE_VERSION, endpoint=endpoint, bearerToken=token)
    if expiration_time is not None:
        values["expirationTime"] = expiration_time
    return values


def profile_text(content: Profile) -> str:
    """Return the text of a profile file."""
    return json.dumps(content, indent=2) + "\n"
