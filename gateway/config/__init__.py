"""The configuration: one YAML file in, frozen and validated dataclasses out.

The file of the reference server is accepted as it is; the keys of this gateway are in its `gateway:` map.
`load` is the only reader of files and environment variables. A wrong value raises `ConfigError` with file,
line, key and the accepted values. An unknown key is a warning in the log, with its place and the nearest
known key. Secrets are `Secret` and print as stars.
"""

from gateway.config.administration import Admin
from gateway.config.discovery import Discovery, Source
from gateway.config.errors import ConfigError
from gateway.config.loader import load, loads
from gateway.config.locations import Location
from gateway.config.oidc import ConsoleOidc, Issuer
from gateway.config.operation import Limits, Ssl, Tracing
from gateway.config.projections import ProjectedColumn, Projection
from gateway.config.recipients import GrantEntry, RecipientEntry
from gateway.config.secret import Secret
from gateway.config.sections import Compression, Config, Gateway, TokenKey
from gateway.config.shares import SchemaEntry, ShareEntry, TableEntry, VolumeEntry
from gateway.config.storages.entry import StorageEntry

__all__ = [
    "Admin",
    "Compression",
    "Config",
    "ConfigError",
    "ConsoleOidc",
    "Discovery",
    "Gateway",
    "GrantEntry",
    "Issuer",
    "Limits",
    "Location",
    "ProjectedColumn",
    "Projection",
    "RecipientEntry",
    "SchemaEntry",
    "Secret",
    "ShareEntry",
    "Source",
    "Ssl",
    "StorageEntry",
    "TableEntry",
    "TokenKey",
    "Tracing",
    "VolumeEntry",
    "load",
    "loads",
]
