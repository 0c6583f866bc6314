"""Makes the `Site` that the pages of the console work on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gateway.access.catalog import Catalog
from gateway.console.sessions import Sessions
from gateway.console.site import Site
from gateway.limits.attempts import FailedAttempts

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.admin.administration import Administration
    from gateway.config import Admin, Config
    from gateway.console.site import Ask


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
        catalog=_Catalogs(config).current,
        ask=ask,
        workers=workers,
        viewer_token_sha256=settings.viewer_token_sha256,
        sessions=Sessions(time.monotonic),
        attempts=FailedAttempts(time.monotonic),
        now_ms=now_ms,
    )


class _Catalogs:
    """Keeps the catalog of one configuration: that of thousands of tables takes a while to build."""

    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config
        self._kept: tuple[Config, Catalog] | None = None

    def current(self) -> Catalog:
        """Return the catalog of the configuration in force."""
        config, kept = self._config(), self._kept
        if kept is None or kept[0] is not config:
            kept = self._kept = (config, Catalog.of(config.shares))
        return kept[1]
