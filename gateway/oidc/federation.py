"""Authentication by tokens of identity providers, where the configuration has issuers.

In: a bearer token that is none of this server. Out: the credential of its recipient. The modules that verify
tokens are imported, on a thread, with the first token that needs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from gateway.authentication.credential_table import Credential
from gateway.config import Config

if TYPE_CHECKING:
    from gateway.oidc.token_verifier import TokenVerifier
    from gateway.state import GatewayState

MAX_TOKEN_LENGTH = 8192
"""No header is longer; a provider's token of this length could not be sent."""
VERIFIER = "gateway.oidc.token_verifier"


class Federation:
    """The tokens of identity providers in a process."""

    def __init__(self) -> None:
        self._verifier: TokenVerifier | None = None

    async def credential(self, token: str, state: GatewayState) -> Credential | None:
        """Return the credential of a token; None for a text that is not a token of an identity provider.

        Raises TokenRefused.
        """
        if not state.config.gateway.oidc.issuers or len(token) > MAX_TOKEN_LENGTH:
            return None
        if self._verifier is None:
            module = await asyncio.to_thread(import_module, VERIFIER)
            self._verifier = self._verifier or module.TokenVerifier()
        return await self._verifier.credential(token, state)

    def renewed(self, credential: Credential, state: GatewayState) -> Credential | None:
        """Return a credential of an identity provider by the current policies and keys. Never waits.

        Returns None if the token is no longer accepted, and of a token of this server.
        """
        return None if self._verifier is None else self._verifier.renewed(credential, state)

    def ages_seconds(self, config: Config) -> Mapping[str, float]:
        """Return the ages of the keys of issuers, as far as they were fetched."""
        return {} if self._verifier is None else self._verifier.ages_seconds(config)
