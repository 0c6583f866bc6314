"""Discovery of tables: the section that says where, by a template of directories or in a Unity Catalog."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import ClassVar

from gateway.config.errors import Invalid
from gateway.config.location_template import ACCEPTED, LocationTemplate
from gateway.config.locations import Location
from gateway.config.operation import setting
from gateway.config.unity_catalog import UnityCatalog

MAX_JOINED_LEVELS = 4


@dataclass(frozen=True, slots=True)
class Discovery:
    """Tables that are found while the server runs: those of a template of directories, or of a catalog.

    Listed tables win over found ones of the same name or location. See [Discovery](shares.md#discovery).

    Attributes:
        discover: location with `{schema}` and `{table}` in the place of directories, such as
            `s3://bucket/warehouse/{schema}/{table}/`. A directory may have text around its placeholder, as in
            `{schema}.db`. Each directory of this form with a `_delta_log` is a table. Without it
            `unityCatalog` must be given.
        unity_catalog: tables that a Unity Catalog lists, in the place of `discover`.
        every_seconds: time from one search to the next.
        keep_seconds: time for which a known table stays while searches cannot tell whether it exists, because
            the storage or the catalog fails or a limit ends the search.
        max_depth: number of levels below the template's directory in which tables are also searched. The name
            of such a table is its directories, joined by `_`.
        max_tables: maximum number of found tables.
        max_calls: maximum number of listed directories of one search, or of requests to a catalog. A listed
            directory costs one request or more.
        history_shared: allows time travel, the change data feed and streaming of the found tables.
        replace_dots: writes `_` for each dot in the names of found schemas and tables: no official client can
            address a name with a dot.

    """

    EXPECTED: ClassVar[str] = "discover or unityCatalog; a list of tables is in shares[].schemas[].tables"
    discover: LocationTemplate | None = None
    unity_catalog: UnityCatalog | None = None
    every_seconds: float = setting(300.0, minimum=1)
    keep_seconds: float = setting(86_400.0, minimum=0)
    max_depth: int = setting(0, minimum=0, maximum=MAX_JOINED_LEVELS)
    max_tables: int = setting(10_000, minimum=1, maximum=100_000)
    max_calls: int = setting(20_000, minimum=1, maximum=1_000_000)
    history_shared: bool = False
    replace_dots: bool = False

    def __post_init__(self) -> None:
        if (self.discover is None) == (self.unity_catalog is None):
            raise Invalid("discover", "must be given, or unityCatalog in its place")
        if self.unity_catalog is not None and self.max_depth:
            raise Invalid("max_depth", "applies to directories, which a catalog does not have; remove it")

    def shared_name(self, name: str) -> str:
        """Return the name in the share of a found schema or table: two spellings that look alike are one."""
        normal = unicodedata.normalize("NFC", name)
        return normal.replace(".", "_") if self.replace_dots else normal

    @property
    def template(self) -> LocationTemplate:
        """Return the template of directories. Raises ValueError for tables of a catalog."""
        if self.discover is None:
            raise ValueError("the tables are those of a catalog")
        return self.discover

    @property
    def roots(self) -> tuple[Location, ...]:
        """Return the locations that contain all tables that can be found."""
        return (self.template.root,) if self.unity_catalog is None else self.unity_catalog.within

    @property
    def shown(self) -> str:
        """Return where tables are found, for messages."""
        return f"below {self.template.root.url}" if self.unity_catalog is None else self.unity_catalog.shown


@dataclass(frozen=True, slots=True)
class Source:
    """A place of the configuration where tables are discovered.

    Attributes:
        share: name of the share.
        schema: name of the schema; None where the template names schemas.
        discovery: what the configuration says about it.

    """

    share: str
    schema: str | None
    discovery: Discovery

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identify the source: with another key, nothing that was found is kept."""
        catalog = self.discovery.unity_catalog
        form, place = (
            (self.discovery.template.text, self.discovery.template.root.url)
            if catalog is None
            else ("unityCatalog", catalog.identity)
        )
        # Tables that are found once more have other names.
        names = f"{form} replaceDots" if self.discovery.replace_dots else form
        return self.share.casefold(), (self.schema or "").casefold(), names, place

    @property
    def shown(self) -> str:
        """Return the name for messages."""
        return self.share if self.schema is None else f"{self.share}.{self.schema}"


def check_template(discovery: Discovery | None, *, names_schemas: bool) -> None:
    """Check that the template of a share names schemas, and that of a schema none. Raises Invalid."""
    if discovery is None:
        return
    if discovery.unity_catalog is not None:
        discovery.unity_catalog.check_names(names_schemas=names_schemas)
    elif discovery.template.names_schemas != names_schemas:
        raise Invalid(
            "tables",
            f"has no {{schema}}; give it, or discover tables in a schema; accepted: {ACCEPTED}"
            if names_schemas
            else "is of a schema, whose template has {table} alone",
        )
