"""The section for access tokens that the server issues itself."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config.operation import setting
from gateway.times import DAY_SECONDS, HOUR_SECONDS


@dataclass(frozen=True, slots=True)
class OAuth:
    """Access tokens that clients of recipients get at `{endpoint}/oauth/token`.

    Attributes:
        token_lifetime_seconds: lifetime of an access token, at most the remaining life of the client's
            secret. The known clients of Delta Sharing request a new token when less than 600 seconds are
            left.

    """

    token_lifetime_seconds: int = setting(HOUR_SECONDS, minimum=60, maximum=DAY_SECONDS)
