"""Which tables may offer directory access: temporary credentials for all files below a root.

A credential gives access to whole directories, so a combination that would show more than the table is
refused when a configuration is loaded. Each message names the table and the change that resolves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, collapse_addresses
from itertools import pairwise

from gateway.config.errors import shown
from gateway.config.locations import Location
from gateway.config.networks import Network, parse_networks
from gateway.config.recipients import EVERY_SHARE, RecipientEntry
from gateway.config.roots import ACCESS_POINT_SUFFIXES, DIRECTORY, Holder, Roots, comparable
from gateway.config.sections import Config
from gateway.config.shares import TableEntry
from gateway.config.storages import StorageEntry

WITHOUT = "or remove dir from accessModes"
APART = f"move one of them, {WITHOUT}"

_WILDCARD = re.compile(r"[*?$]")


LimitedRecipient = tuple[RecipientEntry, tuple[Network, ...]]
"""A recipient with its networks."""


def directory_access_problem(config: Config, roots: Roots) -> str | None:
    """Return why a table may not offer directory access, with what to do; None if all may."""
    return next((problem for _, problem in directory_access_problems(config, roots)), None)


def root_problem(location: Location, entry: StorageEntry | None) -> str | None:
    """Return why no credential can be limited to a root, with what to do; None if one can."""
    if location.kind == "file":
        return "local files have no credentials; move them to an object store"
    if not location.key:
        return "its root is a whole bucket, and credentials would cover everything in it; give it a directory"
    if location.kind == "azure":
        return _azure_problem(location, entry)
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


def credential_problems(
    config: Config, location: Location, share: str, limited: Sequence[LimitedRecipient], *, kind: str
) -> Iterator[str]:
    """Iterate over the reasons why recipients of a share can get no credential for a root.

    `kind`: the word for the table or the volume.
    """
    entry = config.gateway.storage(location)
    problem = root_problem(location, entry)
    if problem is not None:
        yield problem
    for recipient, networks in limited:
        problem = networks_problem(location, entry, networks)
        if problem is not None and is_granted(recipient, share):
            yield (
                f"{problem}, and the recipient {recipient.name} has networks; share the {kind} with it in "
                "another share"
            )


def limited_recipients(config: Config) -> list[LimitedRecipient]:
    """Return the recipients of the configuration with networks."""
    return [
        (recipient, parse_networks(recipient.networks))
        for recipient in config.gateway.recipients
        if recipient.networks
    ]


def directory_access_problems(config: Config, roots: Roots) -> Iterator[tuple[Holder, str]]:
    """Iterate over the tables that may not offer directory access, each with the reason."""
    limited = limited_recipients(config)
    for share, name, table in config.tables:
        if DIRECTORY in table.access_modes:
            for problem in _problems_of(config, share.name, table, limited):
                yield (False, name), f"{name} cannot offer directory access: {problem}"
            locations = [comparable(config, root) for root in _roots_of(table)]
            for problem in roots.overlaps((False, name), locations):
                yield (False, name), f"{name} cannot offer directory access: {problem}; {APART}"


def _problems_of(
    config: Config, share: str, table: TableEntry, limited: Sequence[LimitedRecipient]
) -> Iterator[str]:
    if not table.history_shared:
        yield f"its directory has the whole history; set historyShared: true, {WITHOUT}"
    if table.start_version > 0:
        yield f"its directory has the versions before startVersion; remove startVersion, {WITHOUT}"
    for root in _roots_of(table):
        for problem in credential_problems(config, root, share, limited, kind="table"):
            yield f"{problem}, {WITHOUT}"
    for root in table.auxiliary_locations:
        if not any(allowed.contains(root) for allowed in config.gateway.allowed_roots):
            yield f"gateway.allowedRoots contains no {shown(root.url)}, one of its auxiliaryLocations; add it"


def _roots_of(table: TableEntry) -> tuple[Location, ...]:
    """Return the roots that recipients of directory access read."""
    return (table.location, *table.auxiliary_locations)


def _azure_problem(location: Location, entry: StorageEntry | None) -> str | None:
    if "?" in location.key or "#" in location.key:
        return "its path has ? or #, which no location for clients can have; give it another path"
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
    if entry.endpoint is not None and entry.sts_endpoint is None and not entry.is_aws:
        return "its store is none of AWS, and roles are assumed at AWS without stsEndpoint; give stsEndpoint"
    if location.bucket.endswith(ACCESS_POINT_SUFFIXES):
        return "a policy cannot name the alias of an access point; give the bucket itself"
    if not entry.is_aws and _WILDCARD.search(location.key):
        return "its path has one of * ? $, which only policies of AWS can escape; give it another path"
    return None


def is_granted(recipient: RecipientEntry, share: str) -> bool:
    """Return whether a recipient of the configuration may read a share or tables of it as a whole."""
    granted = {grant.share.casefold() for grant in recipient.shares if grant.condition is None}
    return EVERY_SHARE in granted or share.casefold() in granted
