"""Which tables may offer directory access: temporary credentials for all files below a root.

A credential gives access to whole directories, so a combination that would show more than the table is
refused when a configuration is loaded. Each message names the table and the change that resolves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Network, collapse_addresses
from itertools import pairwise
from urllib.parse import urlsplit

from gateway.config.errors import shown
from gateway.config.locations import Location
from gateway.config.networks import Network, parse_networks
from gateway.config.sections import EVERY_SHARE, Config, RecipientEntry, TableEntry
from gateway.config.storages import StorageEntry

DIRECTORY = "dir"
ACCESS_POINT_SUFFIX = "-s3alias"
WITHOUT = "or remove dir from accessModes"
APART = f"move one of them, {WITHOUT}"

_GOOGLE_HOST = "storage.googleapis.com"
_WILDCARD = re.compile(r"[*?$]")


LimitedRecipient = tuple[RecipientEntry, tuple[Network, ...]]
"""A recipient with its networks."""


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table with its place in the configuration."""

    share: str
    name: str
    table: TableEntry

    @property
    def roots(self) -> tuple[Location, ...]:
        """The roots that recipients of directory access read."""
        return (self.table.location, *self.table.auxiliary_locations)


def directory_access_problem(config: Config) -> str | None:
    """Return why a table may not offer directory access, with what to do; None if all may."""
    return next(_problems(config), None)


def root_problem(location: Location, entry: StorageEntry | None) -> str | None:
    """Return why no credential can be limited to a root, with what to do; None if one can."""
    if location.kind == "file":
        return "local files have no credentials; move them to an object store"
    if not location.key:
        return "its root is a whole bucket, and credentials would cover everything in it; give it a directory"
    if location.kind == "azure":
        return _azure_problem(entry)
    if location.kind == "gs":
        if entry is not None and entry.access_key_id is not None:
            return "an HMAC key issues no tokens; give credentialsFile in gateway.storages"
        return None
    return _s3_problem(location, entry)


def networks_problem(
    location: Location, entry: StorageEntry | None, networks: Sequence[Network]
) -> str | None:
    """Return why a credential cannot be limited to a recipient's networks; None if it can."""
    if not networks:
        return None
    if location.kind == "gs":
        return "credentials of Google cannot be limited to networks"
    if location.kind == "azure" and address_range(networks) is None:
        return "credentials of Azure can be limited to one range of IPv4 addresses only"
    if location.kind == "s3" and entry is not None and entry.cloudflare_api_token is not None:
        return "credentials of R2 cannot be limited to networks"
    return None


def address_range(networks: Sequence[Network]) -> tuple[IPv4Address, IPv4Address] | None:
    """Return the first and the last address of networks that are one range of IPv4; None for others."""
    if any(isinstance(network, IPv6Network) for network in networks):
        return None
    merged = sorted(collapse_addresses(one for one in networks if isinstance(one, IPv4Network)))
    for before, after in pairwise(merged):
        if int(before.broadcast_address) + 1 != int(after.network_address):
            return None
    return (merged[0].network_address, merged[-1].broadcast_address) if merged else None


def _problems(config: Config) -> Iterator[str]:
    tables = [
        NamedTable(share.name, f"{share.name}.{schema.name}.{table.name}", table)
        for share in config.shares
        for schema in share.schemas
        for table in schema.tables
    ]
    limited = [
        (recipient, parse_networks(recipient.networks))
        for recipient in config.gateway.recipients
        if recipient.networks
    ]
    offering = [one for one in tables if DIRECTORY in one.table.access_modes]
    problems = ((one, problem) for one in offering for problem in _problems_of(config, one, limited))
    for one, problem in (*problems, *_nested(config, offering, tables)):
        yield f"{one.name} cannot offer directory access: {problem}"


def _problems_of(config: Config, one: NamedTable, limited: Sequence[LimitedRecipient]) -> Iterator[str]:
    table = one.table
    if not table.history_shared:
        yield f"its directory has the whole history; set historyShared: true, {WITHOUT}"
    if table.start_version > 0:
        yield f"its directory has the versions before startVersion; remove startVersion, {WITHOUT}"
    for root in one.roots:
        entry = config.gateway.storage(root)
        problem = root_problem(root, entry)
        if problem is not None:
            yield f"{problem}, {WITHOUT}"
        for recipient, networks in limited:
            problem = networks_problem(root, entry, networks)
            if problem is not None and is_granted(recipient, one.share):
                yield (
                    f"{problem}, and the recipient {recipient.name} has networks; share the table with it in "
                    f"another share, {WITHOUT}"
                )
    for root in table.auxiliary_locations:
        if not any(allowed.contains(root) for allowed in config.gateway.allowed_roots):
            yield f"gateway.allowedRoots contains no {shown(root.url)}, one of its auxiliaryLocations; add it"


def _nested(
    config: Config, offering: Sequence[NamedTable], tables: Sequence[NamedTable]
) -> Iterator[tuple[NamedTable, str]]:
    """Iterate over tables with others whose files their credentials would give access to."""
    holders: dict[Location, list[NamedTable]] = {}
    for one in offering:
        for root in one.roots:
            holders.setdefault(comparable(config, root), []).append(one)
    for other in tables if holders else ():
        for root in other.roots:
            for place in _upwards(comparable(config, root)):
                for one in holders.get(place, ()):
                    if not _may_hold(one, other, root):
                        yield one, f"the files of {other.name} lie within its directory; {APART}"


def _may_hold(one: NamedTable, other: NamedTable, root: Location) -> bool:
    """Return whether credentials of one table may read a root of another: it is the same, or its source."""
    is_source = root in one.table.auxiliary_locations and (
        other is one or DIRECTORY in other.table.access_modes
    )
    return root == one.table.location or is_source


def _upwards(location: Location) -> Iterator[Location]:
    """Iterate over a location and the directories above it."""
    yield location
    key = location.key
    while key:
        key = key.rpartition("/")[0]
        yield replace(location, key=key)


def comparable(config: Config, location: Location) -> Location:
    """Return a location for comparisons: buckets of Google can be reached as those of S3, too."""
    entry = config.gateway.storage(location)
    if (
        location.kind == "s3"
        and entry is not None
        and urlsplit(entry.endpoint or "").hostname == _GOOGLE_HOST
    ):
        return replace(location, kind="gs")
    return location


def _azure_problem(entry: StorageEntry | None) -> str | None:
    if entry is None or not entry.hierarchical_namespace:
        return (
            "an account with a flat namespace has no credentials for a directory; if the account has a "
            "hierarchical namespace, give hierarchicalNamespace: true in gateway.storages"
        )
    return None


def _s3_problem(location: Location, entry: StorageEntry | None) -> str | None:
    if entry is not None and entry.cloudflare_api_token is not None:
        return None
    if entry is None or not (entry.role_arn or entry.directory_role_arn):
        return (
            "credentials are sessions of a role; give directoryRoleArn or roleArn in gateway.storages, or "
            "cloudflareApiToken for R2"
        )
    if location.bucket.endswith(ACCESS_POINT_SUFFIX):
        return "a policy cannot name the alias of an access point; give the bucket itself"
    if not entry.is_aws and _WILDCARD.search(location.key):
        return "its path has one of * ? $, which only policies of AWS can escape; give it another path"
    return None


def is_granted(recipient: RecipientEntry, share: str) -> bool:
    """Return whether a recipient of the configuration may read a share or a part of it."""
    granted = {grant.share.casefold() for grant in recipient.shares}
    return EVERY_SHARE in granted or share.casefold() in granted
