"""Buckets of S3: how they are read, and how their URLs are signed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from gateway import _native
from gateway.config import Config, Location
from gateway.config.storages.s3 import S3Entry
from gateway.config.storages.session_policy import DOMAIN, DOMAINS, partition_of
from gateway.storage.aws.credentials import S3Credentials, default_region
from gateway.storage.aws.identity import AwsIdentity
from gateway.storage.aws.roles import SESSION_SECONDS, TokenServices
from gateway.storage.aws.vendor import issued_session
from gateway.storage.refreshing_credentials import RefreshingCredentials
from gateway.storage.stores import Connections, Issue, RemoteStore, text_of
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential
from gateway.times import MILLISECONDS

_NONE = "none"


@dataclass(eq=False, repr=False)
class S3Store(RemoteStore[S3Entry, S3Credentials]):
    """A bucket of S3 in a region."""

    region: str
    options: Mapping[str, Any]
    """Of native storages."""

    @classmethod
    def of(cls, location: Location, entry: S3Entry, connections: Connections) -> Self:
        """Return the store of a bucket. Reads nothing but the region of the environment."""
        region = entry.region or default_region(connections.environment, entry.profile)
        options = {
            "region": region,
            "endpoint": s3_endpoint(region, entry),
            "path_style": entry.path_style,
            "requester_pays": entry.requester_pays,
            **connections.limits(entry),
        }
        native, applied = connections.native(
            ("s3", location.bucket, entry.prefix.url, *options.values()),
            lambda: _native.Storage.s3(location.bucket, **options),
        )
        return cls(native, applied, connections, entry, _keys(entry, connections, region), region, options)

    def _replace(self, keys: S3Credentials) -> None:
        self.native.replace_credentials(
            access_key_id=keys.access_key_id.reveal(),
            secret_access_key=keys.secret_access_key.reveal(),
            session_token=text_of(keys.session_token),
        )

    def signer(self, location: Location, _identity: str) -> _native.Signer:
        """Return a signer for the whole bucket."""
        entry, keys = self.entry, self.keys.unexpired() or self.keys.get()
        return _native.Signer.s3(
            location.bucket,
            region=self.region,
            endpoint=entry.public_endpoint or s3_endpoint(self.region, entry),
            path_style=entry.path_style,
            access_key_id=keys.access_key_id.reveal(),
            secret_access_key=keys.secret_access_key.reveal(),
            session_token=text_of(keys.session_token),
            credentials_expire_ms=_milliseconds(keys.expires),
            requester_pays=entry.requester_pays,
        )

    def signer_without_credentials(self, location: Location) -> _native.Signer:
        """Return a signer that raises StorageDenied when a URL is needed."""
        return _native.Signer.s3(
            location.bucket,
            region=_NONE,
            access_key_id=_NONE,
            secret_access_key=_NONE,
            credentials_expire_ms=0,
        )

    def issuer(self, *, now_ms: Callable[[], int]) -> Issue:
        """Return a function that issues sessions of the entry's role, or credentials of the provider."""
        # The role's own session cannot assume it for longer than an hour, if at all.
        keys = _keys(self.entry.without_role, self.connections, self.region)
        return lambda request: self._issue(request, keys.get(), now_ms)

    def list_with(self, credential: TemporaryCredential, key: str) -> None:
        """List a directory by a temporary credential. Blocks. Raises LogError."""
        fields = {name: secret.reveal() for name, secret in credential.fields.items()}
        native = _native.Storage.s3(
            credential.location.bucket,
            access_key_id=fields["accessKeyId"],
            secret_access_key=fields["secretAccessKey"],
            session_token=fields["sessionToken"],
            **self.options,
        )
        native.list_directories(key)

    def advice(self, config: Config, _files: Sequence[tuple[str, int]]) -> Iterator[str]:
        """Return advice about the sessions of roles."""
        seconds = self.entry.session_seconds or 0
        if self.entry.role_arn is not None and seconds > SESSION_SECONDS:
            yield (
                f"sessionSeconds is {seconds}: AWS allows {SESSION_SECONDS} where the role is "
                "assumed by the session of another role, as on EKS, ECS and EC2"
            )
        lifetime, current = config.pre_signed_url_timeout_seconds, self.keys.current
        if current is not None and current.expires is not None:
            left = (current.expires - datetime.now(UTC)).total_seconds()
            if left < lifetime:
                yield (
                    f"the identity's session ends in {left:.0f} s, and its URLs with it: shorter than "
                    f"preSignedUrlTimeoutSeconds, {lifetime} s"
                )

    def _issue(
        self, request: CredentialRequest, keys: S3Credentials, _now_ms: Callable[[], int]
    ) -> TemporaryCredential:
        services, environment = self.connections.shared(TokenServices), self.connections.environment
        return issued_session(self.entry, request, keys, environment, region=self.region, services=services)


def _keys(entry: S3Entry, connections: Connections, region: str) -> RefreshingCredentials[S3Credentials]:
    return connections.credentials(
        ("s3", region, entry.identity_values),
        lambda: AwsIdentity(entry, connections.environment, region).request,
    )


def s3_endpoint(region: str, entry: S3Entry) -> str | None:
    """Return the URL of S3: of the entry, or of AWS where its usual host is not meant; None for that host."""
    if entry.endpoint is not None:
        return entry.endpoint
    service = f"s3{'-fips' if entry.fips else ''}{'.dualstack' if entry.dual_stack else ''}"
    host = f"{service}.{region}.{DOMAINS.get(partition_of('', region), DOMAIN)}"
    return None if host == f"s3.{region}.{DOMAIN}" else f"https://{host}"


def _milliseconds(time: datetime | None) -> int | None:
    return int(time.timestamp() * MILLISECONDS) if time is not None else None
