"""Tables that may not offer directory access stop the start, by name and with what to change."""

import json
from typing import Any

import pytest

from gateway.config import Config, ConfigError, Location, StorageEntry, loads
from gateway.config.networks import address_range, parse_networks
from gateway.config.sections import Gateway

ROLE = "arn:aws:iam::123456789012:role/reader"
S3 = {"prefix": "s3://lake/", "roleArn": ROLE}
AZURE = {"prefix": "abfss://data@acct.dfs.core.windows.net/", "hierarchicalNamespace": True}
GOOGLE = {"prefix": "gs://lake/"}
COMPATIBLE = {
    "prefix": "s3://compatible/",
    "roleArn": ROLE,
    "endpoint": "https://minio.example",
    "stsEndpoint": "https://minio.example",
}
HASH = "0" * 64


def table(location: str = "s3://lake/sales/orders", **keys: Any) -> dict[str, Any]:
    found = {"name": "orders", "location": location, "historyShared": True, "accessModes": ["url", "dir"]}
    return found | keys


def load(*tables: dict[str, Any], storages: Any = (S3, AZURE, GOOGLE), **gateway: Any) -> Config:
    named = [{**one, "name": f"{one['name']}{number or ''}"} for number, one in enumerate(tables)]
    settings = {
        "version": 1,
        "shares": [{"name": "sales", "schemas": [{"name": "public", "tables": named}]}],
        "gateway": {"anonymous": True, "storages": list(storages)} | gateway,
    }
    return loads(json.dumps(settings), file="share.yaml", environment={})


def recipient(*networks: str, shares: list[str] | None = None) -> dict[str, Any]:
    return {
        "name": "alice",
        "tokens": [{"sha256": HASH}],
        "shares": shares or ["sales"],
        "networks": list(networks),
    }


GOOD = ["s3://lake/sales/orders", "abfss://data@acct.dfs.core.windows.net/t", "gs://lake/t"]


@pytest.mark.parametrize("location", GOOD)
def test_a_table_of_each_store_offers_its_directory(location: str) -> None:
    config = load(table(location), recipients=[recipient()])
    assert config.shares[0].schemas[0].tables[0].access_modes == ("url", "dir")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"historyShared": False}, "historyShared: true"),
        ({"startVersion": 3}, "startVersion"),
        ({"location": "s3://lake/"}, "whole bucket"),
        ({"location": "gs://lake"}, "whole bucket"),
        ({"location": "abfss://data@acct.dfs.core.windows.net/"}, "whole bucket"),
        ({"location": "/tables/orders"}, "local files"),
        ({"location": "file:///tables/orders"}, "local files"),
        ({"location": "abfss://flat@acct.dfs.core.windows.net/t"}, "hierarchicalNamespace: true"),
        ({"location": "s3://bare/t"}, "roleArn"),
        ({"location": "s3://lake-s3alias/t"}, "access point"),
        ({"location": "s3://compatible/a*b"}, "its path"),
        ({"location": "s3://compatible/a?b"}, "its path"),
        ({"location": "s3://compatible/a$b"}, "its path"),
        ({"location": "s3://aws-alone/t"}, "give stsEndpoint"),
        ({"location": "https://acct.blob.core.windows.net/data/a%3Fb"}, "its path has ? or #"),
        ({"location": "https://acct.blob.core.windows.net/data/a%23b"}, "its path has ? or #"),
        ({"location": "gs://hmac/t"}, "credentialsFile"),
    ],
)
def test_what_would_leak_is_refused_with_the_table_and_what_to_change(
    keys: dict[str, Any], reason: str
) -> None:
    storages = [
        S3,
        AZURE,
        {"prefix": "s3://bare/"},
        {"prefix": "s3://lake-s3alias/", "roleArn": ROLE},
        COMPATIBLE,
        {"prefix": "s3://aws-alone/", "roleArn": ROLE, "endpoint": "https://minio.example"},
        {"prefix": "gs://hmac/", "accessKeyId": "a", "secretAccessKey": "b"},
    ]
    with pytest.raises(ConfigError) as refused:
        load(table(**keys), storages=storages)
    assert str(refused.value).startswith(
        "share.yaml: shares: sales.public.orders cannot offer directory access: "
    )
    assert reason in str(refused.value)
    assert "remove dir from accessModes" in str(refused.value)
    # Without directory access nothing is wrong.
    load(table(**keys) | {"accessModes": ["url"]}, storages=storages)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("s3://lake/sales", "s3a://lake/sales/orders/"),
        ("s3n://lake/sales/", "s3://lake/sales/x/y"),
        ("gs://lake/sales", "gs://lake/sales/orders"),
        ("gs://lake/sales", "s3://lake/sales/orders"),
        (
            "abfss://data@acct.dfs.core.windows.net/sales",
            "wasbs://data@acct.blob.core.windows.net/sales/orders",
        ),
        (
            "abfs://data@acct.dfs.core.windows.net/a b",
            "https://acct.blob.core.windows.net/data/a%20b/orders",
        ),
    ],
)
def test_a_table_within_the_directory_of_another_is_refused(outer: str, inner: str) -> None:
    interoperable = {"prefix": "s3://lake/", "endpoint": "https://storage.googleapis.com"}
    storages = [interoperable if "gs:" in outer else S3, AZURE, GOOGLE]
    url_only = table(inner, accessModes=["url"], historyShared=False)
    with pytest.raises(ConfigError, match=r"orders cannot .* files of sales\.public\.orders1 lie within"):
        load(table(outer), url_only, storages=storages)
    load(
        table(outer),
        table(inner.replace("sales", "sales2").replace("b/o", "bc/o")),
        storages=[*storages[1:], S3],
    )


