"""The section of the catalog that manages a table, and what a catalog is called with."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gateway.config.checks import check_url
from gateway.config.errors import Invalid
from gateway.config.fetched_urls import is_accepted_url
from gateway.config.operation import setting
from gateway.config.secret import Secret
from gateway.encoding import is_header_token

API_PATH = "/api/2.1/unity-catalog"

_NAME = re.compile(r"[^./\\\x00-\x20\x7f]{1,255}(\.[^./\\\x00-\x20\x7f]{1,255}){2}")


@dataclass(frozen=True, slots=True)
class CatalogClient:
    """A client of OAuth whose access tokens the catalog accepts. They are renewed at half of their life.

    Attributes:
        token_endpoint: URL that issues tokens for client credentials, by HTTPS; of Databricks
            `https://workspace.example.com/oidc/v1/token`.
        client_id: id of the client.
        client_secret: secret of the client.
        scope: requested scope; of Databricks `all-apis`.

    """

    token_endpoint: str
    client_id: str
    client_secret: Secret
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class TableCatalog:
    """The Unity Catalog that manages a table (`catalogManaged`).

    Its answer says which version is the latest, and which commits are not published yet. See
    [Tables that a catalog manages](shares.md#tables-that-a-catalog-manages).

    Attributes:
        url: URL of the server, such as `https://catalog.example.com`, by HTTPS.
        name: name of the table, `catalog.schema.table`.
        token: bearer token for the catalog.
        oauth: client that requests such tokens, in the place of `token`.
        allow_private_addresses: lets the URL have a private address, and `http` on this machine.

    """

    url: str
    name: str
    token: Secret | None = None
    oauth: CatalogClient | None = setting(None, protects=True)
    allow_private_addresses: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise Invalid("name", "is not the name of a table: expected catalog.schema.table")
        check_access(self.url, self.token, self.oauth, private=self.allow_private_addresses)

    @property
    def api_url(self) -> str:
        """Return the URL of the API, without a trailing slash."""
        return api_url(self.url)


def api_url(url: str) -> str:
    """Return the URL of the API of a server, without a trailing slash."""
    return f"{url.rstrip('/').removesuffix(API_PATH)}{API_PATH}"


def check_access(url: str, token: Secret | None, oauth: CatalogClient | None, *, private: bool) -> None:
    """Check what a catalog is called with. Raises Invalid."""
    _check_called("url", url, "a catalog", private=private)
    if token is not None and not is_header_token(token.reveal()):
        raise Invalid("token", "no client can send it in a header: expected ASCII text without blanks")
    if oauth is None:
        return
    if token is not None:
        raise Invalid("oauth", "is given beside a token; give one of them")
    _check_called("oauth", oauth.token_endpoint, "tokenEndpoint", private=private)


def _check_called(field: str, url: str, what: str, *, private: bool) -> None:
    check_url(field, url)
    if not is_accepted_url(url, allow_private_addresses=private):
        where = "and not at private addresses without allowPrivateAddresses"
        raise Invalid(field, f"{what} is called by https only, {where}")
