"""The list of shared tables and their locations, for the commands on Spark.

In: a configuration with its database, and one search of each place where tables are discovered. Out: YAML
that `verify` and `fleet` take in place of the configuration, whose own tables alone they read: on a cluster
there is neither the database nor access to catalogs.
"""

from __future__ import annotations

import sys
from typing import Any

from gateway.catalog.catalog import SharedTable
from gateway.cli.discovered_state import discovered_state
from gateway.cli.yaml_text import dumped
from gateway.config import Config
from gateway.governance.named_recipient import named_recipient
from gateway.spark.targets import any_of


def exported_tables(config: Config, recipient: str | None) -> str:
    """Return the tables of all shares, or those of a recipient with the conditions of its grants. Blocks.

    What is left out is said on standard error. Raises UnknownRecipient and DatabaseError.
    """
    reader = None if recipient is None else named_recipient(config, recipient)
    discovered = discovered_state(config)
    for line in discovered.lines():
        sys.stderr.write(f"{line}\n")
    catalog = discovered.state.catalog
    tables = catalog.tables() if reader is None else catalog.tables_of(reader)
    return dumped({"tables": [_document(table) for table in tables]})


def _document(table: SharedTable) -> dict[str, Any]:
    document: dict[str, Any] = {"table": table.full_name, "location": table.location.url}
    if table.history_shared:
        document["historyShared"] = True
    if table.start_version:
        document["startVersion"] = table.start_version
    if table.rule is not None:
        document["condition"] = any_of(table.rule.conditions)
        document["properties"] = dict(table.rule.properties)
    return document
