"""The searches of a Unity Catalog: its Delta tables within the locations that the operator allows.

In: the section of the configuration and the tables that are known. Out: the tables that the catalog lists,
the entries that are not shared with the reasons, and the known tables about which the search says nothing.
A search reads nothing of a storage. What a catalog protects by other means than files is left out.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from gateway.access.discovered import FoundTable, Refusal
from gateway.config.locations import Location
from gateway.discovery.catalog_client import CallsSpent, CatalogError, CatalogTable, catalog_client
from gateway.discovery.directories import SEARCH_SECONDS
from gateway.discovery.known_tables import SearchResult, within_limit
from gateway.discovery.names import name_problem

if TYPE_CHECKING:
    from gateway.config import Source
    from gateway.config.unity_catalog import UnityCatalog
    from gateway.discovery.catalog_client import CatalogClient
    from gateway.discovery.known_tables import KnownTables, Limit

CONCURRENT_SCHEMAS = 4
MAX_REFUSALS = 10_000
INFORMATION_SCHEMA = "information_schema"
"""The schema that describes the catalog by views."""
EXTERNAL_READ = "HAS_DIRECT_EXTERNAL_ENGINE_READ_SUPPORT"
CATALOG_MANAGED = ("delta.feature.catalogManaged", "delta.feature.catalogOwned-preview")

_TYPES = ("MANAGED", "EXTERNAL")


def search_catalog(source: Source, catalog: UnityCatalog, known: KnownTables) -> SearchResult:
    """Search the tables of a catalog, on an event loop of its own. Blocks, raises nothing of the catalog."""
    return asyncio.run(_search(source, catalog, known))


async def _search(source: Source, catalog: UnityCatalog, known: KnownTables) -> SearchResult:
    async with catalog_client(catalog, source.discovery.max_calls) as client:
        found = _CatalogSearch(source, catalog, known, client)
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                await found.run()
        except TimeoutError:
            found.end("time", f"the search ends after {SEARCH_SECONDS:g} s")
        return found.result()


class _CatalogSearch:
    """One search, from the schemas of a catalog to their tables."""

    def __init__(
        self, source: Source, catalog: UnityCatalog, known: KnownTables, client: CatalogClient
    ) -> None:
        self._source = source
        self._catalog = catalog
        self._known = known
        self._locations = {table.location for table in known.seen}
        self._client = client
        self._tables: list[FoundTable] = []
        self._more = 0
        """Number of tables beyond the limit that are not known."""
        self._refused: list[Refusal] = []
        self._listed: frozenset[str] | None = None
        """The schemas of the catalog; None while their list is not complete."""
        self._complete: set[str] = set()
        self._is_failing = False
        self.problem = ""
        self._limit: Limit | None = None

    async def run(self) -> None:
        """List the schemas, then the tables of each."""
        wanted = frozenset(self._catalog.schemas)
        try:
            names = [name async for name in self._client.schemas()]
        except (CatalogError, CallsSpent) as error:
            self._fail(error)
            return
        self._listed = frozenset(names)
        schemas = [name for name in names if (name in wanted if wanted else name != INFORMATION_SCHEMA)]
        if missing := sorted(wanted - self._listed):
            self.problem = f"the catalog has no schema {missing[0]!r}"
        for start in range(0, len(schemas), CONCURRENT_SCHEMAS):
            if self._is_failing:
                return
            together = schemas[start : start + CONCURRENT_SCHEMAS]
            await asyncio.gather(*(self._tables_of(schema) for schema in together))

    async def _tables_of(self, schema: str) -> None:
        try:
            async for table in self._client.tables(schema):
                self._take(schema, table)
        except (CatalogError, CallsSpent) as error:
            self._fail(error)
        else:
            self._complete.add(schema)

    def _fail(self, error: CatalogError | CallsSpent) -> None:
        if isinstance(error, CatalogError):
            self.problem = self.problem or str(error)
            self._is_failing = self._is_failing or not error.is_of_schema
        else:
            self.end("calls", f"maxCalls ends the search after {self._client.calls} requests")
            self._is_failing = True

    def end(self, limit: Limit, problem: str) -> None:
        """Note that a limit has ended the search."""
        self._limit = self._limit or limit
        self.problem = self.problem or problem

    def _take(self, schema: str, table: CatalogTable) -> None:
        reason = unshareable(table)
        found = self._found(schema, table) if reason is None else reason
        if isinstance(found, str):
            if len(self._refused) < MAX_REFUSALS:
                self._refused.append(Refusal(f"{self._catalog.catalog}.{schema}.{table.name}", found))
        elif found.location in self._locations or len(self._tables) < self._source.discovery.max_tables:
            self._tables.append(found)
        else:
            self._more += 1

    def _found(self, schema: str, table: CatalogTable) -> FoundTable | str:
        """Return a table with its names in the share, or why it is not shared."""
        names = self._catalog.shared_names(schema, table.name, names_schemas=self._source.schema is None)
        for name in names[1:] if self._source.schema else names:
            if (problem := name_problem(name)) is not None:
                return problem
        try:
            location = Location.parse(table.storage_location or "")
        except ValueError:
            return "its location is in no storage that tables can be shared from"
        if not self._catalog.contains(location):
            return "its location is not in `within`"
        if location.kind == "file" and not self._contains_really(location):
            return "its directory is a link out of `within`"
        return FoundTable(self._source.schema or names[0], names[1], location, schema)

    def _contains_really(self, location: Location) -> bool:
        """Return whether a local directory is in an allowed one when links are followed."""
        real = os.path.realpath(location.key)
        roots = (os.path.realpath(one.key) for one in self._catalog.within if one.kind == "file")
        return any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots)

    def result(self) -> SearchResult:
        """Return what was found so far."""
        limit = self._source.discovery.max_tables
        count = len(self._tables) + self._more
        if count > limit:
            self.end("tables", f"maxTables: {count} tables are there")
        return SearchResult(
            within_limit(self._tables, self._locations, limit),
            tuple(self._refused),
            unknown_tables=frozenset(filter(self._is_unknown, self._known.seen)),
            calls=self._client.calls,
            problem=self.problem,
            limit=self._limit,
        )

    def _is_unknown(self, table: FoundTable) -> bool:
        """Return whether the search cannot say that a known table is gone."""
        if self._listed is None:
            return True
        return table.listed_in in self._listed and table.listed_in not in self._complete


def unshareable(table: CatalogTable) -> str | None:
    """Return why the files of a table cannot be shared, whatever its location; None if they can."""
    kind = table.table_type or ""
    if kind not in _TYPES:
        is_word = kind.isascii() and kind.isidentifier()
        return f"it is {kind if is_word else 'of an unknown type'}, and not a table of files"
    if table.data_source_format != "DELTA":
        return "it is no Delta table"
    if table.row_filter is not None:
        return "it has a row filter, which its files do not have"
    if any(column.mask is not None for column in table.columns or ()):
        return "it has a column mask, which its files do not have"
    manifest = table.securable_kind_manifest
    if manifest is not None and EXTERNAL_READ not in (manifest.capabilities or ()):
        return "the catalog lets no other engine read its files"
    if any(name in (table.properties or {}) for name in CATALOG_MANAGED):
        return "its last commits are in the catalog, not in its log"
    if not table.storage_location:
        return "it has no location"
    return None
