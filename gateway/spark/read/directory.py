"""Prepares reads of a table's directory by delta-spark itself, with temporary credentials of the server.

In: the options of a read. Out: a location and Delta's options for it, which hold secrets. Only stores with
the API of S3, through Hadoop's client `s3a`. Rows are those of the pinned version: servers do not offer the
directory of a table whose rows depend on the recipient.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.spark.read.options import ReadOptions

DIRECTORY = "dir"
"""The mode of access to a table's directory."""
_S3_FORMS = ("awsTempCredentials", "r2Credentials")
_S3_SCHEMES = ("s3", "s3a", "s3n")
_OPTIONS = ("profile", "path", "versionAsOf", "timestampAsOf", "columns", "expectedVersion", "timeZone")
_SESSION_KEYS = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
# Hadoop keeps one client for a bucket, whatever its keys are, and here the keys are those of one table. This
# file system, of a dependency of delta-spark, keeps a bounded number of clients by an id of their keys.
_CLIENT_PER_KEYS = "io.unitycatalog.hadoop.internal.fs.CredScopedFileSystem"


class NoDirectoryAccess(ValueError):
    """Raised for a table that cannot be read by its directory; the text is the reason."""


@dataclass(frozen=True)
class TableDirectory:
    """A location with the scheme `s3a`, and the options of a read of it. The options are secret."""

    location: str
    version: int
    options: dict[str, str] = field(repr=False)


def table_directory(options: ReadOptions) -> TableDirectory:
    """Request credentials for a table's directory. Raises NoDirectoryAccess, ValueError and HttpError."""
    for name in sorted(options.given - {*_OPTIONS}):
        raise ValueError(f"{name} has no effect on a read of the directory")
    client = options.client()
    head = client.head(options.at())
    if DIRECTORY not in head.access_modes:
        raise NoDirectoryAccess("the server does not offer directory access to the table")
    if head.auxiliary_locations:
        raise NoDirectoryAccess("files of the table are outside of its directory")
    version = client.version() if head.version is None else head.version
    for wanted in (options.expected_version, options.version_as_of):
        if wanted not in {None, version}:
            raise NoDirectoryAccess(f"the server answered version {version}, not {wanted}")
    return _with_keys(client.temporary_credentials(), version)


def s3_keys(credentials: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Return the keys of temporary credentials for a store with the API of S3; None for another store."""
    return next((credentials[form] for form in _S3_FORMS if form in credentials), None)


def _with_keys(credentials: dict[str, Any], version: int) -> TableDirectory:
    scheme, _, place = str(credentials.get("location")).partition("://")
    keys = s3_keys(credentials)
    if keys is None or scheme not in _S3_SCHEMES:
        raise NoDirectoryAccess("only directories of stores with the API of S3 can be read")
    location = f"s3a://{place}"
    # Settings of the bucket have precedence over those that a session has for all of them.
    bucket = f"fs.s3a.bucket.{place.partition('/')[0]}"
    options = {
        f"{bucket}.access.key": keys["accessKeyId"],
        f"{bucket}.secret.key": keys["secretAccessKey"],
        f"{bucket}.session.token": keys["sessionToken"],
        f"{bucket}.aws.credentials.provider": _SESSION_KEYS,
        "fs.s3a.impl": _CLIENT_PER_KEYS,
        "fs.s3a.impl.disable.cache": "true",
        "fs.unitycatalog.credentials.type": "path",
        "fs.unitycatalog.path": location,
        "fs.unitycatalog.path.operation": "PATH_READ",
        "fs.unitycatalog.cred.context.id": hashlib.sha256(keys["sessionToken"].encode()).hexdigest(),
        "versionAsOf": str(version),
    }
    return TableDirectory(location, version, options)
