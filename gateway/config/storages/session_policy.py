"""The session policies of temporary credentials of S3.

A policy has the path of the directory and the networks of the recipient, and its length has a limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from gateway.config.locations import Location
from gateway.config.networks import Network

MAX_POLICY_CHARACTERS = 2048
DOMAIN = "amazonaws.com"
DOMAINS = {"aws-cn": "amazonaws.com.cn", "aws-eusc": "amazonaws.eu"}
"""The domains of the partitions of AWS that have another one."""
AWS_HOSTS = tuple(f".{domain}" for domain in (DOMAIN, *DOMAINS.values(), "api.aws"))

_PARTITION = re.compile(r"arn:(aws[a-z-]*):")
SPECIAL = re.compile(r"[$*?]")


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
    """Return the statement for KMS. Its key may belong to an object or to the bucket.

    It has no condition on addresses: KMS is called by S3, from an address of AWS.
    """
    services = [f"s3.*.{domain}" for domain in (DOMAIN, DOMAINS.get(partition)) if domain]
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
    return SPECIAL.sub(lambda match: f"${{{match[0]}}}", key)


def partition_of(role: str, region: str) -> str:
    """Return the partition of ARNs: the role's, else the region's."""
    match = _PARTITION.match(role)
    if match is not None:
        return match[1]
    prefixes = {"cn-": "aws-cn", "us-gov-": "aws-us-gov", "eusc-": "aws-eusc"}
    return next((name for prefix, name in prefixes.items() if region.startswith(prefix)), "aws")
