"""The entries of `gateway.storages`: keys by the kind of the prefix, and what is malformed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.config import Config, ConfigError, Location, loads

S3, AZURE, GS = "s3://bucket/", "abfss://data@acct.dfs.core.windows.net/", "gs://bucket/"
SERVICE_ACCOUNT = {
    "type": "service_account",
    "client_email": "reader@project.iam.gserviceaccount.com",
    "private_key": "hidden",
    "token_uri": "https://oauth2.googleapis.com/token",
}


def storage(prefix: str, keys: str, directory: Path = Path("/")) -> Config:
    text = f"version: 1\ngateway:\n  anonymous: true\n  storages:\n    - prefix: '{prefix}'\n      {keys}\n"
    return loads(text, environment={}, directory=directory)


@pytest.mark.parametrize(
    ("prefix", "keys"),
    [
        (S3, "roleArn: 'arn:aws:iam::1:role/reader'\n      externalId: a-b\n      sessionSeconds: 900"),
        (S3, "profile: sso"),
        (S3, "dualStack: true\n      fips: true\n      requesterPays: true"),
        (AZURE, "accountKey: a2V5"),
        (AZURE, "tenantId: t\n      clientId: c\n      clientSecret: s\n      identity: clientSecret"),
        (AZURE, "identity: ManagedIdentity\n      clientId: c"),
        (GS, "accessKeyId: GOOG1E\n      secretAccessKey: s"),
        (GS, "impersonate: reader@project.iam.gserviceaccount.com\n      maxRemoteSignatures: 10"),
    ],
)
def test_a_storage_takes_the_keys_of_its_kind(prefix: str, keys: str) -> None:
    (entry,) = storage(prefix, keys).gateway.storages
    assert entry.prefix == Location.parse(prefix)


@pytest.mark.parametrize(
    ("prefix", "keys", "message"),
    [
        (S3, "account: acct", "storages[0].account: is no key of a prefix of s3://"),
        (AZURE, "region: eu", "configuration:6: gateway.storages[0].region: is no key of a prefix of Azure"),
        (GS, "roleArn: 'arn:aws:iam::1:role/r'", "roleArn: is no key of a prefix of gs://"),
        (S3, "externalId: a-b", "externalId: describes the session of a role; give roleArn, too"),
        (S3, "roleArn: short", "roleArn: 'short' is not accepted"),
        (S3, "sessionSeconds: 60", "60 is too small; accepted: 900 or more"),
        (S3, "roleArn: 'arn:aws:iam::1:role/reader'\n      roleSessionName: 'a b'", "roleSessionName: 'a b'"),
        (
            S3,
            "profile: p\n      accessKeyId: a\n      secretAccessKey: b",
            "give either accessKeyId or profile",
        ),
        (S3, "fips: true\n      endpoint: 'https://store'", "fips: chooses a host of AWS"),
        (AZURE, "account: other", "account: the prefix is in the account acct"),
        (AZURE, "accountKey: 'hidden!'", "accountKey: is not Base64"),
        (AZURE, "identity: sas", "'sas' is not accepted; accepted: auto, accountKey, clientSecret"),
        (AZURE, "identity: accountKey", "identity: accountKey needs accountKey"),
        (AZURE, "clientSecret: hidden", "clientSecret: a clientSecret needs tenantId and clientId"),
        (AZURE, "authorityHost: 'http://host'", "authorityHost: tokens are requested by HTTPS alone"),
        (AZURE, "endpoint: 'http://127.0.0.1:10000/acct'", "endpoint: tokens are sent by HTTPS alone"),
        (GS, "accessKeyId: a", "accessKeyId and secretAccessKey go together"),
        (GS, "credentialsFile: absent.json", "credentialsFile: /absent.json cannot be read"),
        (GS, "impersonate: nobody", "impersonate: 'nobody' is not accepted"),
        (
            GS,
            "accessKeyId: a\n      secretAccessKey: b\n      userProject: p",
            "userProject: is not used with an HMAC key",
        ),
        ("az://data/", "timeoutSeconds: 1", "prefix: az://data names no account"),
    ],
)
def test_a_key_that_does_not_fit_stops_the_start_with_its_place(prefix: str, keys: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        storage(prefix, keys)
    assert message in str(refused.value)
    assert "hidden" not in str(refused.value)
    assert str(refused.value).startswith("configuration:")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "has no credentials of Google"),
        (json.dumps({"type": "hidden"}), "its `type` is none of service_account"),
        (json.dumps(SERVICE_ACCOUNT | {"private_key": "", "note": "hidden"}), "has no private_key"),
    ],
)
def test_a_malformed_credentials_file_stops_the_start(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "key.json").write_text(content)
    with pytest.raises(ConfigError) as refused:
        storage(GS, "credentialsFile: key.json", tmp_path)
    assert reason in str(refused.value)
    assert str(refused.value).startswith("configuration:6: gateway.storages[0].credentialsFile: ")
    assert "hidden" not in str(refused.value)


def test_a_credentials_file_is_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(json.dumps(SERVICE_ACCOUNT))
    (entry,) = storage(GS, "credentialsFile: key.json", tmp_path).gateway.storages
    assert entry.credentials_file == tmp_path / "key.json"


ACCOUNTLESS = """version: 1
shares: [{{name: s, schemas: [{{name: d, tables: [{{name: t, location: '{location}'}}]}}]}}]
gateway:
  anonymous: true
  allowedRoots: ['abfs://data/clones']
  storages: [{{prefix: 'az://data', account: acct}}, {{prefix: 'az://data/other', account: another}}]
"""


@pytest.mark.parametrize(
    ("location", "account"),
    [
        ("az://data/t", "acct"),
        ("abfss://data/t", "acct"),
        ("az://data/other/t", "another"),
        ("abfss://data@third.dfs.core.windows.net/t", "third"),
    ],
)
def test_a_location_without_an_account_is_in_that_of_its_storage(location: str, account: str) -> None:
    config = loads(ACCOUNTLESS.format(location=location), environment={})
    (table,) = config.shares[0].schemas[0].tables
    assert (table.location.kind, table.location.account) == ("azure", account)
    assert config.gateway.allowed_roots[0].url == "abfss://data@acct.dfs.core.windows.net/clones"
    assert config.gateway.storages[0].prefix.account == "acct"


def test_a_location_without_an_account_and_a_storage_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"tables\[0\]\.location: az://logs names no account"):
        loads(ACCOUNTLESS.format(location="az://logs/t"), environment={})
