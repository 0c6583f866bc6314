"""The identity of an entry on AWS: the credentials that it names, and the role that they assume."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.config.storages.s3 import S3Entry
from gateway.storage.aws.credentials import (
    SUPPORTED,
    S3Credentials,
    checked_region,
    default_credentials,
    needs_requests,
    profile_name,
)
from gateway.storage.aws.roles import (
    SESSION_NAME,
    SESSION_SECONDS,
    profile_credentials,
    role_of,
    role_session,
)
from gateway.storage.credentials import CredentialsUnavailable


class AwsIdentity:
    """Requests the credentials of an entry, or of the environment. Not thread-safe."""

    def __init__(self, entry: S3Entry, environment: Mapping[str, str], region: str) -> None:
        self._entry = entry
        self._environment = environment
        self._region = region
        self._is_file = False
        """The last keys come from a file."""

    def request(self) -> S3Credentials:
        """Return credentials. Blocks. Raises CredentialsUnavailable."""
        entry = self._entry
        if entry.region is None:
            checked_region(self._environment, entry.profile)
        base = self._base()
        if entry.role_arn is None:
            return base
        return role_session(
            base,
            self._environment,
            self._region,
            entry,
            role=entry.role_arn,
            name=entry.role_session_name or SESSION_NAME,
            seconds=entry.session_seconds or SESSION_SECONDS,
        )

    def _base(self) -> S3Credentials:
        entry = self._entry
        if entry.access_key_id and entry.secret_access_key:
            return S3Credentials(
                entry.access_key_id,
                entry.secret_access_key,
                entry.session_token,
                entry.session_expires,
                source="accessKeyId of the configuration",
            )
        profile = entry.profile
        credentials = default_credentials(self._environment, profile)
        if credentials is not None:
            self._is_file = credentials.file is not None
            return credentials
        if needs_requests(self._environment, profile):
            name = profile or profile_name(self._environment)
            return profile_credentials(self._environment, self._region, name, entry)
        if self._is_file:
            # It is being written, or is away: a role would be another identity.
            raise CredentialsUnavailable("the shared credentials file has no keys")
        if profile is not None:
            raise CredentialsUnavailable(f"the profile {profile} has no credentials", lasting=True)
        return self._role()

    def _role(self) -> S3Credentials:
        role = role_of(self._environment, self._region, self._entry)
        if role is None:
            raise CredentialsUnavailable(f"no keys were found; supported: {SUPPORTED}", lasting=True)
        try:
            return role.assume()
        except CredentialsUnavailable as reason:
            if role.name != "instance":
                raise
            # The instance role is the last resort: nothing says that this machine has one.
            raise CredentialsUnavailable(
                f"no keys were found ({reason}); supported: {SUPPORTED}", lasting=True
            ) from None
