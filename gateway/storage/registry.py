"""The storages of a configuration.

In: a location. Out: its `Store` for reading and signing, and its `StorageCalls`, which bound the blocking
calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gateway import _native
from gateway.storage.aws.credentials import default_region
from gateway.storage.aws.identity import AwsIdentity
from gateway.storage.aws.roles import TokenServices
from gateway.storage.azure.credentials import AzureCredentials
from gateway.storage.azure.identity import AzureIdentity, account_url
from gateway.storage.breaker import State
from gateway.storage.calls import StorageCalls
from gateway.storage.credentials import Credentials, CredentialsFailed, CredentialsUnavailable
from gateway.storage.gcs.identity import GcsIdentity
from gateway.storage.mounts import mount_of, mount_points
from gateway.storage.refreshing_credentials import RefreshingCredentials
from gateway.storage.stores import (
    GOOGLE,
    Applied,
    AzureStore,
    GcsStore,
    LocalStore,
    S3Store,
    Store,
    s3_endpoint,
)
from gateway.storage.vending.aws import AwsVendor
from gateway.storage.vending.azure import AzureVendor
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential
from gateway.storage.vending.google import GoogleVendor
from gateway.storage.vending.r2 import R2Vendor

if TYPE_CHECKING:
    from gateway.config import Config, Location, StorageEntry

C = TypeVar("C", bound=Credentials)
Observe = Callable[[str, str, float], None]
NEVER_SECONDS = 24 * 3600
"""The time limit of a listing where requests have none."""
_MOUNT = "file://"
"""Begins the names of mounts."""
NO_IDENTITY = frozenset(
    {
        "prefix",
        "endpoint",
        "public_endpoint",
        "region",
        "timeout_seconds",
        "retry_seconds",
        "path_style",
        "requester_pays",
        "account",
        "user_project",
        "directory_role_arn",
        "cloudflare_api_token",
        "hierarchical_namespace",
        "max_remote_signatures",
    }
)
"""The keys of an entry that do not decide about its credentials."""


class Storages:
    """All storages of one configuration, made at their first use."""

    def __init__(
        self,
        config: Config,
        *,
        url_key: bytes,
        environment: Mapping[str, str],
        previous: Storages | None = None,
    ) -> None:
        """`url_key` signs URLs of local files."""
        self._config = config
        self._url_key = url_key
        self._environment = environment
        self._stores: dict[tuple[str, str], Store] = {}
        self._keys: dict[tuple[object, ...], RefreshingCredentials[Any]] = {}
        self._earlier_keys: dict[tuple[object, ...], RefreshingCredentials[Any]] = {}
        """Of the previous configuration. A service that fails at a reload ends no session."""
        self._calls: dict[str, StorageCalls] = {}
        self._names: dict[Location, str] = {}
        self._natives: dict[tuple[object, ...], tuple[_native.Storage, Applied]] = {}
        self._token_services = TokenServices()
        self._observe: Observe = lambda _storage, _outcome, _seconds: None
        if previous is not None:
            self._take_over(previous)

    def store(self, location: Location) -> Store:
        """Return the store of a location. Reads nothing."""
        entry = self.entry(location)
        key = (location.bucket_url, _prefix(entry))
        if key not in self._stores:
            self._stores[key] = self._make(location, entry)
        return self._stores[key]

    def issuer(
        self, location: Location, *, now_ms: Callable[[], int]
    ) -> Callable[[CredentialRequest], TemporaryCredential]:
        """Return a function that issues temporary credentials below a location.

        It blocks, and raises CredentialsUnavailable and LogError.
        """
        entry = self.entry(location)
        if location.kind == "azure":
            keys: RefreshingCredentials[Any] | None = self.store(location).keys
            vendor: Any = AzureVendor(entry, now_ms)
        elif location.kind == "gs":
            keys = self._shared(
                ("gs for exchange", _identity(entry)),
                lambda: GcsIdentity(entry, self._environment, for_exchange=True).request,
            )
            vendor = GoogleVendor(entry)
        elif location.kind == "s3" and entry is not None:
            region = self._region(entry)
            # The role's own session cannot assume it for longer than an hour, if at all.
            base = replace(
                entry, role_arn=None, external_id=None, role_session_name=None, session_seconds=None
            )
            keys = self._shared(
                ("s3", region, _identity(base)), lambda: AwsIdentity(base, self._environment, region).request
            )
            is_r2 = entry.cloudflare_api_token is not None
            vendor = (
                R2Vendor(entry, now_ms)
                if is_r2
                else AwsVendor(entry, self._environment, region, self._token_services)
            )
        else:
            keys, vendor = None, None

        def issue(request: CredentialRequest) -> TemporaryCredential:
            if keys is None:
                raise CredentialsUnavailable("the storage issues no credentials", lasting=True)
            issued: TemporaryCredential = vendor.issue(request, keys.get())
            return issued

        return issue

    def reader(self, credential: TemporaryCredential) -> _native.Storage:
        """Return a storage that reads by a temporary credential of S3, R2 or Google."""
        location, entry = credential.location, self.entry(credential.location)
        fields = {name: secret.reveal() for name, secret in credential.fields.items()}
        if location.kind == "gs":
            native = _native.Storage.gcs(
                location.bucket,
                endpoint=entry.endpoint if entry else None,
                user_project=entry.user_project if entry else None,
                **self._limits(entry),
            )
            native.replace_bearer_token(fields["oauthToken"])
            return native
        region = self._region(entry)
        return _native.Storage.s3(
            location.bucket,
            region=region,
            endpoint=s3_endpoint(region, entry),
            path_style=entry.path_style if entry else False,
            requester_pays=entry.requester_pays if entry else False,
            access_key_id=fields["accessKeyId"],
            secret_access_key=fields["secretAccessKey"],
            session_token=fields["sessionToken"],
            **self._limits(entry),
        )

    def entry(self, location: Location) -> StorageEntry | None:
        """Return the entry of a location."""
        return self._config.gateway.storage(location)

    def calls(self, location: Location) -> StorageCalls:
        """Return the bounded calls of a location's bucket, or of the mount that holds its directory."""
        name = self._name(location)
        if name not in self._calls:
            self._calls[name] = StorageCalls(
                name,
                self._config.gateway.storage_faults,
                now_seconds=time.monotonic,
                is_fault=lambda error: isinstance(error, _native.StorageUnavailable),
                is_unsent=lambda error: isinstance(error, CredentialsFailed),
                call_seconds=self._config.request_timeout_seconds or None,
                observe=self._observe,
            )
        return self._calls[name]

    def breakers(self) -> Iterator[tuple[str, bool]]:
        """Iterate over the used storages, with whether their circuit breaker is open."""
        for name, calls in self._calls.items():
            yield name, calls.breaker.state is not State.CLOSED

    def used(self) -> list[StorageCalls]:
        """Return the calls of the used storages."""
        return list(self._calls.values())

    def expiries(self) -> Iterator[tuple[str, datetime]]:
        """Iterate over the storages whose credentials expire, with the time."""
        for (bucket, prefix), store in self._stores.items():
            current = store.keys.current if store.keys else None
            if current is not None and current.expires is not None:
                yield prefix or f"{bucket}/", current.expires

    def due(self) -> list[Store]:
        """Return the stores whose credentials are due for renewal, before a request needs them."""
        keyed = [(store, store.keys) for store in self._stores.values()]
        return [
            store
            for store, keys in keyed
            if keys and (keys.current is not None or keys.is_missing) and not keys.is_valid
        ]

    def renew_due(self) -> None:
        """Renew the credentials that are due, each identity on a thread of its own. Never blocks."""
        stores: dict[int, list[Store]] = {}
        for store in self.due():
            stores.setdefault(id(store.keys), []).append(store)
        for sharing in stores.values():
            if sharing[0].keys is not None:
                sharing[0].keys.start(partial(_renew, sharing))

    def close(self) -> None:
        """Stop the threads; running calls end by themselves."""
        for calls in self._calls.values():
            calls.close()

    def forget_calls(self, locations: Iterable[Location]) -> None:
        """Forget the calls of storages that have none of the locations.

        Their circuit breakers would stay open, as no call closes them.
        """
        unused, mounts = set(self._calls), mount_points()
        for location in locations:
            if not unused:
                break
            # Of thousands of local tables, those below no mount of `unused` need no search for their own one.
            known = self._names.get(location)
            if known is not None:
                unused.discard(known)
            elif location.kind != "file" or any(_may_hold(name, location) for name in unused):
                unused.discard(name_of(location, mounts))
        for name in unused:
            del self._calls[name]

    def forget_location(self, location: Location) -> None:
        """Forget which storage a location has: that of a table that is gone."""
        self._names.pop(location, None)

    def observe_by(self, observe: Observe) -> None:
        """Report storage, outcome (`answered`, `failed`, `refused`) and seconds of each call."""
        self._observe = observe
        for calls in self._calls.values():
            calls.observe = observe

    def _take_over(self, previous: Storages) -> None:
        used = {id(store.native) for store in previous._stores.values()}
        self._natives = {key: native for key, native in previous._natives.items() if id(native[0]) in used}
        if previous._environment == self._environment:
            self._token_services = previous._token_services
            self._earlier_keys = {key: keys for key, keys in previous._keys.items() if _can_end(keys)}
        if previous._config.gateway.storage_faults == self._config.gateway.storage_faults and (
            previous._config.request_timeout_seconds == self._config.request_timeout_seconds
        ):
            self._calls = dict(previous._calls)

    def _name(self, location: Location) -> str:
        if location not in self._names:
            self._names[location] = name_of(location)
        return self._names[location]

    def _make(self, location: Location, entry: StorageEntry | None) -> Store:
        if location.kind == "file":
            native, _ = self._native(("file",), _native.Storage.local)
            return LocalStore(native, f"{self._config.endpoint_url}/files", self._url_key)
        if location.kind == "azure":
            return self._azure(location, entry)
        if location.kind == "gs":
            return self._gcs(location, entry)
        return self._s3(location, entry)

    def _s3(self, location: Location, entry: StorageEntry | None) -> S3Store:
        region = self._region(entry)
        keys = self._shared(
            ("s3", region, _identity(entry)), lambda: AwsIdentity(entry, self._environment, region).request
        )
        options = {
            "region": region,
            "endpoint": s3_endpoint(region, entry),
            "path_style": entry.path_style if entry else False,
            "requester_pays": entry.requester_pays if entry else False,
            **self._limits(entry),
        }
        native, applied = self._native(
            ("s3", location.bucket, _prefix(entry), *options.values()),
            lambda: _native.Storage.s3(location.bucket, **options),
        )
        return S3Store(native, applied, entry, keys, region)

    def _azure(self, location: Location, entry: StorageEntry | None) -> AzureStore:
        url_seconds = self._config.pre_signed_url_timeout_seconds
        endpoint = account_url(entry, location)

        def identity() -> Callable[[], AzureCredentials]:
            return AzureIdentity(entry, location, self._environment, url_seconds=url_seconds).request

        # Of an account, for all of its containers: Azure limits the requests for user delegation keys.
        keys = self._shared(
            ("azure", location.account, location.domain, endpoint, url_seconds, _identity(entry)), identity
        )
        options = {"endpoint": endpoint, **self._limits(entry)}
        native, applied = self._native(
            ("azure", location.account, location.bucket, _prefix(entry), *options.values()),
            lambda: _native.Storage.azure(location.account, location.bucket, **options),
        )
        return AzureStore(native, applied, entry, keys)

    def _gcs(self, location: Location, entry: StorageEntry | None) -> GcsStore:
        keys = self._shared(("gs", _identity(entry)), lambda: GcsIdentity(entry, self._environment).request)
        endpoint = entry.endpoint if entry else None
        if entry is not None and entry.access_key_id is not None:
            # Google's interface for clients of S3 takes HMAC keys.
            options = {
                "region": "auto",
                "endpoint": endpoint or GOOGLE,
                "path_style": True,
                **self._limits(entry),
            }
            native, applied = self._native(
                ("gs", location.bucket, _prefix(entry), *options.values()),
                lambda: _native.Storage.s3(location.bucket, **options),
            )
        else:
            options = {
                "endpoint": endpoint,
                "user_project": entry.user_project if entry else None,
                **self._limits(entry),
            }
            native, applied = self._native(
                ("gs", location.bucket, _prefix(entry), *options.values()),
                lambda: _native.Storage.gcs(location.bucket, **options),
            )
        return GcsStore(native, applied, entry, keys)

    def _shared(
        self, key: tuple[object, ...], identity: Callable[[], Callable[[], C]]
    ) -> RefreshingCredentials[C]:
        """Return the credentials of an identity, which all of its buckets share."""
        if key not in self._keys:
            self._keys[key] = RefreshingCredentials(identity(), previous=self._earlier_keys.pop(key, None))
        return self._keys[key]

    def _native(
        self, key: tuple[object, ...], make: Callable[[], _native.Storage]
    ) -> tuple[_native.Storage, Applied]:
        # Credentials can be replaced in a native storage; any other change needs a new one. Each entry has
        # its own, as the entries of a bucket may have different identities.
        if key not in self._natives:
            self._natives[key] = (make(), Applied())
        return self._natives[key]

    def _limits(self, entry: StorageEntry | None) -> dict[str, Any]:
        # A listing of very many pages ends with the request that needs it.
        limits = {"listing_seconds": self._config.request_timeout_seconds or NEVER_SECONDS}
        if entry is None:
            return limits
        return {**limits, "timeout_seconds": entry.timeout_seconds, "retry_seconds": entry.retry_seconds}

    def _region(self, entry: StorageEntry | None) -> str:
        named = entry.region if entry else None
        return named or default_region(self._environment, entry.profile if entry else None)


