"""Temporary credentials of AWS: the session of a role with a policy that permits one directory.

A session has no permission that its policy lacks. No request is repeated with a wider policy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.config.storages.s3 import S3Entry
from gateway.config.storages.session_policy import MAX_POLICY_CHARACTERS, partition_of, session_policy
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.aws.roles import TokenServices, role_session
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential

_LONGEST_NAME, _SHORTEST_NAME = 64, 2
_NOT_IN_A_NAME = re.compile(r"[^\w+=,.@-]", re.ASCII)


def issued_session(
    entry: S3Entry,
    request: CredentialRequest,
    keys: S3Credentials,
    environment: Mapping[str, str],
    *,
    region: str,
    services: TokenServices | None = None,
) -> TemporaryCredential:
    """Return a session of the entry's role that `keys` assume. Blocks. Raises CredentialsUnavailable."""
    role = entry.directory_role
    problem = entry.root_problem(request.location)
    if problem is not None or role is None:
        raise CredentialsUnavailable(f"{problem}", lasting=True)
    policy = session_policy(
        request.location, request.networks, partition=partition_of(role, region), is_aws=entry.is_aws
    )
    if len(policy) > MAX_POLICY_CHARACTERS:
        raise CredentialsUnavailable(
            f"the session policy has {len(policy)} characters, and AWS accepts {MAX_POLICY_CHARACTERS}: "
            "the path is too long, or the recipient has too many networks",
            lasting=True,
        )
    session = role_session(
        keys,
        environment,
        region,
        entry,
        role=role,
        name=session_name(request.recipient),
        seconds=request.seconds,
        policy=policy,
        services=services,
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


def session_name(recipient: str) -> str:
    """Return the name of a recipient's sessions, which logs of AWS show."""
    return _NOT_IN_A_NAME.sub("-", recipient)[:_LONGEST_NAME].ljust(_SHORTEST_NAME, "-")
