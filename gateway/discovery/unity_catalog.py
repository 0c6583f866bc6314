"""The searches of a Unity Catalog: its Delta tables within the locations that the operator allows.

In: the section of the configuration and the tables that are known. Out: the tables that the catalog lists,
the entries that are not shared with the reasons, and the known tables that the search has not reached.
A search reads nothing of a storage. What a catalog protects by other means than files is left out.
"""

from __future__ import annotations

import asyncio
import os

from gateway.catalog.conflicts import LeftOut
from gateway.catalog.discovered import FoundTable
from gateway.config import Source
from gateway.config.checks import MAX_NAME_LENGTH
from gateway.config.locations import Location
from gateway.config.unity_catalog import UnityCatalog
from gateway.discovery.catalog_client import (
    CallsSpent,
    CatalogClient,
    CatalogError,
    CatalogTable,
    catalog_client,
)
from gateway.discovery.directories import SEARCH_SECONDS
from gateway.discovery.known_tables import KnownTables, Limit, SearchResult, within_limit
from gateway.discovery.names import TOO_LONG, name_problem
from gateway.storage.unity_catalog import CATALOG_MANAGED

CONCURRENT_SCHEMAS = 4
MAX_REFUSALS = 10_000
MAX_PROTECTED = 100_000
"""Locations of tables that the catalog protects. Beyond these a search ends."""
MAX_TEXT_LENGTH = 4096
"""Of a location, and of a name before it is normalized."""
MAX_SHOWN_LENGTH = 300
"""Of a name in a refusal."""
INFORMATION_SCHEMA = "information_schema"
"""The schema that describes the catalog by views."""
EXTERNAL_READ = "HAS_DIRECT_EXTERNAL_ENGINE_READ_SUPPORT"

ALIAS = "a table at its location cannot be shared"

_TYPES = ("MANAGED", "EXTERNAL")


def search_catalog(source: Source, catalog: UnityCatalog, known: KnownTables) -> SearchResult:
    """Search the tables of a catalog on a new event loop. Blocks. Errors of the catalog are in the result."""
    return asyncio.run(_search(source, catalog, known))


async def _search(source: Source, catalog: UnityCatalog, known: KnownTables) -> SearchResult:
    async with catalog_client(catalog, source.discovery.max_calls) as client:
        search = _CatalogSearch(source, catalog, known, client)
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                await search.run()
        except TimeoutError:
            search.end("time", f"the search ends after {SEARCH_SECONDS:g} s")
        return search.result()


