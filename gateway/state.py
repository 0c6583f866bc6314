"""What one configuration makes, as one value: swapped whole when the configuration is read anew.

A request takes the value once, at its start, and is answered by it to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gateway.access.authentication import Credentials, CredentialTable
from gateway.access.catalog import Catalog
from gateway.access.sealed_tokens import Sealer
from gateway.config import Config
from gateway.config.networks import Network, parse_networks
from gateway.protocol.cors import Cors
from gateway.tables.answer_cache import Repeats
from gateway.tables.local_files import FILES_USE
from gateway.tables.registry import Tables


def epoch_ms() -> int:
    """The wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Sharing:
    """Everything that a handler needs."""

    config: Config
    catalog: Catalog
    credentials: Credentials
    sealer: Sealer
    tables: Tables
    repeats: Repeats
    trusted_proxies: tuple[Network, ...]
    cors: Cors | None
    now_ms: Callable[[], int]

    @staticmethod
    def of(
        config: Config,
        *,
        now_ms: Callable[[], int] = epoch_ms,
        before: Sharing | None = None,
        token_secret: bytes | None = None,
    ) -> Sharing:
        """Make it. From the one `before`, whose configuration this one replaces, it takes what still holds.

        That is the key that was made at the start, so that tokens outlive a reload, and tables with what is
        kept of them in memory. `token_secret` is that key for the first one of a process.
        """
        sealer = Sealer(config.gateway.token_keys, before.sealer.made if before else token_secret)
        catalog = Catalog.of(config.shares)
        return Sharing(
            config=config,
            catalog=catalog,
            credentials=CredentialTable.of(config),
            sealer=sealer,
            tables=Tables(
                config,
                catalog,
                url_keys=sealer.derived_keys(FILES_USE),
                before=before.tables if before else None,
            ),
            repeats=Repeats(),
            trusted_proxies=parse_networks(config.gateway.trusted_proxies),
            cors=Cors.of(config.gateway.cors.origins),
            now_ms=now_ms,
        )
