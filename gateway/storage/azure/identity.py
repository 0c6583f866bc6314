"""The identity of an entry on Azure: the account's key, or a client of Microsoft Entra ID.

In: the entry, the account and the environment. Out: credentials with their end. azure-identity requests the
tokens and azure-storage-blob the user delegation key; both are loaded by the first request, on its thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gateway import _native
from gateway.config import Location
from gateway.config.secret import Secret
from gateway.config.storages.azure import AzureEntry
from gateway.storage.azure.credentials import AzureCredentials, UserDelegationKey
from gateway.storage.credentials import CredentialsUnavailable, check_header

log = logging.getLogger("gateway.storages")
NEEDS_EXTRA = "identities of Azure need the extra `azure`: pip install 'delta-sharing-gateway[azure]'"
SCOPE = "https://storage.azure.com/.default"
API_VERSION = "2022-11-02"
SHORTEST_KEY = timedelta(days=1)
LONGEST_KEY = timedelta(days=7) - timedelta(minutes=15)
"""Azure refuses a key that ends more than seven days after its own time."""
CLOCK_SKEW = timedelta(minutes=5)
"""A key begins so much earlier, for a clock that is behind."""
CLI_SECONDS = 10
LIMITS: dict[str, Any] = {"connection_timeout": 5, "read_timeout": 10, "retry_total": 0}
"""Of requests for tokens. A retry would wait as long as the service's Retry-After; the renewal asks again."""
ACCOUNT_LIMITS = LIMITS | {"retry_total": 1, "initial_backoff": 1, "increment_base": 1}
_KEY_FIELDS = ("object_id", "tenant_id", "start", "expiry", "service", "version")
METADATA_ENDPOINTS = ("IDENTITY_ENDPOINT", "MSI_ENDPOINT")

AUTHORITIES = {
    "core.chinacloudapi.cn": "https://login.chinacloudapi.cn",
    "core.usgovcloudapi.net": "https://login.microsoftonline.us",
}
KNOWN_AUTHORITIES = ("https://login.microsoftonline.com", *AUTHORITIES.values())