class _CatalogSearch:
    """One search, from the schemas of a catalog to their tables."""

    def __init__(
        self, source: Source, catalog: UnityCatalog, known: KnownTables, client: CatalogClient
    ) -> None:
        self._source = source
        self._catalog = catalog
        self._known = known
        self._locations = {table.location for table in known.seen}
        self._names = {_names_of(table) for table in known.seen}
        self._client = client
        # A catalog that changes between two pages may repeat an entry.
        self._tables: dict[FoundTable, None] = {}
        self._more = 0
        """Number of tables beyond the limit that are not known."""
        self._refused: list[LeftOut] = []
        self._protected: set[Location] = set()
        """Locations of tables that the catalog protects by other means than files."""
        self._named: set[tuple[str, str, str]] = set()
        """The known names that the catalog lists, for whatever table."""
        self._listed: frozenset[str] | None = None
        """The schemas whose tables are shared; None while their list is not complete."""
        self._complete: set[str] = set()
        self._is_failing = self._is_cut = False
        self.problem = ""
        self._limit: Limit | None = None

    async def run(self) -> None:
        """List the schemas, then the tables of each."""
        wanted = frozenset(self._catalog.schemas)
        try:
            schemas = await self._schemas(wanted)
        except (CatalogError, CallsSpent) as error:
            self._fail(error)
            return
        if missing := sorted(wanted.difference(schemas)):
            self.problem = f"the catalog has no schema {missing[0]!r}"
        for start in range(0, len(schemas), CONCURRENT_SCHEMAS):
            if self._is_failing:
                return
            together = schemas[start : start + CONCURRENT_SCHEMAS]
            await asyncio.gather(*(self._tables_of(schema) for schema in together))

    async def _schemas(self, wanted: frozenset[str]) -> list[str]:
        """Return the schemas to list, at most as many as requests are allowed. Raises as the client does."""
        names: dict[str, None] = {}
        async for name in self._client.schemas():
            if name not in wanted if wanted else name == INFORMATION_SCHEMA:
                continue
            if len(name) > MAX_NAME_LENGTH:
                self._refuse(name, TOO_LONG)
            else:
                names[name] = None
            if len(names) > self._source.discovery.max_calls:
                return [*names]
        self._listed = frozenset(names)
        return [*names]

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
            self._is_cut = self._is_cut or not error.is_lasting
            self._is_failing = self._is_failing or not error.is_of_schema
        else:
            self.end("calls", f"maxCalls ends the search after {self._client.calls} requests")
            self._is_failing = True

    def end(self, limit: Limit, problem: str) -> None:
        """Note that a limit has ended the search."""
        self._limit = self._limit or limit
        self.problem = self.problem or problem

    def _take(self, schema: str, table: CatalogTable) -> None:
        """Take an entry. Raises CatalogError for too many tables that the catalog protects."""
        entry = self._found(schema, table)
        if isinstance(entry, str):
            self._refuse(f"{schema}.{table.name}", entry)
        elif entry in self._tables:
            return
        elif len(self._tables) < self._most(entry):
            self._tables[entry] = None
        else:
            self._more += 1

    def _refuse(self, name: str, reason: str) -> None:
        if len(self._refused) < MAX_REFUSALS:
            shown = f"{self._catalog.catalog}.{name}"
            is_long = len(shown) > MAX_SHOWN_LENGTH
            self._refused.append(LeftOut(f"{shown[:MAX_SHOWN_LENGTH]}..." if is_long else shown, reason))

    def _most(self, table: FoundTable) -> int:
        """Return the number of tables up to which one is kept: those at known locations go before others."""
        limit = self._source.discovery.max_tables
        return 2 * limit if table.location in self._locations else limit

    def _found(self, schema: str, table: CatalogTable) -> FoundTable | str:
        """Return a table with its names in the share, or why it is not shared. Raises CatalogError."""
        location, protection = self._location(table), protection_of(table)
        if protection is not None and isinstance(location, Location):
            self._protect(location)
        names = self._shared_names(schema, table.name)
        if isinstance(names, str):
            return names
        if (schema, *names) in self._names:
            self._named.add((schema, *names))
        reason = kind_problem(table) or protection
        if reason is not None:
            return reason
        if isinstance(location, str):
            return location
        is_managed = not CATALOG_MANAGED.isdisjoint(table.properties or ())
        managed_as = f"{self._catalog.catalog}.{schema}.{table.name}" if is_managed else ""
        return FoundTable(*names, location, schema, managed_as)

    def _shared_names(self, schema: str, table: str) -> tuple[str, str] | str:
        """Return the names of a table and its schema in the share, or why it can have none."""
        names = self._catalog.shared_names(schema, table, names_schemas=self._source.schema is None)
        if len(names[1]) > MAX_TEXT_LENGTH:
            return TOO_LONG
        own_schema, own_table = map(self._source.discovery.shared_name, names)
        for name in (own_table,) if self._source.schema else (own_schema, own_table):
            if (problem := name_problem(name)) is not None:
                return problem
        return self._source.schema or own_schema, own_table

    def _location(self, table: CatalogTable) -> Location | str:
        """Return the location of a table if it is an allowed one, or why it is none."""
        text = table.storage_location
        if not text:
            return "it has no location"
        try:
            location = Location.parse(text) if len(text) <= MAX_TEXT_LENGTH else None
        except ValueError:
            location = None
        if location is None:
            return "its location is in no storage that tables can be shared from"
        if not self._catalog.contains(location):
            return "its location is not in `within`"
        if location.kind == "file" and not self._contains_really(location):
            return "its directory is a link out of `within`"
        return location

    def _protect(self, location: Location) -> None:
        """Share no other table at a location, as by another name. Raises CatalogError."""
        if location not in self._protected and len(self._protected) >= MAX_PROTECTED:
            text = f"the catalog has more than {MAX_PROTECTED} tables that cannot be shared"
            raise CatalogError(text, is_lasting=True)
        self._protected.add(location)

    def _contains_really(self, location: Location) -> bool:
        """Return whether a local directory is in an allowed one when links are followed."""
        real = os.path.realpath(location.key)
        roots = (
            os.path.realpath(location.key) for location in self._catalog.within if location.kind == "file"
        )
        return any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots)

    def result(self) -> SearchResult:
        """Return what was found so far."""
        limit = self._source.discovery.max_tables
        tables = []
        for table in self._tables:
            if table.location in self._protected:
                self._refuse(f"{table.listed_in}.{table.name}", ALIAS)
            else:
                tables.append(table)
        count = len(tables) + self._more
        if count > limit:
            self.end("tables", f"maxTables: {count} tables are there")
        return SearchResult(
            within_limit(tables, self._locations, limit),
            tuple(self._refused),
            unknown_tables=frozenset(filter(self._is_unknown, self._known.seen)),
            named=frozenset(filter(self._is_named, self._known.seen)),
            calls=self._client.calls,
            problem=self.problem,
            limit=self._limit,
            is_cut=self._is_cut,
        )

    def _is_named(self, table: FoundTable) -> bool:
        """Return whether the catalog lists a known table, in this or another form."""
        return table.location in self._protected or _names_of(table) in self._named

    def _is_unknown(self, table: FoundTable) -> bool:
        """Return whether the search cannot say that a known table is gone."""
        if self._is_named(table):
            return False
        if table.listed_in in self._complete:
            return False
        return self._listed is None or table.listed_in in self._listed


def _names_of(table: FoundTable) -> tuple[str, str, str]:
    return table.listed_in, table.schema, table.name


def kind_problem(table: CatalogTable) -> str | None:
    """Return why an entry is not a Delta table of plain files; None if it is one."""
    kind = table.table_type or ""
    if kind not in _TYPES:
        is_word = kind.isascii() and kind.isidentifier() and len(kind) <= MAX_NAME_LENGTH
        return f"it is {kind if is_word else 'of an unknown type'}, and not a table of files"
    if table.data_source_format != "DELTA":
        return "it is no Delta table"
    return None


def protection_of(table: CatalogTable) -> str | None:
    """Return why the files of a table do not show what the catalog shows; None if they do.

    This holds for every other entry at its location, too.
    """
    if table.row_filter is not None:
        return "it has a row filter, which its files do not have"
    if any(column.mask is not None for column in table.columns or ()):
        return "it has a column mask, which its files do not have"
    manifest = table.securable_kind_manifest
    if manifest is not None and EXTERNAL_READ not in (manifest.capabilities or ()):
        return "the catalog lets no other engine read its files"
    return None
