"""Entries of shares from values, with the validation of the configuration.

In: what the database stores: names, locations, and the other keys of the configuration. Out: the entries that
the same keys in the file would make. `${NAME}` is plain text here: values of the database name no variables
of the server's environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import yaml

from gateway.config.discovery import Discovery
from gateway.config.errors import ConfigError, Invalid, shown_key
from gateway.config.known_keys import known_keys
from gateway.config.locations import Location
from gateway.config.reader import Reader
from gateway.config.sections import Config
from gateway.config.shares import SchemaEntry, ShareEntry, TableEntry, VolumeEntry

FILE = "the database"
SHARE_KEYS = frozenset(known_keys(ShareEntry)) - {"name", "schemas"}
SCHEMA_KEYS = frozenset(known_keys(SchemaEntry)) - {"name"}
# A catalog has a token and a URL: a manager of shares would choose which files the server reads, and where it
# sends them. A projection has a secret, and the job that keeps it reads the file alone.
KEYS_OF_FILE = frozenset({"unityCatalog", "catalog", "projection"})
DISCOVERY_KEYS = frozenset(known_keys(Discovery)) - KEYS_OF_FILE
TABLE_KEYS = frozenset(known_keys(TableEntry)) - {"name", "location"} - KEYS_OF_FILE
VOLUME_KEYS = frozenset(known_keys(VolumeEntry)) - {"name"}

_PLAIN_KEYS = frozenset({"id", "historyShared"})
_TAG = "tag:yaml.org,2002:"


class EntryReader:
    """Makes entries in the place of a configuration, whose storages complete locations of Azure."""

    def __init__(self, config: Config) -> None:
        self._reader = Reader(FILE, config.directory, {}, Config)
        for entry in config.gateway.storages:
            if entry.prefix.account:
                without = replace(entry.prefix, account="", domain="")
                self._reader.accounts[without] = entry.prefix.account
                if entry.prefix.is_in_unknown_cloud:
                    self._reader.private_clouds[entry.prefix] = True

    def share(self, name: str, options: Mapping[str, Any], schemas: Iterable[SchemaEntry]) -> ShareEntry:
        """Return a share. Raises ConfigError."""
        _check_discovery(options)
        entry: ShareEntry = self._section(ShareEntry, {"name": name, **options}, SHARE_KEYS)
        return replace(entry, schemas=tuple(schemas))

    def schema(self, name: str, options: Mapping[str, Any], tables: Iterable[TableEntry]) -> SchemaEntry:
        """Return a schema. Raises ConfigError."""
        _check_discovery(options)
        tables = tuple(tables)
        if tables and "tables" in options:
            raise ConfigError(FILE, "tables", "a schema has listed tables or discovered ones, not both")
        volumes = options.get("volumes") or []
        for volume in volumes if isinstance(volumes, list) else [None]:
            if not isinstance(volume, dict):
                raise ConfigError(FILE, "volumes", "expected a map of keys")
            _check_keys(volume, VOLUME_KEYS | {"name"})
        entry: SchemaEntry = self._section(SchemaEntry, {"name": name, **options}, SCHEMA_KEYS)
        return replace(entry, tables=tables)

    def table(self, name: str, location: str, options: Mapping[str, Any]) -> TableEntry:
        """Return a table. Raises ConfigError."""
        if not _is_plain(name, location, options):
            values = {"name": name, "location": location, **options}
            entry: TableEntry = self._section(TableEntry, values, TABLE_KEYS | {"location"})
            return entry
        # There may be thousands of tables, and almost all are plain.
        try:
            return TableEntry(
                name,
                self._reader.located(Location.parse(location)),
                options.get("id"),
                options.get("historyShared", False),
            )
        except Invalid as invalid:
            raise ConfigError(FILE, invalid.field, str(invalid)) from None
        except ValueError as reason:
            raise ConfigError(FILE, "location", str(reason)) from None

    def _section(self, kind: type, values: Mapping[str, Any], keys: frozenset[str]) -> Any:
        _check_keys(values, keys | {"name"})
        return self._reader.section(kind, _node(values), "")


def _is_plain(name: str, location: str, options: Mapping[str, Any]) -> bool:
    """Return whether a table has no keys but these, with values of their types."""
    identity = options.get("id", "none")
    return (
        bool(name and location and identity)
        and options.keys() <= _PLAIN_KEYS
        and isinstance(options.get("historyShared", False), bool)
        and isinstance(identity, str)
        and identity.isascii()
    )


def _check_discovery(options: Mapping[str, Any]) -> None:
    """Check the keys of discovered tables; what they mean is checked where they are read."""
    if "tables" in options:
        discovery = options["tables"]
        if not isinstance(discovery, Mapping):
            raise ConfigError(FILE, "tables", "expected a map of keys")
        _check_keys(discovery, DISCOVERY_KEYS)


def _check_keys(values: Mapping[str, Any], keys: frozenset[str]) -> None:
    unknown = sorted(values.keys() - keys)
    if unknown and unknown[0] in KEYS_OF_FILE:
        raise ConfigError(FILE, unknown[0], "is a key of the configuration file alone")
    if unknown:
        raise ConfigError(FILE, shown_key(unknown[0]), f"unknown key; accepted: {', '.join(sorted(keys))}")


def _node(value: Any) -> yaml.Node:
    """Return a value as the node that its text in the file would be. Raises ConfigError."""
    if isinstance(value, Mapping):
        return yaml.MappingNode(f"{_TAG}map", [(_node(str(key)), _node(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return yaml.SequenceNode(f"{_TAG}seq", [_node(item) for item in value])
    if value is None:
        return yaml.ScalarNode(f"{_TAG}null", "null")
    if isinstance(value, bool):
        return yaml.ScalarNode(f"{_TAG}bool", str(value).lower())
    if isinstance(value, (int, float)):
        return yaml.ScalarNode(f"{_TAG}str", str(value))
    return yaml.ScalarNode(f"{_TAG}str", str(value).replace("${", "$${"))
