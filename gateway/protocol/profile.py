"""Profile files, by which recipients connect."""

from __future__ import annotations

PROFILE_VERSION = 1


def profile(endpoint: str, token: str, expiration_time: str | None = None) -> dict[str, str | int]:
    """Return the content of a profile file. It holds the plain token, which is stored nowhere else."""
    values: dict[str, str | int] = {
        "shareCredentialsVersion": PROFILE_VERSION,
        "endpoint": endpoint,
        "bearerToken": token,
    }
    if expiration_time is not None:
        values["expirationTime"] = expiration_time
    return values
