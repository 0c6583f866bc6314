"""The state of the gateway under one configuration, as one value that a reload replaces.

A request is answered to its end by the value that is in force once its body is there and its limits admit it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gateway.authentication.credential_table import CredentialTable
from gateway.authentication.sealed_tokens import Sealer
from gateway.catalog.catalog import Catalog
from gateway.config import Config
from gateway.config.networks import Network, parse_networks
from gateway.protocol.cors import Cors
from gateway.storage.vending.vendor import CredentialVendor
from gateway.tables.answer_cache import AnswerCache
from gateway.tables.local_files import FILES_USE
from gateway.tables.registry import ServedTables, Tables
from gateway.tables.rules import check_rules
from gateway.times import epoch_ms


@dataclass(frozen=True, slots=True)
class GatewayState:
    """Everything that handlers need."""

    config: Config
    catalog: Catalog
    credentials: CredentialTable
    sealer: Sealer
    tables: Tables
    answer_cache: AnswerCache
    vendor: CredentialVendor
    trusted_proxies: tuple[Network, ...]
    cors: Cors | None
    now_ms: Callable[[], int]

    @staticmethod
    def of(
        config: Config,
        *,
        now_ms: Callable[[], int] = epoch_ms,
        previous: GatewayState | None = None,
        token_secret: bytes | None = None,
        catalog: Catalog | None = None,
        credentials: CredentialTable | None = None,
    ) -> GatewayState:
        """Return the state of a configuration.

        From the `previous` state it takes the token key that was made at the start, so that tokens outlive a
        reload, and unchanged tables with their caches. `token_secret` is that key for the first state. The
        `catalog` is that of the configuration's shares unless one is given, such as that with discovered
        tables; likewise the `credentials`. Raises ConfigError for a grant whose condition is not one.
        """
        check_rules(config)
        sealer = Sealer(config.gateway.token_keys, previous.sealer.made if previous else token_secret)
        catalog = Catalog.of(config.shares) if catalog is None else catalog
        tables = Tables(
            config,
            catalog,
            url_keys=sealer.derived_keys(FILES_USE),
            previous=previous.tables if previous else None,
        )
        return GatewayState(
            config=config,
            catalog=catalog,
            credentials=CredentialTable.of(config) if credentials is None else credentials,
            sealer=sealer,
            tables=tables,
            answer_cache=AnswerCache(),
            vendor=CredentialVendor(
                tables.storages,
                seconds=config.temporary_credential_validity_seconds,
                now_ms=now_ms,
                faults=config.gateway.storage_faults,
                call_seconds=config.request_timeout_seconds or None,
                previous=previous.vendor if previous else None,
            ),
            trusted_proxies=parse_networks(config.gateway.trusted_proxies),
            cors=Cors.of(config.gateway.cors.origins, config.gateway.cors.request_headers),
            now_ms=now_ms,
        )

    def with_catalog(self, catalog: Catalog, served: ServedTables) -> GatewayState:
        """Return the state with another catalog; the tables that are in both stay open."""
        self.tables.serve(served)
        return replace(self, catalog=catalog)
