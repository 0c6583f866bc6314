"""The section of a Unity Catalog whose tables are shared, and the names that they get."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from gateway.config.errors import Invalid
from gateway.config.locations import Location
from gateway.config.operation import setting
from gateway.config.secret import Secret
from gateway.config.table_catalog import CatalogClient, TableCatalog, api_url, check_access

ACCEPTED_NAMES = "{schema}.{table} in a share, {table} in a schema, with {catalog} and other text beside them"

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PLACEHOLDERS = ("catalog", "schema", "table")


@dataclass(frozen=True, slots=True)
class UnityCatalog:
    """The Delta tables of a catalog, by its REST API. See [Unity Catalog](shares.md#unity-catalog).

    Attributes:
        url: URL of the server, such as `https://catalog.example.com`, by HTTPS.
        catalog: name of the catalog.
        within: locations that contain every shared table. Tables elsewhere are left out, whatever the catalog
            says.
        schemas: names of the schemas whose tables are shared. Without it those of all schemas.
        names: names of the schema and the table in the share, by `{catalog}`, `{schema}` and `{table}`.
            Without it `{schema}.{table}` in a share, and `{table}` in a schema.
        token: bearer token for the catalog.
        oauth: client that requests such tokens, in the place of `token`.
        allow_private_addresses: lets the URL have a private address, and `http` on this machine. A proxy of
            the environment resolves names itself: addresses of names are then not checked.

    """

    url: str
    catalog: str
    within: tuple[Location, ...]
    schemas: tuple[str, ...] = setting((), protects=True)
    names: str | None = None
    token: Secret | None = None
    oauth: CatalogClient | None = setting(None, protects=True)
    allow_private_addresses: bool = False

    def __post_init__(self) -> None:
        check_access(self.url, self.token, self.oauth, private=self.allow_private_addresses)
        if not self.within:
            raise Invalid("within", "is empty; give the locations that contain the tables to share")
        if self.names is not None:
            _check_placeholders(self.names)

    @property
    def api_url(self) -> str:
        """Return the URL of the API, without a trailing slash."""
        return api_url(self.url)

    @property
    def identity(self) -> str:
        """Identify what is listed, and which of it may be shared under which names."""
        within = sorted(location.url for location in self.within)
        names = [sorted({*self.schemas}), self.names]
        return json.dumps([self.api_url, self.catalog, within, *names])

    @property
    def shown(self) -> str:
        """Return the place for messages."""
        return f"in the catalog {self.catalog!r} of {self.url}"

    def check_names(self, *, names_schemas: bool) -> None:
        """Check that names have a schema or none. Raises Invalid."""
        if self.names is not None and len(self.names.split(".")) != 1 + names_schemas:
            expected = "a schema and a table" if names_schemas else "a table alone"
            raise Invalid("tables", f"does not name {expected}; accepted: {ACCEPTED_NAMES}")

    def manages(self, name: str) -> TableCatalog:
        """Return the catalog of one of its tables, by the name `catalog.schema.table`. Raises Invalid."""
        return TableCatalog(self.url, name, self.token, self.oauth, self.allow_private_addresses)

    def contains(self, location: Location) -> bool:
        """Return whether a table at a location may be shared."""
        return any(prefix.contains(location) for prefix in self.within)

    def shared_names(self, schema: str, table: str, *, names_schemas: bool) -> tuple[str, str]:
        """Return the names of a table's schema and of the table in a share; in a schema, no schema."""
        texts = {"catalog": self.catalog, "schema": schema, "table": table}
        form = self.names or ("{schema}.{table}" if names_schemas else "{table}")
        parts = [_PLACEHOLDER.sub(lambda match: texts[match[1]], part) for part in form.split(".")]
        return (parts[0], parts[1]) if names_schemas else ("", parts[0])


def _check_placeholders(names: str) -> None:
    """Check the form of names, but for the number of parts. Raises Invalid."""
    *outer, table = names.split(".")
    known = _PLACEHOLDER.findall(names)
    rest = _PLACEHOLDER.sub("", names)
    is_odd = "{" in rest or "}" in rest or "/" in rest or not rest.isprintable()
    if is_odd or not {*known} <= {*_PLACEHOLDERS} or "{table}" not in table or not all([*outer, table]):
        raise Invalid("names", f"is not a form of names; accepted: {ACCEPTED_NAMES}")
