"""Buckets of Google: how they are read, and how their URLs are signed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from gateway import _native
from gateway.config import Config, Location
from gateway.config.storages.gcs import GcsEntry
from gateway.storage.gcs.credentials import GcsCredentials
from gateway.storage.gcs.identity import GcsIdentity
from gateway.storage.gcs.vendor import issued_token
from gateway.storage.stores import Connections, Issue, RemoteStore, text_of
from gateway.storage.vending.credential import TemporaryCredential

GOOGLE = "https://storage.googleapis.com"
_NONE = "none"
RSA_SECONDS = 0.5e-3
"""The CPU time of one signature by a service account's key."""
WAY_OUT = "give an HMAC key (accessKeyId and secretAccessKey), or directory access"


class GcsStore(RemoteStore[GcsEntry, GcsCredentials]):
    """A bucket of Google."""

    signs_by_calls: ClassVar[bool] = True

    @classmethod
    def of(cls, location: Location, entry: GcsEntry, connections: Connections) -> GcsStore:
        """Return the store of a bucket. Reads nothing."""
        keys = connections.credentials(
            ("gs", entry.identity_values), lambda: GcsIdentity(entry, connections.environment).request
        )
        make: Callable[..., _native.Storage] = _native.Storage.gcs
        options: dict[str, Any] = {"endpoint": entry.endpoint, "user_project": entry.user_project}
        if entry.access_key_id is not None:
            # Google's interface for clients of S3 takes HMAC keys.
            make = _native.Storage.s3
            options = {"region": "auto", "endpoint": entry.endpoint or GOOGLE, "path_style": True}
        options |= connections.limits(entry)
        native, applied = connections.native(
            ("gs", location.bucket, entry.prefix.url, *options.values()),
            lambda: make(location.bucket, **options),
        )
        return cls(native, applied, connections, entry, keys)

    def _replace(self, keys: GcsCredentials) -> None:
        if keys.access_id is not None and keys.secret is not None:
            self.native.replace_credentials(
                access_key_id=keys.access_id.reveal(), secret_access_key=keys.secret.reveal()
            )
        elif keys.token is not None:
            self.native.replace_bearer_token(keys.token.reveal())

    def signer(self, location: Location, _identity: str) -> _native.Signer:
        """Return a signer for the whole bucket. Raises StorageDenied for an identity that can only read."""
        entry, keys = self.entry, self.keys.unexpired() or self.keys.get()
        signer = partial(
            _native.Signer.gcs,
            location.bucket,
            endpoint=entry.public_endpoint or entry.endpoint,
            user_project=entry.user_project,
        )
        if keys.access_id is not None:
            return signer(access_id=keys.access_id.reveal(), secret=text_of(keys.secret))
        if keys.email is None:
            error = _native.StorageDenied("the provider's identity cannot sign URLs; the provider must act")
            error.detail = (
                f"{keys.source} can read, but not sign; give an HMAC key (accessKeyId), the file of a "
                "service account, or `impersonate` with a service account"
            )
            raise error
        if keys.private_key is not None:
            return signer(email=keys.email, private_key=keys.private_key.reveal())
        return signer(
            email=keys.email,
            access_token=text_of(keys.signing_token),
            iam_endpoint=keys.iam_endpoint,
            max_remote_signatures=entry.max_remote_signatures,
        )

    def signer_without_credentials(self, location: Location) -> _native.Signer:
        """Return a signer that raises StorageDenied when a URL is needed."""
        return _native.Signer.gcs(location.bucket, access_id=_NONE, secret=_NONE, credentials_expire_ms=0)

    def issuer(self, *, now_ms: Callable[[], int]) -> Issue:  # noqa: ARG002 - Google's own time
        """Return a function that exchanges tokens for tokens of a directory."""
        keys = self.connections.credentials(
            ("gs for exchange", self.entry.identity_values),
            lambda: GcsIdentity(self.entry, self.connections.environment, for_exchange=True).request,
        )
        return lambda request: issued_token(self.entry, request, keys.get())

    def list_with(self, credential: TemporaryCredential, key: str) -> None:
        """List a directory by a temporary credential. Blocks. Raises LogError."""
        native = _native.Storage.gcs(
            credential.location.bucket,
            endpoint=self.entry.endpoint,
            user_project=self.entry.user_project,
            **self.connections.limits(self.entry),
        )
        native.replace_bearer_token(credential.fields["oauthToken"].reveal())
        native.list_directories(key)

    def advice(self, config: Config, files: Sequence[tuple[str, int]]) -> Iterator[str]:
        """Return advice about the signing of many files."""
        limit_seconds, most = config.request_timeout_seconds, self.entry.max_remote_signatures
        credentials = self.keys.current
        if credentials is None:
            return
        if credentials.private_key is not None and limit_seconds:
            for name, count in files:
                seconds = count * RSA_SECONDS
                if seconds > limit_seconds:
                    yield (
                        f"{name}: signing its {count} files by the service account's key takes "
                        f"{seconds:.0f} s of CPU, more than requestTimeoutSeconds, {limit_seconds} s; "
                        f"{WAY_OUT}"
                    )
        elif credentials.private_key is None and credentials.email is not None:
            for name, count in files:
                if count > most:
                    yield (
                        f"{name}: no key is on this machine, and its {count} files are more than "
                        f"maxRemoteSignatures, {most}; {WAY_OUT}"
                    )