def test_a_table_beside_and_the_same_table_in_another_share_are_accepted() -> None:
    load(table("s3://lake/sales"), table("s3://lake/sales2"), table("s3://lake/sales"))


def test_an_auxiliary_location_is_an_allowed_root_and_holds_no_other_table() -> None:
    clone = table("s3://lake/clone", auxiliaryLocations=["s3://lake/source"])
    roots = ["s3://lake/source"]
    load(clone, allowedRoots=roots)
    load(clone, table("s3://lake/source"), allowedRoots=roots)
    with pytest.raises(ConfigError, match="allowedRoots"):
        load(clone)
    with pytest.raises(ConfigError, match="orders1 lie within"):
        load(clone, table("s3://lake/source/x"), allowedRoots=roots)
    with pytest.raises(ConfigError, match="orders1 lie within"):
        load(clone, table("s3://lake/source", accessModes=["url"]), allowedRoots=roots)
    with pytest.raises(ConfigError, match="whole bucket"):
        load(clone | {"auxiliaryLocations": ["s3://lake/"]}, allowedRoots=["s3://lake/"])
    with pytest.raises(ConfigError, match="add dir"):
        load(clone | {"accessModes": ["url"]}, allowedRoots=roots)


def test_a_table_that_offers_its_directory_lies_within_no_other_table() -> None:
    history = table("s3://lake/sales", accessModes=["url"], startVersion=10)
    with pytest.raises(ConfigError, match=r"directory lies within that of sales\.public\.orders1; move"):
        load(table("s3://lake/sales/region=EU"), history)
    load(table("s3://lake/sales"), history)


def test_a_table_that_offers_its_directory_contains_no_sources_of_other_clones() -> None:
    clone = table("s3://lake/clone", accessModes=["url"])
    with pytest.raises(ConfigError, match=r"orders cannot .* files of gateway\.allowedRoots lie within"):
        load(table("s3://lake/sales"), clone, allowedRoots=["s3://lake/sales/source"])
    load(table("s3://lake/sales"), clone, allowedRoots=["s3://lake/sales"])
    load(table("s3://lake/sales"), clone, allowedRoots=["s3://lake"])
    # A directory that the table names itself is no one else's.
    own = table("s3://lake/sales", auxiliaryLocations=["s3://lake/sales/source"])
    load(own, clone, allowedRoots=["s3://lake/sales/source"])


