"""Makes the `Site` that the pages of the console work on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from gateway.admin.administration import Administration
from gateway.authentication.sealed_tokens import SECRET_BYTES
from gateway.config import Admin, Config
from gateway.console.sessions import Sessions
from gateway.console.site import Ask, Site
from gateway.limits.attempts import FailedAttempts
from gateway.oidc.provider_holder import ProviderHolder


def site_of(
    settings: Admin,
    config: Callable[[], Config],
    administration: Administration,
    *,
    ask: Ask,
    workers: int,
    now_ms: Callable[[], int],
) -> Site:
    """Return what the console works on. `config` returns the configuration in force."""
    return Site(
        administration=administration,
        config=config,
        ask=ask,
        workers=workers,
        viewer_token_sha256=settings.viewer_token_sha256,
        sessions=Sessions(time.monotonic),
        attempts=FailedAttempts(time.monotonic),
        now_ms=now_ms,
        provider=ProviderHolder(now_ms),
        sealing_secret=os.urandom(SECRET_BYTES),
    )
