"""Templates of discovery, where a configuration may have them, and the grants that they allow."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.documentation import blocks, page, section

from gateway.config import Config, ConfigError, Location, loads
from gateway.config.location_template import LocationTemplate


def configured(share: dict[str, Any], grant: Any = "*") -> Config:
    recipient = {"name": "a", "tokens": [{"sha256": "a" * 64}], "shares": [grant]}
    settings = {
        "version": 1,
        "shares": [{"name": "s", **share}],
        "gateway": {"recipients": [recipient], "storages": [{"prefix": "az://lake/", "account": "acct"}]},
    }
    return loads(yaml.safe_dump(settings))


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("s3://b/w/{schema}.db/{table}/", Location("s3", "b", "w")),
        ("s3://b/{schema}/tables/{table}", Location("s3", "b", "")),
        ("abfss://lake@acct.dfs.core.windows.net/w/{schema}/{table}", None),
        ("https://acct.blob.core.windows.net/lake/w/{schema}/a%20{table}", None),
        ("/w/{schema}/{table}", Location("file", "", "/w")),
        ("/{schema}/{table}", Location("file", "", "/")),
        ("file:///w/{schema}/{table}", Location("file", "", "/w")),
        ("gs://bucket/w/{schema}/{table}", Location("gs", "bucket", "w")),
    ],
)
def test_a_template_has_a_root_and_directories(text: str, root: Location | None) -> None:
    template = LocationTemplate.parse(text)
    assert template.names_schemas
    assert template.root == (root or Location.parse("abfss://lake@acct.dfs.core.windows.net/w"))
    names = {level.names for level in template.levels}
    assert {"schema", "table"} <= names
    (table,) = [level for level in template.levels if level.names == "table"]
    assert table.before == ("a " if "%20" in text else "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("s3://b/w/", "names no {table}"),
        ("s3://b/w/{schema}/", "has {table} once"),
        ("s3://b/w/{table}/{schema}/", "has {table} once"),
        ("s3://b/w/{table}/{table}/", "has {table} once"),
        ("s3://b/w/{schema}-{table}/", "cannot be searched"),
        ("s3://b/w/{catalog}/{table}/", "neither {schema} nor {table}"),
        ("s3://b/w/{table}/../x", "cannot be searched"),
        ("s3://b/w//{schema}//{table}", "accepted"),
        ("s3://b/w/{schema/{table}", "accepted"),
        ("s3://{schema}/{table}", "accepted"),
        ("s3://b/" + "x/" * 3 + "{schema}/" + "y/" * 20 + "{table}", "more than 16"),
        ("/w/../{schema}/{table}", "'..'"),
        ("{schema}/{table}", "accepted"),
        ("file:///w/{schema}/%ff{table}", "a percent-encoded location is not UTF-8"),
    ],
)
def test_an_odd_template_is_refused_with_what_is_accepted(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configured({"tables": {"discover": text}})
    assert problem in str(refused.value)
    assert "shares[0].tables" in str(refused.value)


def test_the_account_of_a_template_is_that_of_its_storage() -> None:
    (source,) = configured({"tables": {"discover": "az://lake/w/{schema}/{table}"}}).sources
    assert source.discovery.template.root.account == "acct"


def test_a_schema_has_a_template_without_schemas_and_a_share_one_with_them() -> None:
    of_schema = {"schemas": [{"name": "d", "tables": {"discover": "s3://b/d/{table}/", "everySeconds": 7}}]}
    (source,) = configured(of_schema).sources
    assert (source.share, source.schema, source.discovery.every_seconds) == ("s", "d", 7)
    assert configured(of_schema).shares[0].schemas[0].tables == ()
    with pytest.raises(ConfigError, match=r"\{table\} alone"):
        configured({"schemas": [{"name": "d", "tables": {"discover": "s3://b/{schema}/{table}/"}}]})
    with pytest.raises(ConfigError, match=r"has no \{schema\}"):
        configured({"tables": {"discover": "s3://b/{table}/"}})
    with pytest.raises(ConfigError, match="expected a list"):
        configured({"schemas": [{"name": "d", "tables": "s3://b/{table}/"}]})


@pytest.mark.parametrize(
    ("grant", "is_accepted"),
    [
        ({"share": "s", "schema": "any"}, True),
        ({"share": "s", "schema": "any", "table": "t"}, True),
        ({"share": "*", "schema": "any", "table": "t"}, True),
        ({"share": "o", "schema": "any"}, False),
        ("o", False),
    ],
)
def test_what_may_be_found_may_be_granted(grant: Any, is_accepted: bool) -> None:
    share = {"tables": {"discover": "s3://b/{schema}/{table}/"}}
    if is_accepted:
        configured(share, grant)
    else:
        with pytest.raises(ConfigError, match="which is not shared"):
            configured(share, grant)


def test_a_template_of_a_schema_allows_grants_in_that_schema_alone() -> None:
    share = {"schemas": [{"name": "d", "tables": {"discover": "s3://b/{table}/"}}, {"name": "e"}]}
    configured(share, {"share": "s", "schema": "D", "table": "t"})
    with pytest.raises(ConfigError, match="which is not shared"):
        configured(share, {"share": "s", "schema": "e", "table": "t"})


CATALOG = {"url": "https://uc.example.com", "catalog": "main", "within": ["az://lake/w"]}

CLIENT = {"tokenEndpoint": "https://uc.example.com/token", "clientId": "c", "clientSecret": "pw"}


def of_catalog(**keys: Any) -> dict[str, Any]:
    return {"unityCatalog": {name: value for name, value in (CATALOG | keys).items() if value is not None}}


def test_a_catalog_takes_the_place_of_a_template() -> None:
    (source,) = configured({"tables": of_catalog(names="{catalog}_{schema}.{table}")}).sources
    catalog = source.discovery.unity_catalog
    assert catalog is not None
    assert catalog.api_url == "https://uc.example.com/api/2.1/unity-catalog"
    assert catalog.within[0].account == "acct", "the account is that of the storage"
    assert catalog.shared_names("a.b", "t", names_schemas=True) == ("main_a.b", "t")
    assert [*configured({"tables": of_catalog()}).locations] == [catalog.within[0]]
    for url in ("https://uc.example.com/", "https://uc.example.com/api/2.1/unity-catalog/"):
        (other,) = configured({"tables": of_catalog(url=url)}).sources
        assert other.discovery.unity_catalog is not None
        assert other.discovery.unity_catalog.api_url == catalog.api_url
    schemas = [{"name": "d", "tables": of_catalog(names="{schema}_{table}")}]
    (source,) = configured({"schemas": schemas}).sources
    assert source.discovery.unity_catalog is not None
    assert source.discovery.unity_catalog.shared_names("a", "t", names_schemas=False) == ("", "a_t")


@pytest.mark.parametrize(
    "changes",
    [
        {"within": ["az://lake/w/inner"]},
        {"schemas": ["a"]},
        {"names": "x{schema}.{table}"},
        {"catalog": "other"},
        {"url": "https://uc.example.com/other"},
    ],
)
def test_what_was_found_under_other_settings_is_not_kept(changes: dict[str, Any]) -> None:
    before, after = (configured({"tables": of_catalog(**keys)}) for keys in ({}, changes))
    assert next(before.sources).key != next(after.sources).key
    renewed = configured({"tables": of_catalog(token="t", allowPrivateAddresses=True)})
    assert next(renewed.sources).key == next(before.sources).key


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        (of_catalog(within=[]), "is empty"),
        (of_catalog(within=None), "must be given"),
        (of_catalog(url="http://uc.example.com"), "https only"),
        (of_catalog(url="https://127.0.0.1"), "private addresses"),
        (of_catalog(url="https://user:pw@uc.example.com"), "user or password"),
        (of_catalog(url="https://uc.example.com/?token=x"), "is not a URL"),
        (of_catalog(token="two words"), "no client can send"),
        (of_catalog(token="line\n"), "no client can send"),
        (of_catalog(oauth={"clientId": "c"}), "must be given"),
        (of_catalog(token="t", oauth=CLIENT), "beside a token"),
        (of_catalog(oauth=CLIENT | {"tokenEndpoint": "http://uc.example.com/token"}), "https only"),
        (of_catalog(oauth=CLIENT | {"tokenEndpoint": "https://10.0.0.1/token"}), "private addresses"),
        (of_catalog(names="{schema}"), "not a form of names"),
        (of_catalog(names="{database}.{table}"), "not a form of names"),
        (of_catalog(names="{schema}.{table"), "not a form of names"),
        (of_catalog(names="{schema}/x.{table}"), "not a form of names"),
        (of_catalog(names="{table}"), "does not name a schema and a table"),
        (of_catalog(names="a.{schema}.{table}"), "does not name a schema and a table"),
        (of_catalog(scheme=["a"]), "did you mean schemas"),
        (of_catalog() | {"maxDepth": 1}, "applies to directories"),
        (of_catalog() | {"discover": "s3://b/{schema}/{table}"}, "in its place"),
        ({"everySeconds": 5}, "must be given"),
    ],
)
def test_an_odd_catalog_is_refused(tables: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configured({"tables": tables})
    assert problem in str(refused.value)
    assert "pw" not in str(refused.value)


def test_the_samples_of_the_page_load(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    discovery = section(page("shares"), "Discovery")
    samples = [
        text.replace("/run/secrets/catalog-token", f"{tmp_path}/token") for text in blocks(discovery, "yaml")
    ]
    found = [loads(f"version: 1\ngateway: {{anonymous: true}}\n{text}").sources for text in samples]
    kinds = [[source.discovery.unity_catalog is not None for source in sources] for sources in found]
    assert kinds == [[False, False], [True, True], []]
