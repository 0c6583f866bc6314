"""Signatures of directories, byte for byte those of Azure's own library."""

import base64
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import pytest
from azure.storage.blob import UserDelegationKey as LibraryKey
from azure.storage.blob import generate_blob_sas

from gateway.config import Location, loads
from gateway.config.networks import parse_networks
from gateway.config.secret import Secret
from gateway.config.storages.azure import AzureEntry
from gateway.storage.azure.credentials import AzureCredentials, UserDelegationKey
from gateway.storage.azure.vendor import VERSION, DirectorySignature, issued_signature
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.vending.credential import CredentialRequest

ACCOUNT_KEY = base64.b64encode(bytes(range(64))).decode()
NOW_MS = 1_795_000_000_123
KEY_ENDS = "2026-11-18T12:00:00Z"
USER_KEY = UserDelegationKey(
    ("oid", "tid", "2026-11-17T00:00:00Z", KEY_ENDS, "b", VERSION),
    Secret(base64.b64encode(b"value").decode()),
)
KEYS = ["t", "a/b/c", "p=a%20b", "p=a b", "é", "x+y", "q!'()*@$&,;:~", 'quo"te', "a?b", "a*b", "#"]
HIERARCHICAL = "prefix: abfss://data@acct.dfs.core.windows.net/, hierarchicalNamespace: true"


@pytest.fixture(autouse=True)
def _version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azure.storage.blob._shared_access_signature.X_MS_VERSION", VERSION)
    monkeypatch.setattr("azure.storage.blob._shared.shared_access_signature.X_MS_VERSION", VERSION)


def location(key: str) -> Location:
    return Location("azure", "data", key, "acct", "core.windows.net")


def by_the_library(key: str, **options: Any) -> str:
    """What `generate_directory_sas` of azure-storage-file-datalake returns: it makes this call."""
    return generate_blob_sas(
        "acct", "data", key, permission="rl", is_directory=True, sdd=len(key.split("/")), **options
    )


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("addresses", ["", "192.0.2.1", "192.0.2.0-192.0.2.255"])
def test_a_signature_by_the_accounts_key_is_that_of_the_library(key: str, addresses: str) -> None:
    expiry = "2026-11-18T10:00:00Z"
    ours = DirectorySignature(location(key), expiry, addresses).token(Secret(ACCOUNT_KEY), None)
    theirs = by_the_library(
        key, account_key=ACCOUNT_KEY, expiry=expiry, protocol="https", ip=addresses or None
    )
    assert parse_qs(ours) == parse_qs(theirs)
    assert parse_qs(ours)["sr"] == ["d"]


@pytest.mark.parametrize("key", KEYS)
def test_a_signature_by_a_user_delegation_key_signs_the_text_of_the_library(key: str) -> None:
    expiry, texts = "2026-11-18T10:00:00Z", []
    library_key = LibraryKey()
    names = ("oid", "tid", "start", "expiry", "service", "version")
    for name, value in zip(names, USER_KEY.fields, strict=True):
        setattr(library_key, f"signed_{name}", value)
    library_key.value = USER_KEY.value.reveal()
    theirs = by_the_library(
        key,
        user_delegation_key=library_key,
        expiry=expiry,
        protocol="https",
        ip="192.0.2.1",
        sts_hook=texts.append,
    )
    signature = DirectorySignature(location(key), expiry, "192.0.2.1")
    # Newer versions of the service have four more lines, all empty here.
    lines = texts[0].split("\n")
    added = (13, 14, 21, 22)
    assert [lines[place] for place in added] == [""] * 4
    older = [line for place, line in enumerate(lines) if place not in added]
    assert signature.string_to_sign(USER_KEY).split("\n") == older
    ours = parse_qs(signature.token(None, USER_KEY))
    assert ours | {"sig": []} == parse_qs(theirs) | {"sig": []}


def issue(keys: AzureCredentials, *networks: str, seconds: int = 3600, entry: str = HIERARCHICAL) -> Any:
    config = loads(f"version: 1\ngateway: {{anonymous: true, storages: [{{{entry}}}]}}")
    request = CredentialRequest(location("t"), "alice", parse_networks(networks), seconds)
    (storage,) = config.gateway.storages
    assert isinstance(storage, AzureEntry)
    return issued_signature(storage, request, keys, NOW_MS)


def test_a_credential_reads_and_lists_one_directory_until_its_end() -> None:
    issued = issue(AzureCredentials(account_key=Secret(ACCOUNT_KEY)))
    values = parse_qs(issued.fields["sasToken"].reveal())
    assert (values["sp"], values["sr"], values["sdd"]) == (["rl"], ["d"], ["1"])
    end = datetime.fromisoformat(values["se"][0])
    assert issued.expires_ms == int(end.timestamp() * 1000) == NOW_MS // 1000 * 1000 + 3_600_000
    assert "sip" not in values
    assert issued.form == "azureUserDelegationSas"
    assert "sig" not in repr(issued)


def test_a_credential_ends_no_later_than_its_user_delegation_key() -> None:
    ends = datetime.fromisoformat(KEY_ENDS)
    seconds = int(ends.timestamp()) - NOW_MS // 1000 + 100
    issued = issue(AzureCredentials(user_delegation_key=USER_KEY), seconds=seconds)
    assert issued.expires_ms == int(ends.timestamp() * 1000)
    assert datetime.fromtimestamp(issued.expires_ms / 1000, UTC) == ends


@pytest.mark.parametrize(
    ("networks", "expected"),
    [
        (("192.0.2.7",), "192.0.2.7"),
        (("192.0.2.0/24",), "192.0.2.0-192.0.2.255"),
        (("192.0.2.0/25", "192.0.2.128/25", "192.0.2.4"), "192.0.2.0-192.0.2.255"),
        (("192.0.2.255/32", "192.0.3.0/32"), "192.0.2.255-192.0.3.0"),
    ],
)
def test_networks_that_are_one_range_are_the_signatures_addresses(
    networks: tuple[str, ...], expected: str
) -> None:
    issued = issue(AzureCredentials(account_key=Secret(ACCOUNT_KEY)), *networks)
    assert parse_qs(issued.fields["sasToken"].reveal())["sip"] == [expected]


@pytest.mark.parametrize(
    "networks", [("192.0.2.0/24", "198.51.100.0/24"), ("2001:db8::/32",), ("192.0.2.1", "2001:db8::1")]
)
def test_other_networks_are_refused(networks: tuple[str, ...]) -> None:
    with pytest.raises(CredentialsUnavailable, match="one range"):
        issue(AzureCredentials(account_key=Secret(ACCOUNT_KEY)), *networks)


def test_a_flat_namespace_and_an_identity_without_a_key_are_refused() -> None:
    flat = "prefix: abfss://data@acct.dfs.core.windows.net/"
    with pytest.raises(CredentialsUnavailable, match="flat namespace"):
        issue(AzureCredentials(account_key=Secret(ACCOUNT_KEY)), entry=flat)
    with pytest.raises(CredentialsUnavailable, match="no key that signs"):
        issue(AzureCredentials(token=Secret("token")))
