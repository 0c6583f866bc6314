"""The state of a configuration for commands: with stored shares, and the tables that one search finds.

In: a configuration. Out: the state, and lines about the searches and about what is stored and not shared.
Without places where tables are discovered nothing is searched.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.catalog.catalog import PROVIDER, Catalog
from gateway.catalog.conflicts import LeftOut
from gateway.catalog.discovered import with_discovered
from gateway.catalog.stored_shares import StoredShares, with_stored
from gateway.config import Config, Source
from gateway.config.checks import name_warnings
from gateway.config.database import DatabasePlace
from gateway.database.errors import DatabaseMissing
from gateway.discovery.known_tables import KnownTables, discovered
from gateway.discovery.searches import search_once
from gateway.paths import exists
from gateway.state import GatewayState

SHOWN_REFUSALS = 20
MISSING = (
    "{path} does not exist: the recipients and shares of the database are missing here. A server that starts "
    "makes an empty one: look at gateway.database and gateway.recipientsDatabase"
)

log = logging.getLogger("gateway.recipients")


@dataclass(frozen=True, slots=True)
class DiscoveredState:
    """A state with stored shares and the tables of one search.

    Attributes:
        state: the state.
        searches: what was found in each place.
        refused: found tables that are not shared, because of others that are.
        left_out: stored entries that are not shared.

    """

    state: GatewayState
    searches: dict[Source, KnownTables]
    refused: tuple[LeftOut, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not any(known.last.problem for known in self.searches.values())

    def lines(self) -> Iterator[str]:
        """Iterate over the left-out entries and the results of the searches, a line each."""
        for entry in self.left_out:
            yield f"{entry.name!a} is stored and not shared: {entry.reason}"
        for source, known in self.searches.items():
            tables, refused = known.distinct()
            calls = "listings" if source.discovery.unity_catalog is None else "requests"
            yield (
                f"{source.shown}: {len(tables)} tables found {source.discovery.shown} "
                f"by {known.last.calls} {calls}"
            )
            if known.last.problem:
                yield f"{source.shown}: the search is not complete: {known.last.problem}"
            yield from _refusals(source.shown, (*known.last.refused, *refused))
        yield from _refusals("discovery", self.refused)
        yield from self._unaddressable()

    def _unaddressable(self) -> Iterator[str]:
        """Iterate over names of stored and discovered tables that not all clients can address."""
        for share in self.state.catalog.shares_of(PROVIDER):
            yield from name_warnings([share.name])
            for schema in share.schemas:
                yield from name_warnings((schema.name, *(table.name for table in schema.tables)))


def discovered_state(config: Config, stored: StoredShares) -> DiscoveredState:
    """Return the state of a configuration, of stored shares and of one search of each place. Blocks."""
    whole = with_stored(config, stored)
    config = whole.config
    state = GatewayState.of(config)
    if not any(True for _ in config.sources):
        return DiscoveredState(state, {}, left_out=whole.left_out)
    searches = search_once(config, state.tables.storages)
    shares = with_discovered(config, discovered(searches.items()))
    found_state = GatewayState.of(config, previous=state, catalog=Catalog.of(shares.shares))
    return DiscoveredState(found_state, searches, shares.left_out, whole.left_out)


def stored_shares(config: Config) -> StoredShares:
    """Return the shares of the database, or of the file that a new one takes over. Raises DatabaseError.

    None where there is neither.
    """
    place, source = config.database_place, config.database_source
    if source is None and place.path is not None and not exists(place.path):
        if config.has_database:
            log.warning("%s", MISSING.format(path=place.path))
        return {}
    # A command without a database starts sooner.
    from gateway.database.migration import check_not_taken_over  # noqa: PLC0415
    from gateway.governance.stored_recipients import read_shares_once  # noqa: PLC0415

    try:
        return read_shares_once(place)
    except DatabaseMissing:
        if source is None:
            raise
    check_not_taken_over(source)
    return read_shares_once(DatabasePlace(source))


def _refusals(name: str, refused: tuple[LeftOut, ...]) -> Iterator[str]:
    for refusal in refused[:SHOWN_REFUSALS]:
        # A name may have characters that a terminal obeys.
        yield f"{name}: {refusal.name!a} is not shared: {refusal.reason}"
    if len(refused) > SHOWN_REFUSALS:
        yield f"{name}: {len(refused) - SHOWN_REFUSALS} more are not shared"
