"""The session policies that temporary credentials of S3 need, checked before a recipient requests one.

A policy has the path of the directory and the networks of the recipient, and its length has a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.config.directory_access import LimitedRecipient, is_granted, limited_recipients
from gateway.config.errors import ConfigError
from gateway.config.roots import readable_directories
from gateway.storage.vending.aws import MAX_POLICY_CHARACTERS, partition_of, session_policy

if TYPE_CHECKING:
    from gateway.config import Config, Location
    from gateway.config.networks import Network


def check_session_policies(config: Config, file: str = "configuration") -> None:
    """Check that the policy of each directory fits for all configured recipients. Raises ConfigError."""
    limited = limited_recipients(config)
    longest: dict[str, LimitedRecipient | None] = {}
    for share, name, location in readable_directories(config):
        if share not in longest:
            granted = [one for one in limited if is_granted(one[0], share)]
            # The policy with the longest networks stands for those of all recipients.
            longest[share] = max(granted, key=lambda one: _length_of(one[1]), default=None)
        found = longest[share]
        length = _policy_length(config, location, found[1] if found else ())
        if length > MAX_POLICY_CHARACTERS:
            who = f" for the networks of the recipient {found[0].name}" if found else ""
            raise ConfigError(
                file,
                "shares",
                f"{name} cannot have temporary credentials: the session policy{who} has {length} characters, "
                f"and token services accept {MAX_POLICY_CHARACTERS}; shorten its path"
                + (", or merge the networks" if found else ""),
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
