"""The tests' services of Azure answer Azure's own identity library, and refuse what they refuse at Azure."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.azure_identity import CLIENT, SCOPE, TENANT, THROTTLED, Identities, running

from gateway.server.self_signed import self_signed_pair


@pytest.fixture
def identities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Identities]:
    pair = tmp_path / "pair.pem"
    pair.write_bytes(self_signed_pair("127.0.0.1"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(pair))
    with running(Identities(), pair) as services:
        yield services


def at(identities: Identities) -> dict[str, Any]:
    return {"authority": identities.url, "disable_instance_discovery": True, "retry_total": 0}


def secret(identities: Identities, _directory: Path, value: str | None = None) -> Any:
    from azure.identity import ClientSecretCredential  # noqa: PLC0415 - slow to import

    return ClientSecretCredential(TENANT, CLIENT, value or identities.client_secret, **at(identities))


def workload(identities: Identities, directory: Path) -> Any:
    from azure.identity import WorkloadIdentityCredential  # noqa: PLC0415 - slow to import

    file = directory / "federated-token"
    file.write_text("the-token-of-the-cluster")
    identities.federated_tokens.add(file.read_text())
    return WorkloadIdentityCredential(
        tenant_id=TENANT, client_id=CLIENT, token_file_path=str(file), **at(identities)
    )


def managed(_identities: Identities, _directory: Path) -> Any:
    from azure.identity import ManagedIdentityCredential  # noqa: PLC0415 - slow to import

    return ManagedIdentityCredential(client_id=CLIENT)


@pytest.mark.parametrize("make", [secret, workload], ids=["secret", "workload"])
def test_entra_gives_a_token_to_each_kind_of_client(
    identities: Identities, tmp_path: Path, make: Callable[..., Any]
) -> None:
    with make(identities, tmp_path) as credential:
        assert credential.get_token(SCOPE).token == identities.granted[-1]


def test_entra_refuses_another_secret(identities: Identities, tmp_path: Path) -> None:
    from azure.core.exceptions import ClientAuthenticationError  # noqa: PLC0415 - slow to import

    with (
        secret(identities, tmp_path, "another") as credential,
        pytest.raises(ClientAuthenticationError, match="AADSTS7000215"),
    ):
        credential.get_token(SCOPE)
    assert identities.granted == []


def test_throttled_requests_fail_without_retries(identities: Identities, tmp_path: Path) -> None:
    from azure.core.exceptions import ClientAuthenticationError  # noqa: PLC0415 - slow to import

    identities.failures.append(THROTTLED)
    with secret(identities, tmp_path) as credential:
        with pytest.raises(ClientAuthenticationError):
            credential.get_token(SCOPE)
        assert credential.get_token(SCOPE).token == identities.granted[-1]


def test_app_service_gives_a_token_of_its_identity(
    identities: Identities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in identities.environment().items():
        monkeypatch.setenv(name, value)
    with managed(identities, tmp_path) as credential:
        assert credential.get_token(SCOPE).token == identities.granted[-1]


def test_a_machine_gives_a_token_of_its_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(Identities()) as identities:
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", identities.url)
        with managed(identities, tmp_path) as credential:
            assert credential.get_token(SCOPE).token == identities.granted[-1]
