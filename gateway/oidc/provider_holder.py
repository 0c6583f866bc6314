"""Holds the identity provider of the configuration in force.

Its module, which verifies tokens, is imported on a thread, with the first sign-in that needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from gateway.config import ConsoleOidc

if TYPE_CHECKING:
    from gateway.oidc.sign_in_provider import IdentityProvider

MODULE = "gateway.oidc.sign_in_provider"


class ProviderHolder:
    """The provider of the settings that were used last."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._provider: IdentityProvider | None = None

    async def get(self, settings: ConsoleOidc) -> IdentityProvider:
        """Return the provider of settings."""
        provider = self._provider
        if provider is None or provider.settings != settings:
            module = await asyncio.to_thread(import_module, MODULE)
            # Another sign-in may have made it meanwhile.
            provider = self._provider
            if provider is None or provider.settings != settings:
                provider = self._provider = module.IdentityProvider(settings, now_ms=self._now_ms)
        return provider
