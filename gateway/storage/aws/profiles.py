"""The credentials of a profile: a role with its source, a single sign-on, a credential process, or keys."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.credentials import (
    AssumeRoleProvider,
    CanonicalNameCredentialSourcer,
    ContainerProvider,
    CredentialResolver,
    EnvProvider,
    InstanceMetadataProvider,
    ProcessProvider,
    ProfileProviderBuilder,
)
from botocore.utils import JSONFileCache

from gateway.config.secret import Secret
from gateway.storage.aws.clients import PROCESS_SECONDS, Session
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.aws.metadata import InstanceService, container_fetcher
from gateway.storage.credentials import CredentialsUnavailable, check_header


class _Process(subprocess.Popen[bytes]):
    """A credential process that is ended when it hangs."""

    def communicate(
        self,
        input: bytes | None = None,  # noqa: A002 - the name of the base class
        timeout: float | None = PROCESS_SECONDS,
    ) -> tuple[bytes, bytes]:
        try:
            return super().communicate(input, timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            super().communicate()
            raise


class _Providers(ProfileProviderBuilder):  # type: ignore[misc]
    """The sources that a profile may name."""

    def _create_process_provider(self, profile_name: str) -> ProcessProvider:
        return ProcessProvider(
            profile_name=profile_name, load_config=lambda: self._session.full_config, popen=_Process
        )


def request_credentials(session: Session, environment: Mapping[str, str], profile: str) -> S3Credentials:
    """Request the credentials of a profile. Blocks. Raises CredentialsUnavailable and errors of botocore."""
    region = session.get_config_variable("region")
    sign_ons = JSONFileCache(str(Path(environment.get("HOME", "/nonexistent"), ".aws/sso/cache")))
    builder = _Providers(session, cache={}, region_name=region, sso_token_cache=sign_ons)
    sources = [
        EnvProvider(dict(environment)),
        ContainerProvider(dict(environment), container_fetcher()),
        InstanceMetadataProvider(InstanceService(environment)),
    ]

    def client(service: str, **options: Any) -> Any:
        return session.create_client(service, **({"region_name": region} | options))

    role = AssumeRoleProvider(
        load_config=lambda: session.full_config,
        client_creator=client,
        cache={},
        profile_name=profile,
        prompter=_no_prompt,
        credential_sourcer=CanonicalNameCredentialSourcer(sources),
        profile_provider_builder=builder,
    )
    resolver = CredentialResolver([role, *builder.providers(profile_name=profile, disable_env_vars=True)])
    credentials = resolver.load_credentials()
    if credentials is None:
        raise CredentialsUnavailable(f"the profile {profile} has no credentials", lasting=True)
    frozen = credentials.get_frozen_credentials()
    for text, name in ((frozen.access_key, "the access key"), (frozen.token or "", "the session token")):
        check_header(text, f"{name} of the profile {profile}")
    expires: datetime | None = getattr(credentials, "_expiry_time", None)
    return S3Credentials(
        Secret(frozen.access_key),
        Secret(frozen.secret_key),
        Secret(frozen.token) if frozen.token else None,
        expires.astimezone(UTC) if expires else None,
        source=f"the profile {profile} ({credentials.method})",
    )


def _no_prompt(_text: str) -> str:
    raise CredentialsUnavailable(
        "the profile's role asks for a code of a device (mfa_serial), which a server cannot give",
        lasting=True,
    )
