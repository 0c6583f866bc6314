"""The session policies of temporary credentials of S3, and the directories for which they are too long.

A policy has the path of the directory and the networks of the recipient, and its length has a limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gateway.config.directory_access import LimitedRecipient, is_granted, limited_recipients
from gateway.config.errors import ConfigError
from gateway.config.locations import Location
from gateway.config.networks import Network
from gateway.config.roots import DIRECTORY, Holder
from gateway.config.sections import Config
from gateway.config.shares import ShareEntry

MAX_POLICY_CHARACTERS = 2048

_PARTITION = re.compile(r"arn:(aws[a-z-]*):")
_SPECIAL = re.compile(r"[$*?]")


def check_session_policies(config: Config, file: str = "configuration") -> None:
    """Check that the policy of each directory fits for all configured recipients. Raises ConfigError."""
    for _, problem in session_policy_problems(config, config.shares):
        raise ConfigError(file, "shares", problem)


def session_policy_problems(config: Config, shares: Iterable[ShareEntry]) -> Iterator[tuple[Holder, str]]:
    """Iterate over tables and volumes with too long a policy for a configured recipient, with the reason."""
    limited = limited_recipients(config)
    for share in shares:
        granted = [one for one in limited if is_granted(one[0], share.name)]
        # The policy with the longest networks stands for those of all recipients.
        longest = max(granted, key=lambda one: _length_of(one[1]), default=None)
        for schema in share.schemas:
            for table in schema.tables:
                if DIRECTORY in table.access_modes:
                    name = f"{share.name}.{schema.name}.{table.name}"
                    for location in (table.location, *table.auxiliary_locations):
                        for problem in _problems(config, location, longest):
                            yield (False, name), f"{name} {problem}"
            for volume in schema.volumes:
                name = f"{share.name}.{schema.name}.{volume.name}"
                for problem in _problems(config, volume.location, longest):
                    yield (True, name), f"the volume {name} {problem}"


def session_policy(location: Location, networks: Sequence[Network], *, partition: str, is_aws: bool) -> str:
    """Return the policy that permits to list a directory and to read its files, in JSON.

    Of AWS it also permits to decrypt objects with KMS, which policies of other stores cannot name.
    """
    bucket = f"arn:{partition}:s3:::{location.bucket}"
    below = f"{escaped(location.key)}/*"
    conditions: dict[str, Any] = {}
    if networks:
        conditions["IpAddress"] = {"aws:SourceIp": [str(network) for network in networks]}
    # A listing by the key without its slash would show the names of neighbours that begin with it.
    listing = {"StringLike": {"s3:prefix": below}} | conditions
    reading: dict[str, Any] = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{bucket}/{below}"}
    statements = [
        reading | ({"Condition": conditions} if conditions else {}),
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": bucket, "Condition": listing},
    ]
    if is_aws:
        statements.append(_decryption(bucket, below, partition))
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def _decryption(bucket: str, below: str, partition: str) -> dict[str, Any]:
    """Return the statement for KMS, whose key may be that of an object or of the bucket.

    It has no condition on addresses: KMS is called by S3, from an address of AWS.
    """
    services = ["s3.*.amazonaws.com", *(["s3.*.amazonaws.com.cn"] if partition == "aws-cn" else [])]
    return {
        "Effect": "Allow",
        "Action": "kms:Decrypt",
        "Resource": "*",
        "Condition": {
            "StringLike": {
                "kms:ViaService": services,
                "kms:EncryptionContext:aws:s3:arn": [f"{bucket}/{below}", bucket],
            }
        },
    }


def escaped(key: str) -> str:
    """Return a key for a policy, in which `*` and `?` are patterns and `$` may begin a variable."""
    return _SPECIAL.sub(lambda match: f"${{{match[0]}}}", key)


def partition_of(role: str, region: str) -> str:
    """Return the partition of ARNs: that of the role, else that of the region."""
    match = _PARTITION.match(role)
    if match is not None:
        return match[1]
    prefixes = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
    return next((name for prefix, name in prefixes.items() if region.startswith(prefix)), "aws")


def _problems(config: Config, location: Location, longest: LimitedRecipient | None) -> Iterator[str]:
    length = _policy_length(config, location, longest[1] if longest else ())
    if length > MAX_POLICY_CHARACTERS:
        who = f" for the networks of the recipient {longest[0].name}" if longest else ""
        yield (
            f"cannot have temporary credentials: the session policy{who} has {length} characters, and token "
            f"services accept {MAX_POLICY_CHARACTERS}; shorten its path"
            + (", or merge the networks" if longest else "")
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
