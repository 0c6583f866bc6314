"""The entries of `gateway.storages`: keys by the kind of the prefix, and what is malformed."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from gateway.config import Config, ConfigError, Location, loads

S3, AZURE, GS = "s3://bucket/", "abfss://data@acct.dfs.core.windows.net/", "gs://bucket/"
SERVICE_ACCOUNT = {
    "type": "service_account",
    "client_email": "reader@project.iam.gserviceaccount.com",
    "private_key": rsa.generate_private_key(public_exponent=65537, key_size=1024)
    .private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    .decode(),
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
        (AZURE, "authorityHost: 'http://host'", "authorityHost: tokens are requested only by HTTPS"),
        (AZURE, "tenantId: t", "tenantId: needs clientSecret, federatedTokenFile or `identity`"),
        (AZURE, "tenantId: t\n      clientId: c", "tenantId: needs clientSecret, federatedTokenFile"),
        (
            AZURE,
            "federatedTokenFile: /f",
            "federatedTokenFile: a federatedTokenFile needs tenantId and clientId",
        ),
        (
            AZURE,
            "accountKey: a2V5\n      tenantId: t\n      clientId: c\n      clientSecret: hidden",
            "tenantId: is not used by the identity accountKey",
        ),
        (
            AZURE,
            "accountKey: a2V5\n      identity: cli",
            "configuration:6: gateway.storages[0].accountKey: is not used by the identity cli",
        ),
        (
            AZURE,
            "tenantId: t\n      clientId: c\n      clientSecret: hidden\n      federatedTokenFile: /f",
            "federatedTokenFile: is not used by the identity clientSecret",
        ),
        (AZURE, "accountKey: QUJDRB==", "accountKey: is not Base64"),
        (AZURE, "clientSecret: ''", "clientSecret: may not be empty"),
        (
            AZURE,
            "endpoint: 'http://store/acct'\n      identity: managedIdentity",
            "endpoint: tokens are sent only by HTTPS",
        ),
        (
            AZURE,
            "endpoint: 'http://store/acct'\n      identity: managedIdentity\n      accountKey: a2V5",
            "configuration:6: gateway.storages[0].endpoint: tokens are sent only by HTTPS",
        ),
        (
            GS,
            "endpoint: 'http://store'",
            "endpoint: tokens are sent only by HTTPS; give https://, or accessKeyId",
        ),
        (GS, "accessKeyId: ''\n      secretAccessKey: b", "accessKeyId: may not be empty"),
        (S3, 'accessKeyId: "hidden\\nx"\n      secretAccessKey: b', "accessKeyId: has a blank, a line break"),
        (S3, 'accessKeyId: a\n      secretAccessKey: "hidden\\nx"', "secretAccessKey: has a line break"),
        (S3, "sessionExpires: 2099-01-01", "sessionExpires: is the end of temporary keys; give accessKeyId"),
        (S3, "region: a/b", "region: 'a/b' is not accepted"),
        (AZURE, "endpoint: 'http://127.0.0.1:10000/acct'", "endpoint: tokens are sent only by HTTPS"),
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


URLS = (
    "https://acct.blob.core.windows.net/?sv=2022&sig=hidden",
    "https://acct.blob.core.windows.net:hidden",
    "https://me:hidden@host",
    "https://host;hidden",
    "hidden:hidden@host",
    "https://host#hidden",
)


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("key", ["endpoint", "publicEndpoint", "authorityHost"])
def test_a_signature_or_a_password_in_a_url_is_in_no_message(key: str, url: str) -> None:
    with pytest.raises(ConfigError, match=rf"^configuration:6: gateway\.storages\[0\]\.{key}: ") as refused:
        storage(AZURE, f"{key}: '{url}'")
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\ngateway: {publicUrl: 'https://host/?hidden'}",
        "version: 1\ngateway: {cors: {origins: ['https://me:hidden@host']}}",
        "version: 1\nendpoint: '/path?hidden'",
        "version: 1\ngateway: {endpointAliases: ['/path?hidden']}",
        "version: 1\nport: 'me:hidden@host'",
        "version: 1\ngateway: {storages: [{prefix: 's3://b', secretAccessKey: 'a${hidden/b}c'}]}",
        "version: 1\ngateway: {storages: [{prefix: 's3://b', secretAccessKey: *hidden}]}",
        "version: 1\ngateway: {storages: [{prefix: 's3://b', secretAccessKey: !hidden!b}]}",
    ],
)
def test_no_message_of_the_configuration_has_a_part_that_may_be_secret(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loads(text, environment={})
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["https://a:99999", "https://a:", "https://[::1", "https://[::1]x", "https://a..b", "https://.b"]
)
def test_a_malformed_url_stops_the_start(url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^configuration:6: gateway\.storages\[0\]\.endpoint: .* URL; accept"
    ):
        storage(S3, f"endpoint: '{url}'\n      pathStyle: true")


@pytest.mark.parametrize("url", ["https://[::1]:9000", "http://127.0.0.1:1/a", "https://A-b_c.d:443/e/"])
def test_a_url_with_a_port_an_address_or_a_path_is_accepted(url: str) -> None:
    (entry,) = storage(S3, f"endpoint: '{url}'\n      pathStyle: true").gateway.storages
    assert entry.endpoint == url


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        (json.dumps({"type": ["service_account"]}), "its `type` is none of service_account"),
        (
            json.dumps({"type": "authorized_user"}),
            "has no client_id and no client_secret and no refresh_token",
        ),
        (
            json.dumps({"type": "external_account"}),
            "has no audience and no subject_token_type and no token_url",
        ),
        (json.dumps(SERVICE_ACCOUNT | {"client_email": 7}), "has no client_email"),
        (json.dumps(SERVICE_ACCOUNT | {"private_key": "hidden"}), "has a private_key that is no private key"),
        (
            json.dumps(SERVICE_ACCOUNT | {"private_key": SERVICE_ACCOUNT["private_key"][:300]}),
            "has a private_key that is no private key",
        ),
        (
            json.dumps(
                SERVICE_ACCOUNT | {"private_key": SERVICE_ACCOUNT["private_key"].replace("M", "N", 1)}
            ),
            "has a private_key that is no private key",
        ),
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


@pytest.mark.parametrize(
    ("prefix", "keys"),
    [
        (AZURE, "endpoint: 'http://store/acct'\n      accountKey: a2V5"),
        (GS, "endpoint: 'http://store'\n      accessKeyId: a\n      secretAccessKey: b"),
        (GS, "endpoint: 'http://127.0.0.1:1'"),
        (S3, "endpoint: 'http://store'\n      pathStyle: true"),
    ],
)
def test_requests_that_have_no_token_or_stay_on_this_machine_may_be_plain_http(
    prefix: str, keys: str
) -> None:
    (entry,) = storage(prefix, keys).gateway.storages
    assert entry.endpoint is not None


@pytest.mark.parametrize(
    "other",
    ["wasbs://data@acct.blob.core.windows.net", "https://acct.dfs.core.windows.net/data/", "az://data/"],
)
def test_one_place_has_one_entry(other: str) -> None:
    account = "\n      account: acct" if other.startswith("az:") else ""
    with pytest.raises(ConfigError) as refused:
        storage(AZURE, f"accountKey: a2V5\n    - prefix: '{other}'{account}\n      identity: cli")
    assert str(refused.value) == (
        "configuration:7: gateway.storages[1]: has the prefix of storages[0]: "
        "abfss://data@acct.dfs.core.windows.net/"
    )


MISTYPED = "abfss://data@acct.dfs.core.window.net/"


@pytest.mark.parametrize("keys", ["timeoutSeconds: 1", "identity: auto", "clientId: c"])
def test_a_mistyped_domain_of_azure_stops_the_start(keys: str) -> None:
    with pytest.raises(ConfigError) as refused:
        storage(MISTYPED, keys)
    assert str(refused.value).startswith(
        "configuration:5: gateway.storages[0].prefix: 'core.window.net' is no domain of Azure; accepted: "
    )
    location = "shares: [{name: s, schemas: [{name: d, tables: [{name: t, location: '%s'}]}]}]\n"
    with pytest.raises(
        ConfigError, match=r"^configuration:2: shares.*location: 'core\.window\.net' is no domain"
    ):
        loads(f"version: 1\n{location % MISTYPED}", environment={})


@pytest.mark.parametrize(
    "keys", ["endpoint: 'https://acct.store.example'", "identity: managedIdentity", "accountKey: a2V5"]
)
def test_another_cloud_of_azure_needs_an_endpoint_or_an_identity(keys: str) -> None:
    config = storage("abfss://data@acct.dfs.core.local.example/", f"{keys}\n  allowedRoots: ['{LOCAL}/kept']")
    assert config.gateway.allowed_roots[0].domain == "core.local.example"


LOCAL = "wasbs://data@acct.blob.core.local.example"
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
