"""Searches of the places of a configuration, of either kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gateway import _native
from gateway.config import Config, Source
from gateway.discovery.directories import error_text, search
from gateway.discovery.known_tables import KnownTables, SearchResult
from gateway.storage.breaker import State

if TYPE_CHECKING:
    from gateway.storage.registry import Storages


def search_of(storages: Storages, source: Source, known: KnownTables) -> Callable[[], SearchResult]:
    """Return the search of a place; without a call of a storage that fails. Reads nothing."""
    catalog = source.discovery.unity_catalog
    if catalog is not None:
        # Without a catalog the server starts sooner.
        from gateway.discovery.unity_catalog import search_catalog  # noqa: PLC0415

        return partial(search_catalog, source, catalog, known)
    root = source.discovery.template.root
    problem = "the storage does not answer"
    try:
        if storages.calls(root).breaker.state is not State.OPEN:
            return partial(search, storages.store(root), source, known)
    except _native.LogError as error:
        problem = error_text(root.kind, error)
    return lambda: SearchResult(unknown=frozenset({root}), problem=problem, is_cut=True)


def search_once(config: Config, storages: Storages) -> dict[Source, KnownTables]:
    """Search all places of a configuration, for commands. Blocks."""
    searched = {}
    for source in config.sources:
        result = search_of(storages, source, KnownTables())()
        searched[source] = KnownTables().after(result, now_seconds=0.0, keep_seconds=0.0)
    return searched
