"""Temporary credentials of AWS: the session of a role with a policy that permits one directory.

A session has no permission that its policy lacks. No request is repeated with a wider policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.config.directory_access import root_problem
from gateway.config.locations import Location
from gateway.config.networks import Network
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.aws.roles import RoleSession, TokenServices, role_session
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential

if TYPE_CHECKING:
    from gateway.config import StorageEntry

MAX_POLICY_CHARACTERS = 2048
_LONGEST_NAME, _SHORTEST_NAME = 64, 2
_PARTITION = re.compile(r"arn:(aws[a-z-]*):")
_NOT_IN_A_NAME = re.compile(r"[^\w+=,.@-]", re.ASCII)
_SPECIAL = re.compile(r"[$*?]")


@dataclass(frozen=True, slots=True)
class AwsVendor:
    """Issues sessions of an entry's role.

    Attributes:
        entry: with a role.
        environment: for the token service.
        region: of the token service.
        services: has the clients of the token service.

    """

    entry: StorageEntry
    environment: Mapping[str, str]
    region: str
    services: TokenServices | None = None

    def issue(self, request: CredentialRequest, keys: S3Credentials) -> TemporaryCredential:
        """Return a session that `keys` assume. Blocks. Raises CredentialsUnavailable."""
        entry = self.entry
        role = entry.directory_role_arn or entry.role_arn
        problem = root_problem(request.location, entry)
        if problem is not None or role is None:
            raise CredentialsUnavailable(f"{problem}", lasting=True)
        policy = session_policy(
            request.location, request.networks, partition=partition_of(role, self.region), is_aws=entry.is_aws
        )
        if len(policy) > MAX_POLICY_CHARACTERS:
            raise CredentialsUnavailable(
                f"the session policy has {len(policy)} characters, and AWS accepts {MAX_POLICY_CHARACTERS}: "
                "the path is too long, or the recipient has too many networks",
                lasting=True,
            )
        session = role_session(
            keys,
            self.environment,
            self.region,
            entry,
            RoleSession(role, session_name(request.recipient), request.seconds, policy),
            services=self.services,
        )
        if session.session_token is None or session.expires is None:
            raise CredentialsUnavailable("the token service answers without a session token", lasting=True)
        return TemporaryCredential(
            request.location,
            "awsTempCredentials",
            {
                "accessKeyId": session.access_key_id,
                "secretAccessKey": session.secret_access_key,
                "sessionToken": session.session_token,
            },
            int(session.expires.timestamp() * 1000),
            session.access_key_id.reveal(),
        )


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


def session_name(recipient: str) -> str:
    """Return the name of a recipient's sessions, which logs of AWS show."""
    return _NOT_IN_A_NAME.sub("-", recipient)[:_LONGEST_NAME].ljust(_SHORTEST_NAME, "-")
