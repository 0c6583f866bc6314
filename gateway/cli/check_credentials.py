"""The temporary credentials of `delta-gateway check`: issues one for each storage, and lists with it.

In: the state of a configuration. Out: for each entry of `gateway.storages` with directory access or volumes,
whether a credential of one of its directories lists that directory and is denied the root of the bucket.
Nothing secret is in a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.cli.storage_errors import explain_error
from gateway.config import Config, Location
from gateway.config.roots import readable_directories
from gateway.state import GatewayState
from gateway.storage.stores import ListingDenied, NotListed
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential
from gateway.tables.native import LogError, StorageDenied, StorageRefused

RECIPIENT = "check"
"""The name of the recipient in the provider's logs."""


@dataclass(frozen=True, slots=True)
class CredentialFinding:
    """The result of one storage; `problem` is empty if a credential reads its directory alone."""

    storage: str
    directory: str
    ends: str = ""
    problem: str = ""


def check_credentials(state: GatewayState) -> Iterator[CredentialFinding]:
    """Check a temporary credential of each storage that issues any. Blocks."""
    checked: set[tuple[str, str]] = set()
    for location, _ in readable_directories(state.config):
        entry = state.config.gateway.storage(location)
        prefix = entry.prefix.url
        # A role or a token has rights for each bucket.
        if (location.bucket_url, prefix) not in checked:
            checked.add((location.bucket_url, prefix))
            yield _checked(state, location, prefix)


def notes(config: Config) -> Iterator[str]:
    """Iterate over the directories that a client cannot read by temporary credentials, with the reason."""
    for location, name in readable_directories(config):
        if " " in location.key or not location.key.isascii():
            yield (
                f"{name}: deltalake cannot read its directory by temporary credentials, as the path has a "
                "space or a character outside of ASCII; recipients who use deltalake need another path"
            )


def _checked(state: GatewayState, location: Location, storage: str) -> CredentialFinding:
    def failed(problem: str) -> CredentialFinding:
        return CredentialFinding(storage, location.url, problem=problem)

    seconds = state.config.temporary_credential_validity_seconds
    try:
        credential = state.vendor.issuer(CredentialRequest(location, RECIPIENT, (), seconds))()
    except LogError as error:
        return failed(f"no temporary credential is issued: {explain_error(location.kind, error)}")
    try:
        _list(state, credential, location.key)
    except NotListed as reason:
        return failed(f"a temporary credential does not list its directory: {reason}")
    try:
        _list(state, credential, "")
    except ListingDenied:
        ends = datetime.fromtimestamp(credential.expires_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        return CredentialFinding(storage, location.url, ends)
    except NotListed as reason:
        return failed(f"it is unknown whether a temporary credential reads its directory alone: {reason}")
    return failed(
        "a temporary credential lists the whole bucket: the store ignores the limits of credentials; "
        "offer no directory access and no volumes there"
    )


def _list(state: GatewayState, credential: TemporaryCredential, key: str) -> None:
    """List a directory of the credential's bucket. Raises NotListed."""
    location = credential.location
    try:
        state.tables.storages.store(location).list_with(credential, key)
    except StorageRefused as error:
        # A wrong region is no limit of the credentials.
        raise NotListed(explain_error(location.kind, error)) from None
    except StorageDenied as error:
        raise ListingDenied(explain_error(location.kind, error)) from None
    except LogError as error:
        raise NotListed(explain_error(location.kind, error)) from None
