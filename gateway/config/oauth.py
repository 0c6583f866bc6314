"""The section for access tokens that the server issues itself."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config.operation import setting


@dataclass(frozen=True, slots=True)
class OAuth:
    """Access tokens that clients of recipients get at `{endpoint}/oauth/token`.

    Attributes:
        token_lifetime_seconds: lifetime of an access token, at most that of the client's secret. The known
            clients of Delta Sharing request a new token when less than 600 seconds are left.

    """

    token_lifetime_seconds: int = setting(3600, minimum=60, maximum=24 * 3600)
