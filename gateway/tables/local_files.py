"""Local tables: the roots that signed URLs of the files route name."""

from __future__ import annotations

import uuid

from gateway.access.catalog import ID_NAMESPACE, Catalog
from gateway.config import Config, Location

FILES_USE = b"files"


def root_id(root: Location) -> str:
    """The id by which URLs name a root that is no table's own."""
    return str(uuid.uuid5(ID_NAMESPACE, root.url))


def local_roots(config: Config, catalog: Catalog) -> dict[str, Location]:
    """Return the local roots by the ids that URLs name them by."""
    allowed = {root_id(root): root for root in config.gateway.allowed_roots}
    tables = {table.id: table.location for table in catalog.tables()}
    return {identity: root for identity, root in (allowed | tables).items() if root.kind == "file"}
