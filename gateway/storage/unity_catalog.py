"""The ratified commits of a table, by the Unity Catalog that manages it (`loadTable` of its `delta.yaml`).

In: the section of the table's catalog. Out: the latest ratified version and the unpublished commits.
Errors have nothing of an answer but its status.
"""

from __future__ import annotations

import time
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import quote, urlencode

import msgspec

from gateway import _native
from gateway.config.locations import Location
from gateway.config.secret import Secret
from gateway.config.table_catalog import CatalogClient, TableCatalog
from gateway.config.unity_catalog import UnityCatalog
from gateway.storage.credentials import CredentialsUnavailable, check_header
from gateway.storage.refreshing_credentials import RefreshingCredentials
from gateway.storage.service_requests import NoAnswer, send

CATALOG_MANAGED = frozenset({"delta.feature.catalogManaged", "delta.feature.catalogOwned-preview"})
"""Properties of tables whose commits the catalog ratifies."""
TOKEN_SECONDS = 300.0
"""The life of an access token whose answer states none."""
CATALOG_TOKENS = "the catalog's OAuth client"
_OK = 200
UNAUTHORIZED = 401
_DENIED = (UNAUTHORIZED, 403)
_MISSING = 404
_BUSY = (408, 425, 429)
_SERVER_FAULT = 500

Staged = tuple[int, str, int, int]
"""Version, file name, size and modification time in milliseconds."""
Inline = tuple[int, bytes, int]
"""Version, content and modification time in milliseconds."""


@dataclass(frozen=True, slots=True)
class RatifiedCommits:
    """An answer of a catalog.

    Attributes:
        latest: latest ratified version; None if the catalog does not manage the table.
        staged: commits that may not be published, in files of `_staged_commits`.
        inline: those whose content the catalog has.

    """

    latest: int | None
    staged: tuple[Staged, ...] = ()
    inline: tuple[Inline, ...] = ()


_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Commit(msgspec.Struct, rename="kebab"):
    version: _Number
    file_name: str
    file_size: _Number
    file_modification_timestamp: _Number


class _Metadata(msgspec.Struct):
    location: str
    properties: dict[str, Any] | None = None


class _LoadedTable(msgspec.Struct, rename="kebab"):
    metadata: _Metadata
    commits: list[_Commit] | None = None
    latest_table_version: _Number | None = None


class _TokenAnswer(msgspec.Struct):
    access_token: str
    expires_in: float | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    """An access token, in the form that its renewal needs."""

    text: Secret
    expires: datetime | None
    file: Path | None = None
    source: str = CATALOG_TOKENS


class UnityCatalogTable:
    """A table of a Unity Catalog. Thread-safe."""

    def __init__(self, settings: TableCatalog) -> None:
        self._settings = settings
        catalog, schema, table = (quote(name, safe="") for name in settings.name.split("."))
        path = f"delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
        self._url = f"{settings.api_url}/{path}"

    def ratified(self, location: Location) -> RatifiedCommits:
        """Return the ratified commits of the table, which must be at a location. Blocks. Raises LogError."""
        settings = self._settings
        private = settings.allow_private_addresses
        try:
            status, body, _ = send("GET", self._url, authorization(settings), private=private)
        except NoAnswer as error:
            _fail(_native.StorageUnavailable, f"it {error}")
        if status == UNAUTHORIZED:
            refused(settings)
        if status == _MISSING and not _is_object(body):
            # Of a proxy that has no route, as while a catalog starts.
            _fail(_native.StorageUnavailable, f"it answers {status} without an error of the API")
        if status != _OK:
            _fail_by(status)
        try:
            return _commits_of(msgspec.json.decode(body, type=_LoadedTable), location)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise OddAnswer("the catalog: its answer has not the documented form") from None


