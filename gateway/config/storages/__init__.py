"""The classes of the entries of `gateway.storages[]`, and the entry of a location that no prefix contains."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from gateway.config.locations import Kind, Location
from gateway.config.storages.azure import AzureEntry
from gateway.config.storages.entry import LocalEntry, StorageEntry
from gateway.config.storages.gcs import GcsEntry
from gateway.config.storages.r2 import R2Entry
from gateway.config.storages.s3 import S3Entry

StorageForm: TypeAlias = StorageEntry | S3Entry | R2Entry | AzureEntry | GcsEntry
"""What all entries have in common, and the keys of each store in the order of the reference."""

_DEFAULT = {form.KIND: form for form in (S3Entry, AzureEntry, GcsEntry, LocalEntry)}


def default_entry(location: Location) -> StorageEntry:
    """Return the entry without keys for the bucket of a location."""
    return _default_entry(location.kind, location.bucket, location.account, location.domain)


@lru_cache(maxsize=4096)
def _default_entry(kind: Kind, bucket: str, account: str, domain: str) -> StorageEntry:
    return _DEFAULT[kind](Location(kind, bucket, "", account, domain))