class AzureIdentity:
    """Requests the credentials of an account. Not thread-safe."""

    def __init__(
        self,
        entry: AzureEntry,
        location: Location,
        environment: Mapping[str, str],
        *,
        url_seconds: int,
    ) -> None:
        """`url_seconds`: lifetime of URLs, which end before the key that signs them."""
        self._entry = entry
        self._location = location
        self._environment = environment
        self._key_life = min(max(SHORTEST_KEY, 2 * timedelta(seconds=url_seconds)), LONGEST_KEY)
        self._credential: Any = None
        self._source = ""
        self._expires: tuple[str, datetime] | None = None
        """The token and its end, which azure-identity computes again for a token of its cache."""
        self._key: tuple[_native.DelegationKey, datetime, UserDelegationKey] | None = None
        self._requested_at: datetime | None = None

    def request(self) -> AzureCredentials:
        """Return credentials. Blocks. Raises CredentialsUnavailable."""
        entry = self._entry
        if entry.account_key and entry.identity in ("auto", "accountKey"):
            return AzureCredentials(account_key=entry.account_key, source="accountKey of the configuration")
        now = datetime.now(UTC)
        if self._requested_at is not None and now < self._requested_at:
            # Tokens have lifetimes: a clock that was ahead has computed the ends in azure-identity's cache.
            # Azure refuses URLs before the start of their key.
            self._credential = self._key = None
        self._requested_at = now
        try:
            from gateway.storage.azure.errors import requested  # noqa: PLC0415

            if self._credential is None:
                self._credential, self._source = self._choose(entry.identity)
        except ImportError:
            raise CredentialsUnavailable(NEEDS_EXTRA, lasting=True) from None
        try:
            token = requested(self._source, lambda: self._credential.get_token(SCOPE))
            check_header(token.token, f"the token of {self._source}")
        except CredentialsUnavailable:
            # The machine may have another identity by the next request, such as one that was starting.
            self._credential = None
            raise
        token_end = self._end(token)
        delegation_key, key_end, user_delegation_key = self._delegation_key(token_end)
        return AzureCredentials(
            token=Secret(token.token),
            delegation_key=delegation_key,
            user_delegation_key=user_delegation_key,
            expires=min(token_end, key_end),
            source=self._source,
        )

    def _end(self, token: Any) -> datetime:
        if self._expires is None or self._expires[0] != token.token:
            self._expires = (token.token, datetime.fromtimestamp(token.expires_on, UTC))
        return self._expires[1]

    def _delegation_key(
        self, token_end: datetime
    ) -> tuple[_native.DelegationKey, datetime, UserDelegationKey]:
        """Return the key that signs URLs, with its end. It is renewed before half of its life is over.

        The next call comes after half of the token's life, or earlier.
        """
        now = datetime.now(UTC)
        next_call = now + max(timedelta(), token_end - now) / 2
        if self._key is not None and next_call < self._key[1] - self._key_life / 2:
            return self._key
        try:
            self._key = self._request_key(now)
        except CredentialsUnavailable as reason:
            if self._key is None or now >= self._key[1]:
                raise
            log.warning("the user delegation key was not renewed: %s", reason)
        return self._key

    def _request_key(self, now: datetime) -> tuple[_native.DelegationKey, datetime, UserDelegationKey]:
        from azure.storage.blob import BlobServiceClient  # noqa: PLC0415

        from gateway.storage.azure.errors import requested  # noqa: PLC0415

        url = self._entry.endpoint or self._location.account_url

        def request() -> Any:
            with BlobServiceClient(
                url, credential=self._credential, api_version=API_VERSION, **ACCOUNT_LIMITS
            ) as client:
                return client.get_user_delegation_key(now - CLOCK_SKEW, now + self._key_life)

        delegated = requested(f"the account {self._location.account}", request)
        fields = (
            delegated.signed_oid,
            delegated.signed_tid,
            delegated.signed_start,
            delegated.signed_expiry,
            delegated.signed_service,
            delegated.signed_version,
        )
        user_key = UserDelegationKey(fields, Secret(delegated.value))
        key = _native.DelegationKey(**dict(zip(_KEY_FIELDS, fields, strict=True)), value=delegated.value)
        return key, datetime.fromisoformat(delegated.signed_expiry), user_key

    def _choose(self, identity: str) -> tuple[Any, str]:
        """Return the credential of azure-identity, and its name for the operator."""
        if identity == "auto":
            identity = self._found()
        make = {
            "clientSecret": self._client_secret,
            "workloadIdentity": self._workload_identity,
            "managedIdentity": self._managed_identity,
            "cli": self._cli,
            "managedIdentityOrCli": self._managed_identity_or_cli,
        }[identity]
        return make()

    def _found(self) -> str:
        """Return the first identity that the entry or the environment describes."""
        if self._secret() and self._client() is not None:
            return "clientSecret"
        if self._token_file() is not None and self._client() is not None:
            return "workloadIdentity"
        if any(self._environment.get(name) for name in METADATA_ENDPOINTS):
            return "managedIdentity"
        return "managedIdentityOrCli"

    def _client_secret(self) -> tuple[Any, str]:
        from azure.identity import ClientSecretCredential  # noqa: PLC0415

        client, secret = self._client(), self._secret()
        if client is None or secret is None:
            raise CredentialsUnavailable(
                "a client secret needs tenantId, clientId and clientSecret", lasting=True
            )
        return ClientSecretCredential(*client, secret, **self._authority()), f"the client {client[1]}"

    def _workload_identity(self) -> tuple[Any, str]:
        from azure.identity import WorkloadIdentityCredential  # noqa: PLC0415

        client, file = self._client(), self._token_file()
        if client is None or file is None:
            raise CredentialsUnavailable(
                "a workload identity needs tenantId, clientId and federatedTokenFile, or AZURE_TENANT_ID, "
                "AZURE_CLIENT_ID and AZURE_FEDERATED_TOKEN_FILE",
                lasting=True,
            )
        credential = WorkloadIdentityCredential(
            tenant_id=client[0], client_id=client[1], token_file_path=str(file), **self._authority()
        )
        return credential, f"the workload identity of the client {client[1]}"

    def _managed_identity(self, **options: Any) -> tuple[Any, str]:
        from azure.identity import ManagedIdentityCredential  # noqa: PLC0415

        client = self._value("client_id", "AZURE_CLIENT_ID")
        # The service is on this machine: never through a proxy.
        credential = ManagedIdentityCredential(client_id=client, use_env_settings=False, **LIMITS, **options)
        return (
            credential,
            f"the managed identity {client}" if client else "the managed identity of the machine",
        )

    def _cli(self) -> tuple[Any, str]:
        from azure.identity import AzureCliCredential  # noqa: PLC0415

        tenant = self._value("tenant_id", "AZURE_TENANT_ID")
        return AzureCliCredential(
            tenant_id=tenant or "", process_timeout=CLI_SECONDS
        ), "the sign-on of the CLI `az`"

    def _managed_identity_or_cli(self) -> tuple[Any, str]:
        """Return the managed identity if the machine has one, else the CLI: the last resorts."""
        from azure.core.exceptions import AzureError  # noqa: PLC0415

        credential, source = self._managed_identity(_enable_imds_probe=True)
        try:
            credential.get_token(SCOPE)
        except AzureError:
            return self._cli()
        return credential, source

    def _client(self) -> tuple[str, str] | None:
        tenant = self._value("tenant_id", "AZURE_TENANT_ID")
        client = self._value("client_id", "AZURE_CLIENT_ID")
        return (tenant, client) if tenant and client else None

    def _secret(self) -> str | None:
        """Return the client's secret. A secret of the environment belongs to the environment's client."""
        named = self._entry.client_id
        if self._entry.client_secret is None and named:
            return (
                self._environment.get("AZURE_CLIENT_SECRET")
                if named == self._environment.get("AZURE_CLIENT_ID")
                else None
            )
        return self._value("client_secret", "AZURE_CLIENT_SECRET")

    def _token_file(self) -> Path | None:
        if self._entry.federated_token_file:
            return self._entry.federated_token_file
        file = self._environment.get("AZURE_FEDERATED_TOKEN_FILE")
        return Path(file) if file else None

    def _authority(self) -> dict[str, Any]:
        given = self._value("authority_host", "AZURE_AUTHORITY_HOST")
        host = (given or AUTHORITIES.get(self._location.domain) or KNOWN_AUTHORITIES[0]).rstrip("/")
        # An unknown host belongs to a private cloud, which the public cloud does not list.
        return {"authority": host, "disable_instance_discovery": host not in KNOWN_AUTHORITIES, **LIMITS}

    def _value(self, field: str, variable: str) -> str | None:
        """Return the value of a key of the entry, else of a variable."""
        value = getattr(self._entry, field)
        if isinstance(value, Secret):
            return value.reveal()
        return value or self._environment.get(variable) or None