def _commits_of(loaded: _LoadedTable, location: Location) -> RatifiedCommits:
    try:
        is_here = Location.parse(loaded.metadata.location) == location
    except ValueError:
        is_here = False
    if not is_here:
        reason = "its table of this name has another location; correct `location`, or the name in `catalog`"
        _fail(_native.StorageRefused, reason)
    staged = tuple(
        (commit.version, commit.file_name, commit.file_size, commit.file_modification_timestamp)
        for commit in loaded.commits or ()
    )
    is_managed = not CATALOG_MANAGED.isdisjoint(loaded.metadata.properties or ())
    if is_managed and loaded.latest_table_version is None:
        raise OddAnswer("the catalog: its answer lacks the latest version of a table that it manages")
    return RatifiedCommits(loaded.latest_table_version, staged)


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(body), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


_MESSAGES: dict[type[_native.LogError], str] = {
    _native.StorageUnavailable: "the table's catalog is unavailable for now",
    _native.StorageDenied: "the table's catalog denies access, which the provider must change",
    _native.StorageRefused: "the table's catalog refuses the table, which the provider must change",
    _native.TableNotFound: "the table's catalog does not have the table",
}


def _fail(kind: type[_native.LogError], detail: str) -> NoReturn:
    error = kind(_MESSAGES[kind])
    error.detail = f"the catalog: {detail}"
    raise error from None


def _fail_by(status: int) -> NoReturn:
    advice = ""
    if status in _DENIED:
        kind: type[_native.LogError] = _native.StorageDenied
        advice = "; its provider grants the right to read the table"
    elif status == _MISSING:
        kind = _native.TableNotFound
        advice = "; correct the name in `catalog`, or grant the right"
    elif status in _BUSY or status >= _SERVER_FAULT:
        kind = _native.StorageUnavailable
    else:
        kind = _native.StorageRefused
        advice = "; correct `url` of `catalog`"
    _fail(kind, f"it answers {status}{advice}")


class OddAnswer(_native.StorageUnavailable):
    """Raised for an answer that cannot be read. The catalog works: its other tables may be read."""

    def __init__(self, detail: str) -> None:
        super().__init__(_MESSAGES[_native.StorageUnavailable])
        self.detail = detail


def authorization(settings: TableCatalog | UnityCatalog) -> dict[str, str]:
    """Return the header with the token of a catalog. Blocks while one is requested. Raises LogError."""
    token = settings.token
    if settings.oauth is not None:
        token = _tokens_of(settings.oauth, settings.allow_private_addresses).get().text
    return {} if token is None else {"Authorization": f"Bearer {token.reveal()}"}


def refused(settings: TableCatalog | UnityCatalog) -> None:
    """Let the next request have another token: a catalog may forget one before its end."""
    if settings.oauth is not None:
        _tokens_of(settings.oauth, settings.allow_private_addresses).refused()


@lru_cache(maxsize=64)
def _tokens_of(client: CatalogClient, private: bool) -> RefreshingCredentials[_Token]:
    def request() -> _Token:
        form = {"grant_type": "client_credentials", **({"scope": client.scope} if client.scope else {})}
        # RFC 6749, section 2.3.1.
        user = f"{quote(client.client_id, safe='')}:{quote(client.client_secret.reveal(), safe='')}"
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Authorization": f"Basic {b64encode(user.encode()).decode()}",
        }
        requested = time.time()
        try:
            content = urlencode(form).encode()
            status, body, _ = send("POST", client.token_endpoint, headers, content, private=private)
            if status != _OK:
                raise CredentialsUnavailable(
                    f"the token endpoint of the catalog answers {status}",
                    lasting=status not in _BUSY and status < _SERVER_FAULT,
                )
            answer = msgspec.json.decode(body, type=_TokenAnswer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise CredentialsUnavailable(
                "the token endpoint of the catalog answers without a token"
            ) from None
        except NoAnswer as error:
            raise CredentialsUnavailable(f"the token endpoint of the catalog {error}") from None
        token = Secret(check_header(answer.access_token, "the access token of the catalog"))
        seconds = min(answer.expires_in or TOKEN_SECONDS, 365 * 86_400.0)
        return _Token(token, datetime.fromtimestamp(requested + seconds, UTC))

    return RefreshingCredentials(request, place="the catalog")
