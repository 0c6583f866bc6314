"""Containers of Azure: how they are read, and how their URLs are signed."""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import quote, urlencode

from gateway import _native
from gateway.config import Location
from gateway.config.storages.azure import AzureEntry
from gateway.storage.azure.credentials import AzureCredentials
from gateway.storage.azure.identity import API_VERSION, AzureIdentity
from gateway.storage.azure.vendor import issued_signature
from gateway.storage.refusals import refusal, seconds_ahead
from gateway.storage.service_requests import NoAnswer, send
from gateway.storage.stores import Connections, Issue, ListingDenied, NotListed, RemoteStore, text_of
from gateway.storage.vending.credential import TemporaryCredential

_DENIED = (401, 403)


class AzureStore(RemoteStore[AzureEntry, AzureCredentials]):
    """A container of Azure."""

    @classmethod
    def of(cls, location: Location, entry: AzureEntry, connections: Connections) -> AzureStore:
        """Return the store of a container. Reads nothing."""
        url_seconds = connections.config.pre_signed_url_timeout_seconds
        endpoint = entry.endpoint or location.account_url
        # Of an account, for all of its containers: Azure limits the requests for user delegation keys.
        keys = connections.credentials(
            ("azure", location.account, location.domain, endpoint, url_seconds, entry.identity_values),
            lambda: AzureIdentity(entry, location, connections.environment, url_seconds=url_seconds).request,
        )
        options = {"endpoint": endpoint, **connections.limits(entry)}
        native, applied = connections.native(
            ("azure", location.account, location.bucket, entry.prefix.url, *options.values()),
            lambda: _native.Storage.azure(location.account, location.bucket, **options),
        )
        return cls(native, applied, connections, entry, keys)

    def _replace(self, keys: AzureCredentials) -> None:
        if keys.account_key is not None:
            self.native.replace_account_key(keys.account_key.reveal())
        elif keys.token is not None:
            self.native.replace_bearer_token(keys.token.reveal())

    def signer(self, location: Location, _identity: str) -> _native.Signer:
        """Return a signer for the whole container."""
        keys = self.keys.unexpired() or self.keys.get()
        return _native.Signer.azure(
            location.account,
            location.bucket,
            endpoint=self.entry.public_endpoint or self.entry.endpoint or location.account_url,
            account_key=text_of(keys.account_key),
            delegation_key=keys.delegation_key,
        )

    def signer_without_credentials(self, location: Location) -> _native.Signer:
        """Return a signer that raises StorageDenied when a URL is needed."""
        return _native.Signer.azure(
            location.account, location.bucket, account_key="AA==", credentials_expire_ms=0
        )

    def issuer(self, *, now_ms: Callable[[], int]) -> Issue:
        """Return a function that signs for directories."""
        return lambda request: issued_signature(self.entry, request, self.keys.get(), now_ms())

    def list_with(self, credential: TemporaryCredential, key: str) -> None:
        """List by the interface of hierarchical namespaces, which clients of directories use. Blocks.

        Raises NotListed.
        """
        location = credential.location
        endpoint = (self.entry.endpoint or location.account_url).rstrip("/")
        query = {"resource": "filesystem", "recursive": "false", "maxResults": "1"}
        if key:
            query["directory"] = key
        url = f"{endpoint.replace('.blob.', '.dfs.', 1)}/{quote(location.bucket, safe='')}"
        signature = credential.fields["sasToken"].reveal()
        try:
            answer = send(
                "GET",
                f"{url}?{urlencode(query, quote_via=quote)}&{signature}",
                {"x-ms-version": API_VERSION},
                private=True,
            )
        except NoAnswer as error:
            raise NotListed(f"the store {error}") from None
        if answer.status != HTTPStatus.OK:
            ahead_seconds = seconds_ahead(answer.headers.get("Date") or "", time.time())
            code = answer.headers.get("x-ms-error-code")
            body = answer.body.decode("utf-8", "replace")
            text = refusal("azure", answer.status, body, code=code, ahead_seconds=ahead_seconds)
            kind = ListingDenied if answer.status in _DENIED else NotListed
            raise kind(f"the store answers {text}")
