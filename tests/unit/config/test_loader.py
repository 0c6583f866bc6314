"""Configuration files: those of the reference server, the keys of this gateway, and every error."""

import logging
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.config import Config, ConfigError, Location, load, loads
from gateway.config.file_stamps import stamp
from gateway.config.shares import stable_id

REFERENCE = """
# The format version of this config file
version: 1
shares:
- name: "share1"
  id: 5cbcb1a5-0a52-4a5f-b8f5-0d7b4f8a4a11
  schemas:
  - name: "schema1"
    tables:
    - name: "table1"
      location: "s3a://bucket/the/table/path"
      id: "00000000-0000-0000-0000-000000000000"
      historyShared: true
      startVersion: 3
    - name: "table2"
      location: "file:///tables/two"
- name: share2
  schemas: []
authorization:
  bearerToken: "a-token"
host: "localhost"
port: 8080
endpoint: "/delta-sharing"
preSignedUrlTimeoutSeconds: 1800
deltaTableCacheSize: 10
stalenessAcceptable: false
evaluatePredicateHints: false
evaluateJsonPredicateHints: true
evaluateJsonPredicateHintsV2: true
requestTimeoutSeconds: 30
queryTablePageSizeLimit: 10000
queryTablePageTokenTtlMs: 259200000
refreshTokenTtlMs: 3600000
temporaryCredentialValiditySeconds: 3600
ssl:
  selfSigned: true
"""
MINIMAL = "version: 1\nauthorization: {bearerToken: t}\n"
OF_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""What `sha256sum` prints where the variable of a token has no value."""
TOKEN_A = f"{{sha256: {'a' * 64}}}"


def test_the_reference_servers_file_is_accepted_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    config = loads(REFERENCE)
    table = config.shares[0].schemas[0].tables[0]
    assert table.location == Location("s3", "bucket", "the/table/path")
    assert (table.history_shared, table.start_version) == (True, 3)
    assert config.shares[0].schemas[0].tables[1].location == Location("file", "", "/tables/two")
    assert config.pre_signed_url_timeout_seconds == 1800
    assert config.request_timeout_seconds == 30
    assert not config.evaluate_predicate_hints
    assert config.authorization is not None
    assert config.authorization.bearer_token.reveal() == "a-token"
    assert "unknown key" not in caplog.text


def test_a_whole_number_is_read_as_by_the_reference_server() -> None:
    config = loads(MINIMAL.replace("1", "1.0") + "preSignedUrlTimeoutSeconds: 3600.0\n")
    assert (config.version, config.pre_signed_url_timeout_seconds) == (1, 3600)


def test_the_gateway_map_adds_to_the_same_shares() -> None:
    with_ours = loads(REFERENCE + "gateway:\n  recipients:\n  - name: alice\n    shares: [SHARE1]\n")
    assert with_ours.shares == loads(REFERENCE).shares
    assert with_ours.gateway.recipients[0].name == "alice"


def test_unknown_keys_are_warned_of_with_place_and_nearest_key(caplog: pytest.LogCaptureFixture) -> None:
    loads(MINIMAL + "hots: x\ngateway:\n  recipents: []\n")
    assert "configuration:3: unknown key hots is ignored; did you mean host?" in caplog.text
    assert (
        "configuration:5: unknown key gateway.recipents is ignored; did you mean recipients?" in caplog.text
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "configuration: is empty; a file begins with `version: 1`"),
        ("a: [", "configuration:1: is not YAML"),
        ("a: 1\nb: c: d", "configuration:2: is not YAML: mapping values are not allowed"),
        ("[" * 100_000, "configuration: is not YAML (RecursionError)"),
        ("a: \0", "configuration: is not YAML: U+0000, its character 4, is not allowed"),
        ("a: 1\n---\nb: 2", "configuration:2: is not YAML: found another document"),
        (r'a: "\U00110000"', "configuration: is not YAML (YAMLError)"),
        ("- a", "configuration:1: expected a map of keys; accepted: version, shares, "),
        (MINIMAL + "ssl: true", "3: ssl: expected a map of keys; accepted: selfSigned, certificateFile, "),
        (MINIMAL + "shares: [a]", "shares[0]: expected a map of keys; accepted: name, id, "),
        (
            MINIMAL
            + "shares: [{name: a, schemas: [{name: b, tables: [{name: t, location: /t/_delta_log/}]}]}]",
            "tables[0].location: is the log of a table; give the directory that contains _delta_log",
        ),
        (
            MINIMAL + "shares: [{name: a, tables: [{name: t, location: /t}]}]",
            "shares[0].tables: expected a map of keys; accepted: discover or unityCatalog; a list of tables",
        ),
        ("host: x", "configuration:1: version: must be given"),
        ("version: 2", "configuration:1: version: 2 is not a supported version; accepted: 1"),
        (
            "version: 1",
            "gateway: no recipient could read: add one by `delta-gateway recipient add`",
        ),
        (MINIMAL + "port: x", "configuration:3: port: 'x' is not a whole number"),
        (MINIMAL + "port: 80.5", "configuration:3: port: '80.5' is not a whole number"),
        (MINIMAL + "port: 65536", "configuration:3: port: 65536 is too large; accepted: up to 65535"),
        (MINIMAL + "port: [1]", "configuration:3: port: expected a single value"),
        (MINIMAL + "host: ''", "configuration:3: host: may not be empty"),
        (MINIMAL + "gateway: {recipientsDatabase: ''}", "gateway.recipientsDatabase: may not be empty"),
        (
            MINIMAL + "gateway: {recipientsDatabase: 'postgresql://user@host/gateway'}",
            "gateway.recipientsDatabase: is a URL; accepted: a path of a file",
        ),
        (MINIMAL + "endpoint: api", "configuration:3: endpoint: 'api' is not a path prefix"),
        (MINIMAL + "endpoint: /a/../b", "endpoint: '/a/../b' is not a path prefix"),
        (MINIMAL + "endpoint: /a%20b", "endpoint: the value is not a path prefix"),
        (MINIMAL + "gateway: {endpointAliases: [/a, b]}", "endpointAliases[1]: 'b' is not a path prefix"),
        (MINIMAL + "gateway: {endpointAliases: ['/{a}']}", "endpointAliases[0]: the value is not a path"),
        *(
            (MINIMAL + f"host: '{host}'", f"3: host: '{host}' is neither an address nor the name of a host")
            for host in ("*", "localhost:8080", "0.0.0.0:80", "http://localhost")
        ),
        (MINIMAL + "host: a..b", "host: 'a..b' is neither an address nor the name of a host"),
        (MINIMAL + f"host: {'a' * 64}", "is neither an address nor the name of a host"),
        (MINIMAL + r'host: "a\0"', "host: the value is neither an address nor the name of a host"),
        (
            MINIMAL + f"gateway: {{admin: {{tokenSha256: {'a' * 64}, host: .a}}}}",
            "gateway.admin.host: '.a' is neither an address nor the name of a host",
        ),
        (
            MINIMAL + "gateway: {tracing: {endpoint: 'collector:4318'}}",
            "tracing.endpoint: 'collector:4318' is not a URL",
        ),
        (MINIMAL + f"gateway: {{publicUrl: 'https://{'a' * 64}.b'}}", "is not a URL; accepted: https://host"),
        (MINIMAL + r'gateway: {recipientsDatabase: "a\0"}', "recipientsDatabase: is no path of a file"),
        (
            MINIMAL + r'gateway: {tokenKeys: [{id: k, secretFile: "a\0"}]}',
            "gateway.tokenKeys[0].secretFile: is no path of a file",
        ),
        (MINIMAL + "version: 1", "configuration:3: version: given twice"),
        (MINIMAL + "shares: {}", "3: shares: expected a list: [a, b], or lines that begin with -"),
        (MINIMAL + "gateway: {drainSeconds: 30s}", "gateway.drainSeconds: '30s' is not a number"),
        (MINIMAL + "gateway: {drainSeconds: nan}", "gateway.drainSeconds: 'nan' is not a number"),
        (MINIMAL + "gateway: {drainSeconds: .inf}", "gateway.drainSeconds: '.inf' is not a number"),
        (MINIMAL + "gateway: {drainSeconds: -inf}", "gateway.drainSeconds: '-inf' is not a number"),
        (MINIMAL + "gateway: {drainSeconds: 1e999}", "gateway.drainSeconds: inf is too large"),
        (MINIMAL + "gateway: {maxStalenessSeconds: 1e300}", "is too large; accepted: up to 1000000000"),
        (MINIMAL + "gateway: {tracing: {endpoint: x, sampleRatio: nan}}", "'nan' is not a number"),
        (MINIMAL + "gateway: {limits: {recipient: {requestsPerSecond: nan}}}", "'nan' is not a number"),
        (MINIMAL + "port: \u0661\u0662", "port: '\u0661\u0662' is not a whole number"),
        (
            MINIMAL + "requestTimeoutSeconds: 9223372036854775807",
            "is too large; accepted: up to 9007199254740992",
        ),
        (
            MINIMAL + "gateway: {cors: {origins: ['https://a.example/']}}",
            "'https://a.example/' is not an origin",
        ),
        (
            MINIMAL + "gateway: {cors: {origins: [a.example]}}",
            "gateway.cors.origins: 'a.example' is not an origin",
        ),
        (MINIMAL + "gateway: {anonymous: y}", "gateway.anonymous: 'y' is neither true nor false"),
        (
            MINIMAL + "gateway: {limits: {<<: {memoryBytes: 1}}}",
            "gateway.limits: YAML's merge key << is not read",
        ),
        (
            MINIMAL
            + f"gateway:\n  recipients: [{{name: a, tokens: [{TOKEN_A}, {TOKEN_A.upper()}]}}]".lower(),
            "gateway.recipients: one token is given twice, to a and to a",
        ),
        (
            MINIMAL
            + f"gateway:\n  recipients: [{{name: a, tokens: [{TOKEN_A}]}}, {{name: b, tokens: [{TOKEN_A}]}}]",
            "gateway.recipients: one token is given twice, to a and to b",
        ),
        (MINIMAL + "shares: [{schemas: []}]", "configuration:3: shares[0].name: must be given"),
        (MINIMAL + "shares: [{name: a}, {name: A}]", "configuration:3: shares: 'A' is listed twice"),
        (MINIMAL + "shares: [{name: a/b}]", "shares[0].name: may not contain '/'"),
        (MINIMAL + "stalenessAcceptable: perhaps", "'perhaps' is neither true nor false"),
        (MINIMAL + "ssl: {certificateFile: c}", "ssl.certificateKeyFile: must be given, or selfSigned: true"),
        (MINIMAL + "preSignedUrlTimeoutSeconds: 604801", "is too large; accepted: up to 604800"),
        (MINIMAL + "host: ${NOT_SET}", "configuration:3: host: the environment variable NOT_SET is not set"),
        (
            MINIMAL + "gateway:\n  recipients: [{name: a, tokens: [{sha256: xyz}]}]",
            "configuration:4: gateway.recipients[0].tokens[0].sha256: expected 64 hexadecimal digits",
        ),
        (
            (
                f"{MINIMAL}gateway:\n  recipients:\n"
                f"  - {{name: a, clients: [{{id: c, secrets: [{{sha256: {OF_NOTHING}}}]}}]}}"
            ),
            "gateway.recipients[0].clients[0].secrets[0].sha256: is the SHA-256 of an empty text",
        ),
        (
            f"{MINIMAL}gateway:\n  anonymous: true\n  admin: {{tokenSha256: {OF_NOTHING.upper()}}}",
            "gateway.admin.tokenSha256: is the SHA-256 of an empty text; give that of a token",
        ),
        (
            MINIMAL + "gateway:\n  recipients: [{name: a, shares: [nope]}]",
            "recipient a is granted 'nope', which is not shared",
        ),
        (
            MINIMAL + "gateway:\n  recipients: [{name: a, shares: [{share: '*', schema: nope}]}]",
            "recipient a is granted '*.nope', which is not shared",
        ),
        (
            MINIMAL + "gateway:\n  recipients: [{name: a, shares: [{share: '*', table: t}]}]",
            "configuration:4: gateway.recipients[0].shares[0].table: is in a schema; give `schema`",
        ),
        (
            MINIMAL + "gateway:\n  recipients: [{name: a, shares: [{share: '*', where: x = 1}]}]",
            "gateway.recipients[0].shares[0].where: unknown key; accepted: share, schema, table, condition",
        ),
        (
            MINIMAL + "gateway: {recipients: [{name: a, ips: [10.0.0.0/8]}]}",
            "gateway.recipients[0].ips: unknown key; accepted: name, tokens, shares",
        ),
        (
            MINIMAL + "gateway: {recipients: [{name: a, clients: [{id: c, expires: 2027}]}]}",
            "gateway.recipients[0].clients[0].expires: unknown key; accepted: id, secrets",
        ),
        (
            MINIMAL
            + f"gateway: {{recipients: [{{name: a, tokens: [{{sha256: {'a' * 64}, notAfter: 2027}}]}}]}}",
            "gateway.recipients[0].tokens[0].notAfter: unknown key; accepted: sha256, expires",
        ),
        (
            MINIMAL + "gateway: {recipients: [{name: a, oidc: [{issuer: i, scope: read}]}]}",
            "gateway.recipients[0].oidc[0].scope: unknown key; accepted: issuer, subject, audiences",
        ),
        (
            MINIMAL + "gateway:\n  recipients: [{name: a, shares: [{share: '*', condition: }]}]",
            "gateway.recipients[0].shares[0].condition: has no value",
        ),
        (
            MINIMAL + "gateway:\n  recipients: [{name: a, shares: [{share: '*', condition: ''}]}]",
            "gateway.recipients[0].shares[0].condition: may not be empty",
        ),
        (
            MINIMAL + "gateway:\n  recipients: [{name: a, shares: [{schema: x}]}]",
            "gateway.recipients[0].shares[0].share: must be given",
        ),
        (
            MINIMAL + "gateway:\n  storages: [{prefix: 's3://b', accessKeyId: k}]",
            "gateway.storages[0].accessKeyId: accessKeyId and secretAccessKey go together",
        ),
        (
            MINIMAL + "gateway:\n  storages: [{prefix: /directory}]",
            "configuration:4: gateway.storages[0].prefix: a storage describes prefixes of S3, Azure",
        ),
        (
            MINIMAL + "gateway:\n  storages: [{prefix: 's3://b', endpoint: 'minio:9000'}]",
            "endpoint: 'minio:9000' is not a URL; accepted: https://host",
        ),
        (
            MINIMAL + "gateway: {publicUrl: 'https://user:password@host'}",
            "gateway.publicUrl: a user or password in a URL is not accepted; accepted: https://host",
        ),
        (
            MINIMAL + "gateway:\n  storages: [{prefix: 's3://b', endpoint: 'http://127.0.0.1:9000'}]",
            "storages[0].endpoint: a bucket is no part of an IP address; give pathStyle: true",
        ),
        (
            MINIMAL + "gateway:\n  storages: [{prefix: 's3://b', publicEndpoint: 'https://[::1]'}]",
            "storages[0].publicEndpoint: a bucket is no part of an IP address",
        ),
        (MINIMAL + "gateway:\n  tokenKeys: [{id: k, secret: short}]", "expected at least 16 bytes"),
        (
            MINIMAL + "gateway:\n  recipients: [{name: a, tokens: [{sha256: x, expires: soon}]}]",
            "expires: 'soon' is not an ISO-8601 time such as 2027-06-30T00:00:00Z",
        ),
    ],
)
def test_each_error_names_its_place_and_the_accepted_values(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(text, environment={})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("gateway: {recipients: [{name: a, network: [192.0.2.1]}]}", "networks"),
        ("gateway: {recipients: [{name: a, limit: {burstRequests: 1}}]}", "limits"),
        ("gateway: {recipients: [{name: a, limits: {concurrentstreams: 1}}]}", "concurrentStreams"),
        (
            f"gateway: {{recipients: [{{name: a, tokens: [{{sha256: {'a' * 64}, expire: 2027-01-01}}]}}]}}",
            "expires",
        ),
        ("gateway: {audit: {file: a, failclosed: true}}", "failClosed"),
        ("gateway: {audits: {file: a}}", "audit"),
        ("gateway: {limit: {memoryBytes: 67108864}}", "limits"),
        ("gateway: {limits: {recipients: {burstRequests: 1}}}", "recipient"),
        ("gatway: {audit: {file: a}}", "gateway"),
        ("sll: {selfSigned: true}", "ssl"),
        (
            "shares: [{name: a, schemas: [{name: b, tables: [{name: c, location: /t, startversion: 3}]}]}]",
            "startVersion",
        ),
    ],
)
def test_a_misspelt_key_that_protects_stops_the_start(text: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"configuration:3: .*: unknown key; did you mean {nearest}[?]"):
        loads(MINIMAL + text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "gateway: {networks: [10.0.0.0/8]}",
            "gateway.networks: the key belongs to gateway.recipients[].networks; without it there the server",
        ),
        ("gateway: {failClosed: true}", "gateway.failClosed: the key belongs to gateway.audit.failClosed; "),
        ("failclosed: true", "failclosed: the key belongs to gateway.audit.failClosed; "),
        (
            "shares: [{name: a, schema: []}]",
            "shares[0].schema: did you mean schemas? Otherwise the key belongs to",
        ),
        (
            "limits: {memoryBytes: 67108864}",
            "limits: the key belongs to gateway.limits, gateway.recipients[].limits; ",
        ),
        (
            "shares: [{name: a, startVersion: 3}]",
            "shares[0].startVersion: the key belongs to shares[].schemas[].tables[].startVersion",
        ),
        (
            "shares: [{name: a, schemas: [{name: b, tables: [{name: c, location: /t, columns: [x]}]}]}]",
            "tables[0].columns: the key belongs to shares[].schemas[].tables[].projection.columns, ",
        ),
    ],
)
def test_a_key_that_protects_on_another_level_stops_the_start(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(MINIMAL + text)
    assert message in str(caught.value)


def test_a_misspelt_key_is_not_taken_for_one_of_another_level(caplog: pytest.LogCaptureFixture) -> None:
    loads(MINIMAL + "share: []\n")
    assert "unknown key share is ignored; did you mean shares?" in caplog.text


def test_a_key_of_another_level_is_named_by_its_path(caplog: pytest.LogCaptureFixture) -> None:
    loads(MINIMAL + "publicUrl: https://share.example.com\npublicUrls: https://share.example.com\n")
    assert "unknown key publicUrl is ignored; did you mean gateway.publicUrl?" in caplog.text
    assert "unknown key publicUrls is ignored; did you mean gateway.publicUrl?" in caplog.text


def test_no_warning_names_a_part_of_a_location_as_a_key(caplog: pytest.LogCaptureFixture) -> None:
    loads(MINIMAL + "gateway: {anonymous: true, storages: [{prefix: 's3://b/', bucket: b, key: a}]}")
    for name in ("bucket", "key"):
        assert f"unknown key gateway.storages[0].{name} is ignored\n" in caplog.text


def test_a_key_of_an_earlier_reference_server_is_no_misspelt_key_of_another_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = "{name: t, location: /t, cdfEnabled: true}"
    loads(MINIMAL + f"shares: [{{name: s, schemas: [{{name: d, tables: [{table}]}}]}}]\n")
    assert "unknown key shares[0].schemas[0].tables[0].cdfEnabled is ignored\n" in caplog.text


@pytest.mark.parametrize(
    "secret", ["AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "x" * 64]
)
@pytest.mark.parametrize("section", ["", "gateway: "])
def test_a_secret_in_the_place_of_a_key_is_not_repeated(
    secret: str, section: str, caplog: pytest.LogCaptureFixture
) -> None:
    loads(MINIMAL + f"{section}{{{secret}: x}}".replace("{", "", not section).replace("}", "", not section))
    assert secret not in caplog.text
    assert "(a key that is not shown) is ignored" in caplog.text
    with pytest.raises(ConfigError) as caught:
        loads(MINIMAL + f"gateway: {{{secret}: x, {secret}: y}}")
    assert secret not in str(caught.value)


def test_a_dot_in_a_name_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    tables = "tables: [{name: t.u, location: /t}, {name: v, location: /v}]"
    loads(MINIMAL + f"shares: [{{name: a.b, schemas: [{{name: c.d, {tables}}}]}}]")
    warned = [record.getMessage() for record in caplog.records if "dot" in record.getMessage()]
    assert warned == [
        f"configuration: '{name}' contains a dot, so no official client can address it"
        for name in ("a.b", "c.d", "t.u")
    ]


@pytest.mark.parametrize("name", [".", ".."])
@pytest.mark.parametrize(
    "text",
    [
        "shares: [{name: '{}'}]",
        "shares: [{name: s, schemas: [{name: '{}'}]}]",
        "shares: [{name: s, schemas: [{name: d, tables: [{name: '{}', location: /t}]}]}]",
    ],
)
def test_names_that_clients_remove_from_paths_are_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=r"may not be '[.]' or '[.][.]'"):
        loads(MINIMAL + text.replace("{}", name))


def test_no_share_has_the_name_by_which_grants_name_every_share() -> None:
    with pytest.raises(ConfigError, match=r"shares\[0\].*may not be '[*]'"):
        loads(MINIMAL + "shares: [{name: '*'}]")


@pytest.mark.parametrize("key", ["networks", "limits"])
def test_a_key_that_protects_has_a_value_unless_it_is_a_section(key: str) -> None:
    text = MINIMAL + f"gateway:\n  recipients:\n  - name: a\n    {key}:\n"
    if key == "limits":
        assert loads(text).gateway.recipients[0].limits is None
    else:
        with pytest.raises(
            ConfigError, match=r"configuration:6: gateway.recipients\[0\].networks: has no value"
        ):
            loads(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ssl:", "ssl.certificateFile: must be given, or selfSigned: true"),
        ("gateway: {audit: }", "gateway.audit.file: must be given"),
        (f"gateway: {{admin: {{tokenSha256: {'a' * 64}, ssl: }}}}", "gateway.admin.ssl.certificateFile"),
        (
            "shares: [{name: s, schemas: [{name: d, tables: [{name: t, location: /t, projection: }]}]}]",
            "shares[0].schemas[0].tables[0].projection.source: must be given",
        ),
    ],
)
def test_a_section_that_protects_has_the_keys_that_it_needs(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loads(f"version: 1\nauthorization: {{bearerToken: t}}\n{text}")
    assert str(refused.value).startswith(f"configuration:3: {reason}")


@pytest.mark.parametrize("token", ["a\\nb", "a\\x7fb", " a", "a ", "a\\t", "\\0"])
def test_a_bearer_token_that_no_header_carries_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(ConfigError, match=r"authorization.bearerToken: no client can send it") as caught:
        loads(f'version: 1\nauthorization: {{bearerToken: "{token}"}}')
    assert repr(token) not in str(caught.value)


@pytest.mark.parametrize(
    "location",
    ["gs://b/x", "s3://", "relative/path", "file://host/x", "s3://b/../c", "/a/../b", "wasbs://c@a/x"],
)
def test_a_location_that_is_none_is_refused(location: str) -> None:
    text = MINIMAL + (
        f"shares:\n- name: a\n  schemas:\n  - name: b\n    tables:\n"
        f"    - {{name: c, location: '{location}'}}\n"
    )
    with pytest.raises(
        ConfigError, match=r"configuration:8: shares\[0\].schemas\[0\].tables\[0\].location: .*accepted"
    ):
        loads(text)


def test_names_are_read_as_they_stand_not_as_yaml_guesses() -> None:
    config = loads(MINIMAL + "shares: [{name: no}, {name: 2024}, {name: 1e3}]")
    assert [share.name for share in config.shares] == ["no", "2024", "1e3"]


def test_a_merge_key_in_quotes_is_a_name() -> None:
    shares = loads(MINIMAL + "shares: [{name: s, properties: {'<<': a}}]").shares
    assert shares[0].properties == {"<<": "a"}


@pytest.mark.parametrize(
    ("host", "is_refused"),
    [("localhost", True), ("127.0.0.1", True), ("0.0.0.0", True), ("192.0.2.1", False)],
)
def test_the_port_of_the_admin_listener_is_not_that_of_the_server(host: str, is_refused: bool) -> None:
    text = f"{MINIMAL}host: {host}\nport: 8081\ngateway: {{admin: {{tokenSha256: {'a' * 64}}}}}"
    if not is_refused:
        assert loads(text).gateway.admin is not None
        return
    with pytest.raises(ConfigError, match=r"gateway\.admin\.port: 8081 is the port of the server"):
        loads(text)


@pytest.mark.parametrize(
    ("host", "admin", "is_refused"),
    [
        ("0.0.0.0", "::1", False),
        ("::1", "0.0.0.0", False),
        ("0.0.0.0", "::", True),
        ("::", "127.0.0.1", True),
    ],
)
def test_addresses_of_ipv6_have_ports_of_their_own_beside_all_of_ipv4(
    host: str, admin: str, is_refused: bool
) -> None:
    listener = f"{{host: '{admin}', tokenSha256: {'a' * 64}}}"
    text = f"{MINIMAL}host: '{host}'\nport: 8081\ngateway: {{admin: {listener}}}"
    with pytest.raises(ConfigError, match="is the port of the server") if is_refused else nullcontext():
        loads(text)


def test_the_url_of_a_collector_may_have_a_query() -> None:
    endpoint = "https://collector.example/v1/traces?team=a"
    tracing = loads(f"{MINIMAL}gateway: {{tracing: {{endpoint: '{endpoint}'}}}}").gateway.tracing
    assert tracing is not None
    assert tracing.endpoint == endpoint


def test_a_configuration_without_recipients_is_refused_unless_anonymous() -> None:
    with pytest.raises(ConfigError, match="no recipient could read"):
        loads("version: 1\ngateway: {anonymous: false}")
    assert loads("version: 1\ngateway: {anonymous: true}").gateway.anonymous


def test_variables_are_replaced_inside_of_scalars_and_can_be_escaped() -> None:
    config = loads(
        MINIMAL + "host: ${H}.example\nport: ${P}\nendpoint: /$${x}", environment={"H": "a", "P": "7"}
    )
    assert (config.host, config.port, config.endpoint) == ("a.example", 7, "/${x}")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('shares: [{name: s, comment: "\\ud800"}]', "shares[0].comment"),
        ('shares: [{name: s, properties: {"\\udfff": a}}]', "shares[0].properties"),
        ("shares: [{name: s, comment: '${BYTES}'}]", "shares[0].comment"),
    ],
)
def test_a_text_that_no_answer_can_have_is_refused(text: str, key: str) -> None:
    with pytest.raises(ConfigError, match="half of a surrogate pair") as refused:
        loads(f"version: 1\ngateway: {{anonymous: true}}\n{text}\n", environment={"BYTES": "\udcff"})
    assert refused.value.key == key


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read"):
        load(tmp_path / "absent.yaml")


def test_times_without_an_offset_are_utc() -> None:
    config = loads(
        MINIMAL
        + f"gateway:\n  recipients: [{{name: a, tokens: [{{sha256: {'0' * 64}, expires: 2027-06-30}}]}}]"
    )
    assert config.gateway.recipients[0].tokens[0].expires == datetime(2027, 6, 30, tzinfo=UTC)


def test_the_public_url_follows_host_port_and_ssl() -> None:
    assert loads(MINIMAL + "host: ::1\nport: 8").public_url == "http://[::1]:8"
    assert loads(MINIMAL + "port: 8\nssl: {selfSigned: true}").public_url == "https://localhost:8"
    assert loads(MINIMAL + "gateway: {publicUrl: 'https://x.example/'}").public_url == "https://x.example"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("preSignedUrlTimeoutSeconds: 900", "Spark clients refuse URLs that live 15 minutes or less"),
        ("host: localhost", "gateway.tokenKeys is missing"),
        ("host: localhost", "authorization.bearerToken can be guessed"),
        (
            "gateway: {publicUrl: 'https://a.example/delta-sharing/'}",
            "in the endpoint: profiles name https://a.example/delta-sharing/delta-sharing",
        ),
        ("shares: [{name: a b}]", "'a b' contains a blank"),
        (
            "host: 0.0.0.0\nshares: [{name: a, schemas: [{name: b, tables: [{name: c, location: /t}]}]}]",
            "gateway.publicUrl is missing: URLs of local tables will begin with http://0.0.0.0:80",
        ),
        (
            "port: 0\nshares: [{name: a, schemas: [{name: b, tables: [{name: c, location: /t}]}]}]",
            "gateway.publicUrl is missing: URLs of local tables will begin with http://localhost:0",
        ),
    ],
)
def test_valid_but_surprising_settings_cause_a_warning(
    text: str, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    loads(MINIMAL + text)
    assert [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning in caplog.text


def test_a_table_may_stand_in_two_shares_but_two_tables_have_two_ids() -> None:
    def shares(other: str) -> str:
        tables = [f"tables: [{{name: t, location: {place}, id: x}}]" for place in ("/a", other)]
        return "shares:\n" + "".join(
            f"- {{name: s{index}, schemas: [{{name: c, {table}}}]}}\n" for index, table in enumerate(tables)
        )

    assert len(loads(MINIMAL + shares("/a")).shares) == 2
    with pytest.raises(ConfigError, match="the id 'x' belongs to tables of different locations"):
        loads(MINIMAL + shares("/b"))


def test_the_id_of_a_table_is_not_that_which_the_names_of_another_one_make() -> None:
    # As of a table that was renamed and keeps its id, whose former name another one gets.
    tables = f"{{name: old, location: /a, id: {stable_id('S', 'd', 'T')}}}, {{name: t, location: "
    text = f"{MINIMAL}shares: [{{name: s, schemas: [{{name: d, tables: [{tables}/b}}]}}]}}]\n"
    with pytest.raises(ConfigError, match=r"tables of different locations, of which one is s\.d\.t"):
        loads(text)
    assert loads(text.replace("/b", "/a")).shares


def test_a_configuration_is_frozen() -> None:
    config: Config = loads(MINIMAL)
    with pytest.raises(AttributeError):
        config.port = 1  # type: ignore[misc]


def test_a_secret_file_is_kept_with_its_state_from_before_it_was_read(tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("first")
    (tmp_path / "c.yaml").write_text(
        "version: 1\nshares: []\nauthorization: {bearerTokenFile: key}\ngateway: {anonymous: true}\n"
    )
    config = load(tmp_path / "c.yaml")
    assert config.secret_files == (secret,)
    assert config.secret_stamp == stamp([secret])
    secret.write_text("second one")
    assert config.secret_stamp != stamp([secret])
