"""The session policies that temporary credentials of S3 need, checked before a recipient requests one.

A policy has the path of the directory and the networks of the recipient, and its length has a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gateway.config.directory_access import is_granted, limited_recipients
from gateway.config.errors import ConfigError
from gateway.config.roots import DIRECTORY
from gateway.storage.vending.aws import MAX_POLICY_CHARACTERS, partition_of, session_policy

if TYPE_CHECKING:
    from gateway.config import Config, Location
    from gateway.config.networks import Network
    from gateway.config.sections import ShareEntry


def check_session_policies(config: Config, file: str = "configuration") -> None:
    """Check that the policy of each directory fits for all configured recipients. Raises ConfigError."""
    limited = limited_recipients(config)
    for share in config.shares:
        granted = [one for one in limited if is_granted(one[0], share.name)]
        # The policy with the longest networks stands for those of all recipients.
        recipient, networks = max(granted, key=lambda one: _length_of(one[1]), default=(None, ()))
        for name, location in _directories(share):
            length = _policy_length(config, location, networks)
            if length > MAX_POLICY_CHARACTERS:
                who = f" for the networks of the recipient {recipient.name}" if recipient else ""
                raise ConfigError(
                    file,
                    "shares",
                    f"{name} cannot have temporary credentials: the session policy{who} has {length} "
                    f"characters, and token services accept {MAX_POLICY_CHARACTERS}; shorten its path"
                    + (", or merge the networks" if recipient else ""),
                )


def _policy_length(config: Config, location: Location, networks: tuple[Network, ...]) -> int:
    """Return the length of the session policy of a directory; 0 where credentials have none."""
    entry = config.gateway.storage(location)
    role = (entry.directory_role_arn or entry.role_arn) if entry is not None else None
    if location.kind != "s3" or entry is None or role is None or entry.cloudflare_api_token is not None:
        return 0
    partition = partition_of(role, entry.region or "")
    return len(session_policy(location, networks, partition=partition, is_aws=entry.is_aws))


def _length_of(networks: tuple[Network, ...]) -> int:
    return sum(len(f'"{network}",') for network in networks)


def _directories(share: ShareEntry) -> Iterator[tuple[str, Location]]:
    """Iterate over the directories for which recipients of a share get credentials, with their names."""
    for schema in share.schemas:
        for table in schema.tables:
            if DIRECTORY in table.access_modes:
                for location in (table.location, *table.auxiliary_locations):
                    yield f"{share.name}.{schema.name}.{table.name}", location
        for volume in schema.volumes:
            yield f"the volume {share.name}.{schema.name}.{volume.name}", volume.location