def test_the_source_of_a_clone_is_offered_in_the_share_of_the_clone_if_in_any() -> None:
    def shares(*tables: dict[str, Any]) -> None:
        found = [
            {"name": f"share{number}", "schemas": [{"name": "public", "tables": [one]}]}
            for number, one in enumerate(tables)
        ]
        found[0]["schemas"].append({"name": "further", "tables": list(tables[2:])})
        settings = {"storages": [S3], "anonymous": True, "allowedRoots": ["s3://lake/source"]}
        loads(json.dumps({"version": 1, "shares": found[:2], "gateway": settings}), environment={})

    clone = table("s3://lake/clone", auxiliaryLocations=["s3://lake/source"])
    source = table("s3://lake/source")
    with pytest.raises(ConfigError, match=r"share0\.public\.orders cannot .* in the share share0"):
        shares(clone, source)
    shares(clone, source, source)
    # Two clones of a source that no share has.
    shares(clone, table("s3://lake/clone2", auxiliaryLocations=["s3://lake/source"]))


INTEROPERABLE = {"accessKeyId": "a", "secretAccessKey": "b", "region": "auto"}


@pytest.mark.parametrize(
    ("outer", "inner", "endpoint"),
    [
        ("s3://lake/sales", "s3://LAKE/sales/orders", None),
        ("s3://lake/sales", "s3://points-123-s3alias/sales/orders", None),
        ("s3://lake/sales", "s3://points-123--ol-s3/sales/orders", None),
        ("gs://data/sales", "s3://data/sales/orders", "https://storage.googleapis.com."),
        ("gs://data/sales", "s3://Data/sales/orders", "https://storage.europe-west3.rep.googleapis.com"),
    ],
)
def test_a_bucket_is_found_by_its_other_names(outer: str, inner: str, endpoint: str | None) -> None:
    storages = [S3, {"prefix": "s3://Data/", "endpoint": endpoint, **INTEROPERABLE}] if endpoint else [S3]
    if endpoint:
        storages.append({"prefix": "s3://data/", "endpoint": endpoint, **INTEROPERABLE})
    with pytest.raises(
        ConfigError, match=r"files of sales\.public\.orders1( \(by the alias.*\))? lie within"
    ):
        load(table(outer), table(inner, accessModes=["url"]), storages=storages)
    load(table(outer), table(inner.replace("sales", "sales2"), accessModes=["url"]), storages=storages)
    # A host that ends like one of Google is another.
    if endpoint:
        storages = [{**one, "endpoint": "https://notgoogleapis.com"} for one in storages[1:]]
        load(table(outer), table(inner, accessModes=["url"]), storages=storages)


@pytest.mark.parametrize(
    ("location", "networks", "is_accepted"),
    [
        ("s3://lake/t", ["192.0.2.0/24", "2001:db8::/32"], True),
        ("abfss://data@acct.dfs.core.windows.net/t", ["192.0.2.0/24"], True),
        ("abfss://data@acct.dfs.core.windows.net/t", ["192.0.2.0/24", "198.51.100.0/24"], False),
        ("abfss://data@acct.dfs.core.windows.net/t", ["2001:db8::/32"], False),
        ("gs://lake/t", ["192.0.2.0/24"], False),
    ],
)
def test_recipients_with_networks_that_a_store_cannot_hold_are_refused(
    location: str, networks: list[str], is_accepted: bool
) -> None:
    if is_accepted:
        load(table(location), recipients=[recipient(*networks)])
        return
    for shares in (["SALES"], ["*"]):
        with pytest.raises(ConfigError, match="the recipient alice has networks"):
            load(table(location), recipients=[recipient(*networks, shares=shares)])
    # A recipient without the share does not matter.
    nobody = recipient(*networks) | {"shares": []}
    load(table(location), recipients=[nobody])