def _renew(stores: Iterable[Store]) -> None:
    for store in stores:
        store.renew()


def name_of(location: Location, mounts: Iterable[str] | None = None) -> str:
    """Return the name of a location's storage: locations that fail together have one name.

    `mounts`: the mount points of this machine; None reads them.
    """
    if location.kind == "file":
        return f"{_MOUNT}{mount_of(location.key, mount_points() if mounts is None else mounts)}"
    if location.kind == "azure":
        # The account has one host and one limit of requests for all containers.
        return f"https://{location.account}.blob.{location.domain}"
    return location.bucket_url


def _may_hold(name: str, location: Location) -> bool:
    """Return whether a storage is a mount above a local directory; another mount may be between them."""
    mount = name.removeprefix(_MOUNT)
    return name.startswith(_MOUNT) and mount_of(location.key, [mount]) == mount


def _can_end(keys: RefreshingCredentials[Any]) -> bool:
    """Return whether keys were requested; keys without an end are read again at no cost."""
    return keys.current is not None and keys.current.expires is not None


def _prefix(entry: StorageEntry | None) -> str:
    return entry.prefix.url if entry else ""


def _identity(entry: StorageEntry | None) -> tuple[object, ...]:
    """Return the values of an entry that decide about its credentials."""
    if entry is None:
        return ()
    return tuple(getattr(entry, field.name) for field in fields(entry) if field.name not in NO_IDENTITY)
