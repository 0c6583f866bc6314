"""Credentials of AWS that are requested: they expire within hours.

In: the environment. Out: a `Role`, whose `assume` returns credentials with their expiry: of a web identity
(Kubernetes service accounts), of a container (ECS, EKS pod identity), else of the instance (EC2, IMDSv2); of
a profile with a role, a single sign-on or a credential process; of a role that other credentials assume.
botocore makes the requests. It is loaded by the first one, on the thread of the request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.config.storages.s3 import S3Entry
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.credentials import CredentialsUnavailable, check_header

SESSION_NAME = "delta-sharing-gateway"
SESSION_SECONDS = 3600
"""The default lifetime of a role's session, and the maximum of one that a role's session assumes."""

CLIENTS, CONNECTIONS = 32, 8
"""The number of clients that are kept, and of the connections of each."""
_CONTAINER = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")


@dataclass(frozen=True, slots=True)
class Role:
    """A role that can be assumed."""

    name: str
    """`web identity`, `container` or `instance`."""
    assume: Callable[[], S3Credentials]
    """Requests credentials. Blocks. Raises CredentialsUnavailable."""


def role_of(environment: Mapping[str, str], region: str, entry: S3Entry) -> Role | None:
    """Return the role that an environment names; None if the role of the instance is disabled, too."""
    if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environment.get("AWS_ROLE_ARN"):
        return Role("web identity", lambda: _web_identity(environment, region, entry))
    if any(environment.get(name) for name in _CONTAINER):
        return Role("container", lambda: _container(environment))
    if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    return Role("instance", lambda: _instance(environment))


def role_session(
    base: S3Credentials,
    environment: Mapping[str, str],
    region: str,
    entry: S3Entry,
    *,
    role: str,
    name: str,
    seconds: int,
    policy: str | None = None,
    services: TokenServices | None = None,
) -> S3Credentials:
    """Assume a role with other credentials. Blocks. Raises CredentialsUnavailable.

    `policy` limits the session, in JSON. `services` has clients for many requests; None for one request.
    """
    from gateway.storage.aws.clients import keys_of, requested  # noqa: PLC0415

    request: dict[str, Any] = {"RoleArn": role, "RoleSessionName": name, "DurationSeconds": seconds}
    if entry.external_id is not None:
        request["ExternalId"] = entry.external_id
    if policy is not None:
        request["Policy"] = policy

    def assume() -> S3Credentials:
        client = (services or TokenServices()).client(environment, region, entry, base)
        answer = client.assume_role(**request)
        return keys_of(answer["Credentials"], f"the role {role}, assumed by {base.source}")

    return requested("the token service", assume)


def profile_credentials(
    environment: Mapping[str, str], region: str, profile: str, entry: S3Entry
) -> S3Credentials:
    """Request the credentials of a profile. Blocks. Raises CredentialsUnavailable."""
    from gateway.storage.aws.clients import requested  # noqa: PLC0415
    from gateway.storage.aws.profiles import request_credentials  # noqa: PLC0415

    return requested(
        f"the profile {profile}",
        lambda: request_credentials(_session(environment, region, entry, profile), environment, profile),
    )


def _web_identity(environment: Mapping[str, str], region: str, entry: S3Entry) -> S3Credentials:
    from gateway.storage.aws.clients import keys_of, requested  # noqa: PLC0415

    role = environment["AWS_ROLE_ARN"]
    request = {
        "RoleArn": role,
        "RoleSessionName": environment.get("AWS_ROLE_SESSION_NAME") or SESSION_NAME,
        # Read each time: Kubernetes replaces it.
        "WebIdentityToken": _file(environment["AWS_WEB_IDENTITY_TOKEN_FILE"], "AWS_WEB_IDENTITY_TOKEN_FILE"),
    }

    def assume() -> S3Credentials:
        answer = _token_service(environment, region, entry, None).assume_role_with_web_identity(**request)
        return keys_of(answer["Credentials"], f"the web identity of the role {role}")

    return requested("the token service", assume)


def _container(environment: Mapping[str, str]) -> S3Credentials:
    from gateway.storage.aws.metadata import container_credentials  # noqa: PLC0415

    token_file = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    if token_file:
        token = _file(token_file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    elif token:
        check_header(token.replace(" ", ""), "the variable AWS_CONTAINER_AUTHORIZATION_TOKEN")
    return container_credentials(environment, token)


def _instance(environment: Mapping[str, str]) -> S3Credentials:
    from gateway.storage.aws.metadata import instance_credentials  # noqa: PLC0415

    return instance_credentials(environment)


class TokenServices:
    """Clients of the token service, each for many requests. Thread-safe.

    The session and the client of botocore take more CPU time than a hundred requests.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: OrderedDict[tuple[object, ...], Any] = OrderedDict()

    def client(self, environment: Mapping[str, str], region: str, entry: S3Entry, keys: S3Credentials) -> Any:
        """Return the client that signs with keys. Raises errors of botocore."""
        key = (keys, region, entry.sts_endpoint, entry.dual_stack, entry.fips)
        with self._lock:
            client = self._clients.pop(key, None)
            if client is None:
                client = _token_service(environment, region, entry, keys, CONNECTIONS)
            self._clients[key] = client
            # Clients of keys that were renewed are used no more.
            while len(self._clients) > CLIENTS:
                self._clients.popitem(last=False)
        return client


def _token_service(
    environment: Mapping[str, str],
    region: str,
    entry: S3Entry,
    keys: S3Credentials | None,
    connections: int = 1,
) -> Any:
    """Return a client of the token service; without keys its requests are not signed."""
    from botocore import UNSIGNED  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    session = _session(environment, region, entry, connections=connections)
    if keys is None:
        return session.create_client("sts", config=Config(signature_version=UNSIGNED))
    return session.create_client(
        "sts",
        aws_access_key_id=keys.access_key_id.reveal(),
        aws_secret_access_key=keys.secret_access_key.reveal(),
        aws_session_token=keys.session_token.reveal() if keys.session_token else None,
    )


def _session(
    environment: Mapping[str, str],
    region: str,
    entry: S3Entry,
    profile: str | None = None,
    connections: int = 1,
) -> Any:
    from gateway.storage.aws.clients import Session  # noqa: PLC0415

    return Session(
        environment,
        region,
        profile=profile,
        sts_endpoint=entry.sts_endpoint,
        dual_stack=entry.dual_stack,
        fips=entry.fips,
        connections=connections,
    )


def _file(path: str, variable: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError):
        raise CredentialsUnavailable(f"the file that {variable} names cannot be read") from None