@pytest.mark.parametrize("modes", [[], ["url", "url"], ["directory"]])
def test_access_modes_are_url_and_dir(modes: list[str]) -> None:
    with pytest.raises(ConfigError, match="accessModes"):
        load(table(accessModes=modes))


@pytest.mark.parametrize("seconds", [0, 899, 43_201])
def test_credentials_live_from_a_quarter_of_an_hour_to_twelve_hours(seconds: int) -> None:
    with pytest.raises(ConfigError, match="temporaryCredentialValiditySeconds"):
        loads(f"version: 1\ntemporaryCredentialValiditySeconds: {seconds}\ngateway: {{anonymous: true}}")


@pytest.mark.parametrize("kind", ["tables", "volumes"])
@pytest.mark.parametrize("key", ["gateway.anonymous", "authorization.bearerToken"])
def test_credentials_without_a_recipient_cause_a_warning(
    kind: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings(one: dict[str, Any], reader: dict[str, Any]) -> str:
        caplog.clear()
        shares = [{"name": "sales", "schemas": [{"name": "public", kind: [one]}]}]
        gateway = {"storages": [S3], **reader.get("gateway", {})}
        loads(json.dumps({"version": 1, "shares": shares, **reader, "gateway": gateway}), environment={})
        return caplog.text

    section, name = key.split(".")
    reader = {section: {name: "true"}}
    one = table() if kind == "tables" else {"name": "files", "location": "s3://lake/files"}
    assert f"{key} with directory access or volumes" in warnings(one, reader)
    assert "directory access" not in warnings(one, {"gateway": {"recipients": [recipient()]}})
    if kind == "tables":
        assert "directory access" not in warnings(one | {"accessModes": ["url"]}, reader)


def test_a_location_keeps_its_scheme_for_clients() -> None:
    for text in ("s3a://lake/t", "s3n://lake/t", "gs://lake/t", "wasbs://data@acct.blob.core.windows.net/t"):
        found = load(table(text)) if "wasbs" not in text else load(table(text), storages=[AZURE])
        assert found.shares[0].schemas[0].tables[0].location.hadoop_url == text
    config = load(table("https://acct.blob.core.windows.net/data/a%20b"))
    location = config.shares[0].schemas[0].tables[0].location
    assert location.hadoop_url == "abfss://data@acct.dfs.core.windows.net/a b"


@pytest.mark.parametrize(("scheme", "service"), [("wasb", "blob"), ("abfs", "dfs")])
def test_a_location_of_azure_is_shown_by_its_encrypted_scheme(scheme: str, service: str) -> None:
    config = load(table(f"{scheme}://data@acct.{service}.core.windows.net/t"), storages=[AZURE])
    location = config.shares[0].schemas[0].tables[0].location
    assert location.hadoop_url == f"{scheme}s://data@acct.{service}.core.windows.net/t"


def test_the_check_takes_time_in_proportion_to_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Location] = []
    storage = Gateway.storage

    def counted(section: Gateway, location: Location) -> StorageEntry:
        found.append(location)
        return storage(section, location)

    monkeypatch.setattr(Gateway, "storage", counted)
    counts = []
    for number in (20, 40):
        found.clear()
        load(*(table(f"s3://lake/a/{one}") for one in range(number)), recipients=[recipient("192.0.2.0/24")])
        counts.append(len(found))
    assert counts[1] == 2 * counts[0]


def test_adjacent_networks_are_one_range() -> None:
    assert address_range(()) is None
    first, last = address_range(parse_networks(["192.0.2.128/25", "192.0.2.0/25"])) or (None, None)
    assert (str(first), str(last)) == ("192.0.2.0", "192.0.2.255")
