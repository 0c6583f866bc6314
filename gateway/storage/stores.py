"""Stores of each kind: how a location is read and how its URLs are signed."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar
from urllib.parse import quote

from gateway import _native
from gateway.config.secret import Secret
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.azure.credentials import AzureCredentials
from gateway.storage.azure.identity import account_url
from gateway.storage.credentials import Credentials
from gateway.storage.gcs.credentials import GcsCredentials
from gateway.storage.refreshing_credentials import RefreshingCredentials
from gateway.times import MILLISECONDS

if TYPE_CHECKING:
    from gateway.config import Location, StorageEntry

C = TypeVar("C", bound=Credentials)

DEFAULT_REMOTE_SIGNATURES = 1000
GOOGLE = "https://storage.googleapis.com"


class Store(Protocol):
    """A kind of store: how its locations are read and signed."""

    native: _native.Storage

    @property
    def keys(self) -> RefreshingCredentials[Credentials] | None:
        """The credentials of reading and signing; None where there are none to renew."""

    def renew(self) -> object:
        """Renew the credentials of reading; return what signers are made of. Blocks."""

    def signer(self, location: Location, identity: str) -> _native.Signer:
        """Return a signer for a location, with the current credentials."""


class Applied:
    """The credentials that a native storage has. The stores of several configurations may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credentials: object = None

    def replace(self, credentials: object, replace: Callable[[], None]) -> None:
        """Call `replace`, unless the native storage has these credentials."""
        if credentials is not self._credentials:
            with self._lock:
                replace()
                self._credentials = credentials


class LocalStore:
    """The local file system; its URLs are those of the gateway's files route."""

    keys = None

    def __init__(self, native: _native.Storage, base_url: str, url_key: bytes) -> None:
        self.native = native
        self._base_url = base_url
        self._url_key = url_key

    def renew(self) -> object:
        """Return the URL key; there is nothing to renew."""
        return self._url_key

    def signer(self, _location: Location, identity: str) -> _native.Signer:
        """Return a signer of URLs that name a root by its id."""
        return _native.Signer.local(f"{self._base_url}/{quote(identity, safe='')}", key=self._url_key)


@dataclass(eq=False, repr=False)
class _RemoteStore(ABC, Generic[C]):
    """A bucket or container, as an entry of the configuration describes it."""

    native: _native.Storage
    applied: Applied
    entry: StorageEntry | None
    keys: RefreshingCredentials[C]

    def renew(self) -> C:
        """Apply valid credentials to the native storage and return them."""
        keys = self.keys.get()
        self.applied.replace(keys, lambda: self._replace(keys))
        return keys

    @abstractmethod
    def _replace(self, keys: C) -> None: ...


@dataclass(eq=False, repr=False)
class S3Store(_RemoteStore[S3Credentials]):
    """A bucket of S3 in a region."""

    region: str

    def _replace(self, keys: S3Credentials) -> None:
        self.native.replace_credentials(
            access_key_id=keys.access_key_id.reveal(),
            secret_access_key=keys.secret_access_key.reveal(),
            session_token=_text(keys.session_token),
        )

    def signer(self, location: Location, _identity: str) -> _native.Signer:
        """Return a signer for the whole bucket."""
        entry, keys = self.entry, self.keys.unexpired() or self.keys.get()
        return _native.Signer.s3(
            location.bucket,
            region=self.region,
            endpoint=(entry.public_endpoint if entry else None) or s3_endpoint(self.region, entry),
            path_style=entry.path_style if entry else False,
            access_key_id=keys.access_key_id.reveal(),
            secret_access_key=keys.secret_access_key.reveal(),
            session_token=_text(keys.session_token),
            credentials_expire_ms=_milliseconds(keys.expires),
            requester_pays=entry.requester_pays if entry else False,
        )


class AzureStore(_RemoteStore[AzureCredentials]):
    """A container of Azure."""

    def _replace(self, keys: AzureCredentials) -> None:
        if keys.account_key is not None:
            self.native.replace_account_key(keys.account_key.reveal())
        elif keys.token is not None:
            self.native.replace_bearer_token(keys.token.reveal())

    def signer(self, location: Location, _identity: str) -> _native.Signer:
        """Return a signer for the whole container."""
        entry, keys = self.entry, self.keys.unexpired() or self.keys.get()
        public = entry.public_endpoint if entry else None
        return _native.Signer.azure(
            location.account,
            location.bucket,
            endpoint=public or account_url(entry, location),
            account_key=_text(keys.account_key),
            delegation_key=keys.delegation_key,
        )


class GcsStore(_RemoteStore[GcsCredentials]):
    """A bucket of Google."""

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
        endpoint = (entry.public_endpoint or entry.endpoint) if entry else None
        user_project = entry.user_project if entry else None
        if keys.access_id is not None:
            return _native.Signer.gcs(
                location.bucket,
                endpoint=endpoint,
                access_id=keys.access_id.reveal(),
                secret=_text(keys.secret),
                user_project=user_project,
            )
        if keys.email is None:
            error = _native.StorageDenied("the provider's identity cannot sign URLs; the provider must act")
            error.detail = (
                f"{keys.source} can read, but not sign; give an HMAC key (accessKeyId), the file of a "
                "service account, or `impersonate` with a service account"
            )
            raise error
        if keys.private_key is not None:
            return _native.Signer.gcs(
                location.bucket,
                endpoint=endpoint,
                email=keys.email,
                private_key=keys.private_key.reveal(),
                user_project=user_project,
            )
        return _native.Signer.gcs(
            location.bucket,
            endpoint=endpoint,
            email=keys.email,
            access_token=_text(keys.signing_token),
            iam_endpoint=keys.iam_endpoint,
            user_project=user_project,
            max_remote_signatures=entry.max_remote_signatures if entry else DEFAULT_REMOTE_SIGNATURES,
        )


def signer_without_credentials(location: Location) -> _native.Signer:
    """Return a signer that raises StorageDenied when a URL is needed."""
    name = "none"
    if location.kind == "azure":
        return _native.Signer.azure(
            location.account, location.bucket, account_key="AA==", credentials_expire_ms=0
        )
    if location.kind == "gs":
        return _native.Signer.gcs(location.bucket, access_id=name, secret=name, credentials_expire_ms=0)
    return _native.Signer.s3(
        location.bucket,
        region=name,
        access_key_id=name,
        secret_access_key=name,
        credentials_expire_ms=0,
    )


def s3_endpoint(region: str, entry: StorageEntry | None) -> str | None:
    """Return the URL of S3: of the entry, or of AWS where its usual host is not meant; None for that host."""
    if entry is not None and entry.endpoint is not None:
        return entry.endpoint
    dual_stack, fips = (entry.dual_stack, entry.fips) if entry else (False, False)
    is_china = region.startswith("cn-")
    if not (dual_stack or fips or is_china):
        return None
    service = f"s3{'-fips' if fips else ''}{'.dualstack' if dual_stack else ''}"
    return f"https://{service}.{region}.amazonaws.com{'.cn' if is_china else ''}"


def _text(secret: Secret | None) -> str | None:
    return secret.reveal() if secret is not None else None


def _milliseconds(time: datetime | None) -> int | None:
    return int(time.timestamp() * MILLISECONDS) if time is not None else None
