"""Projections in the configuration: where their tables are, and what is refused."""

import json
from typing import Any

import pytest
import yaml
from support.documentation import page

from gateway.catalog.catalog import Catalog
from gateway.catalog.discovered import Discovered, FoundTable, with_discovered
from gateway.catalog.stored_shares import StoredSchema, StoredShare, StoredTable, with_stored
from gateway.config import ConfigError, Location, Secret, TableEntry, loads

RULE: dict[str, Any] = {"source": "/lake/customers", "columns": ["id", "name"], "where": "id > 3"}
HASHED = {"name": "mail", "function": "sha256"}
ROLE = "arn:aws:iam::123456789012:role/reader"


def read(
    rule: dict[str, Any], *others: dict[str, Any], gateway: dict[str, Any] | None = None, **table: Any
) -> Any:
    """Load a configuration with one projection and other tables."""
    entry = {"name": "t", "location": "/shared/t", "projection": rule} | table
    shares = [{"name": "s", "schemas": [{"name": "d", "tables": [entry, *others]}]}]
    gateway = {"anonymous": True} | (gateway or {})
    return loads(yaml.safe_dump({"version": 1, "shares": shares, "gateway": gateway}))


def root(rule: dict[str, Any]) -> str:
    """The directory that the server reads."""
    (table,) = Catalog.of(read(rule).shares).tables()
    return table.location.key


def test_the_table_is_in_a_directory_of_its_rule() -> None:
    base, _, name = root(RULE).rpartition("/")
    assert base == "/shared/t"
    assert len(name) == 32
    assert root(dict(RULE)) == root(RULE)


@pytest.mark.parametrize(
    "change",
    [
        {"source": "/lake/others"},
        {"columns": ["name", "id"]},
        {"columns": ["id", {"name": "name", "function": "prefix", "length": 3}]},
        {"columns": ["id", {"name": "name", "column": "title"}]},
        {"where": "id > 4"},
        {"where": None},
        {"partitionBy": ["id"]},
        {"minimumGroup": {"columns": ["name"], "rows": 5}},
    ],
)
def test_another_rule_is_in_another_directory(change: dict[str, Any]) -> None:
    changed = {key: value for key, value in (RULE | change).items() if value is not None}
    assert root(changed) != root(RULE)


def test_a_rule_that_publishes_less_often_stays_in_its_directory() -> None:
    assert root(RULE | {"publishEverySeconds": 3600}) == root(RULE)


def test_another_salt_is_another_directory_and_no_name_shows_it() -> None:
    rules = [RULE | {"columns": [HASHED], "salt": letter * 16} for letter in "ab"]
    first, second = map(root, rules)
    assert first != second
    assert "aaaa" not in first
    (table,) = (t for s in read(rules[0]).shares for c in s.schemas for t in c.tables)
    assert "a" * 16 not in repr(table)
    assert table.projection.salt == Secret("a" * 16)


def test_an_entry_that_is_made_again_stays_in_its_directory() -> None:
    (entry,) = (t for s in read(RULE).shares for c in s.schemas for t in c.tables)
    again = TableEntry("other", entry.location, projection=entry.projection)
    assert again.location == entry.location


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        ({"columns": []}, "columns"),
        ({"columns": ["id", "ID"]}, "columns"),
        ({"columns": ["a b"]}, "columns[0]"),
        ({"columns": ["_change_type"]}, "columns[0]"),
        ({"columns": [{"name": "a b"}]}, "columns[0].name"),
        ({"columns": [{"name": "id", "function": "md5"}]}, "columns[0].function"),
        ({"columns": [{"name": "id", "function": None}]}, "columns[0].function"),
        ({"columns": [{"name": "id", "function": "prefix"}]}, "columns[0].length"),
        ({"columns": [{"name": "id", "function": "floor", "length": 3}]}, "columns[0].length"),
        ({"columns": [{"name": "id", "funtion": "sha256"}]}, "columns[0].funtion"),
        ({"columns": [HASHED]}, "salt"),
        ({"columns": [HASHED], "salt": "short"}, "salt"),
        ({"salt": "s" * 16}, "salt"),
        ({"where": " "}, "where"),
        ({"where": None}, "where"),
        ({"wher": "id > 3"}, "wher"),
        ({"publishEverySeconds": None}, "publishEverySeconds"),
        ({"partitionBy": ["other"]}, "partitionBy"),
        ({"partitionBy": ["id", "name"]}, "partitionBy"),
        ({"partitionBy": ["id", "id"]}, "partitionBy"),
        ({"minimumGroup": {"columns": ["other"], "rows": 5}}, "minimumGroup"),
        ({"minimumGroup": {"columns": [], "rows": 5}}, "minimumGroup.columns"),
        ({"minimumGroup": {"columns": ["id"], "rows": 1}}, "minimumGroup.rows"),
        ({"minimumGroup": {"columns": ["id"]}}, "minimumGroup.rows"),
        ({"minimumGroup": None}, "minimumGroup.columns"),
        ({"minimumGroups": {"columns": ["id"], "rows": 5}}, "minimumGroups"),
    ],
)
def test_a_wrong_rule_is_refused_at_its_key(rule: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(RULE | rule)
    assert refused.value.key == f"shares[0].schemas[0].tables[0].projection.{key}"


@pytest.mark.parametrize("modes", [["dir"], ["url", "dir"]])
def test_a_projection_has_no_directory_access(modes: list[str]) -> None:
    with pytest.raises(ConfigError, match="rows before their proof"):
        read(RULE, accessModes=modes, historyShared=True)


@pytest.mark.parametrize("is_of_an_earlier_rule", [False, True])
@pytest.mark.parametrize("inner", ["data", "data/_change_data"])
def test_no_table_lies_within_a_projection(inner: str, is_of_an_earlier_rule: bool) -> None:
    directory = f"/shared/t/{'0' * 32}" if is_of_an_earlier_rule else root(RULE)
    other = {"name": "u", "location": f"{directory}/{inner}"}
    with pytest.raises(ConfigError, match="lies within the projection"):
        read(RULE, other)


@pytest.mark.parametrize("source", ["/shared/t", "/shared", "/shared/t/source"])
def test_a_source_and_its_projection_lie_apart(source: str) -> None:
    with pytest.raises(ConfigError, match="within each other"):
        read(RULE | {"source": source})


@pytest.mark.parametrize("scheme_and_bucket", ["s3a://shared", "S3://Shared", "s3://point-abc-s3alias"])
def test_a_bucket_of_another_spelling_is_that_bucket(scheme_and_bucket: str) -> None:
    base, rule = "s3://shared/t", RULE | {"source": "s3://lake/customers"}
    (projection,) = Catalog.of(read(rule, location=base).shares).tables()
    key = projection.location.key
    with pytest.raises(ConfigError, match="lies within the projection"):
        read(rule, {"name": "u", "location": f"{scheme_and_bucket}/{key}/data"}, location=base)
    readable = {"name": "u", "location": f"{scheme_and_bucket}/{key}", "accessModes": ["dir"]}
    with pytest.raises(ConfigError):
        read(rule, readable | {"historyShared": True}, location=base)
    for source in (f"{scheme_and_bucket}/t", f"{scheme_and_bucket}/{key}/data"):
        with pytest.raises(ConfigError, match="within each other"):
            read(rule | {"source": source}, location=base)
    assert read(rule, {"name": "u", "location": f"{scheme_and_bucket}/other/data"}, location=base)


def test_the_source_of_a_projection_is_no_table_before_its_proof() -> None:
    rule = RULE | {"source": root(RULE)}
    other = {"name": "u", "location": "/shared/u", "projection": rule}
    assert len(list(Catalog.of(read(RULE, other).shares).tables())) == 2
    other["projection"] = RULE | {"source": f"{root(RULE)}/data"}
    with pytest.raises(ConfigError, match="its source lies within the projection"):
        read(RULE, other)


def test_tables_are_not_discovered_around_a_projection() -> None:
    entry = {"name": "t", "location": "/shared/t", "projection": RULE}
    discovering = {"name": "e", "tables": {"discover": "/shared/{table}"}}
    shares = [{"name": "s", "schemas": [{"name": "d", "tables": [entry]}, discovering]}]
    with pytest.raises(ConfigError, match="found before their proof"):
        loads(yaml.safe_dump({"version": 1, "shares": shares, "gateway": {"anonymous": True}}))


def test_no_catalog_names_a_table_within_a_projection() -> None:
    entry = {"name": "t", "location": "/shared/t", "projection": RULE}
    catalog = {"url": "https://uc.example.com", "catalog": "c", "within": ["/shared"]}
    shares = [
        {"name": "s", "schemas": [{"name": "d", "tables": [entry]}]},
        {"name": "o", "tables": {"unityCatalog": catalog}},
    ]
    config = loads(yaml.safe_dump({"version": 1, "shares": shares, "gateway": {"anonymous": True}}))
    places = {"own": root(RULE), "data": f"{root(RULE)}/data", "other": "/shared/other", "outer": "/shared/t"}
    found = [FoundTable("d", name, Location.parse(place), "d") for name, place in places.items()]
    (source,) = config.sources
    merged = with_discovered(config, Discovered({source.key: tuple(found)}))
    names = [table.full_name for table in Catalog.of(merged.shares).tables()]
    assert names == ["s.d.t", "o.d.other", "o.d.outer"]
    assert [one.name for one in merged.left_out] == [f"file://{places[name]}" for name in ("own", "data")]
    assert all("the projection s.d.t" in one.reason for one in merged.left_out)


def test_no_directory_with_a_projection_is_readable() -> None:
    rule = RULE | {"source": "s3://lake/customers"}
    table = {"location": "s3://shared/t"}
    (projection,) = Catalog.of(read(rule, **table).shares).tables()
    for location in ("s3://shared", "s3://shared/t", projection.location.url):
        other = {"name": "u", "location": location, "historyShared": True, "accessModes": ["dir"]}
        with pytest.raises(ConfigError):
            read(rule, other, **table)


@pytest.mark.parametrize("is_stored", [False, True])
def test_no_volume_has_files_of_a_projection_or_of_its_source(is_stored: bool) -> None:
    entry = {"name": "t", "location": "s3://shared/t", "projection": RULE | {"source": "s3://lake/customers"}}
    storages = [{"prefix": prefix, "roleArn": ROLE} for prefix in ("s3://shared/", "s3://lake/")]

    def problem(location: str) -> str:
        volume = {"name": "v", "location": location}
        schemas = [{"name": "d", "tables": [entry], "volumes": [] if is_stored else [volume]}]
        shares = [{"name": "s", "schemas": schemas}]
        gateway = {"anonymous": True, "storages": storages}
        try:
            config = loads(yaml.safe_dump({"version": 1, "shares": shares, "gateway": gateway}))
        except ConfigError as refused:
            return str(refused)
        schema = StoredSchema("d", {"volumes": [volume]} if is_stored else {})
        left_out = with_stored(config, {"o": StoredShare("o", {}, (schema,))}).left_out
        return "".join(entry.reason for entry in left_out)

    for location in ("t", f"t/{'0' * 32}", f"t/{'0' * 32}/data"):
        assert "s.d.t" in problem(f"s3://shared/{location}")
    for location in ("customers", "customers/_delta_log"):
        assert "the source of s.d.t" in problem(f"s3://lake/{location}")
    for location in ("s3://shared/other", "s3://lake/customers-2"):
        assert problem(location) == ""


def test_a_directory_is_read_beside_the_source_of_a_projection_or_is_all_of_it() -> None:
    source, base = "s3://lake/a/customers", "s3://shared/t"
    rule, readable = RULE | {"source": source}, {"historyShared": True, "accessModes": ["dir"]}
    gateway = {"storages": [{"prefix": "s3://lake/", "roleArn": ROLE}], "allowedRoots": [source]}
    whole = {"name": "v", "location": source} | readable
    beside = {"name": "u", "location": "s3://lake/a/orders"} | readable
    clone = beside | {"auxiliaryLocations": [source]}
    for others in ([whole], [beside], [whole, clone]):
        read(rule, *others, location=base, gateway=gateway)
    for other in (beside | {"location": "s3://lake/a"}, beside | {"location": f"{source}/inner"}, clone):
        with pytest.raises(ConfigError, match=r"the source of s\.d\.t"):
            read(rule, other, location=base, gateway=gateway)


def test_the_example_of_the_page_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = page("projections").partition("```yaml\n")[2].partition("```")[0]
    text = text.replace("saltFile: /run/secrets/projection-salt", "salt: 0123456789abcdef")
    config = loads(text, environment={"TOKEN": "x"})
    (table,) = (t for s in config.shares for c in s.schemas for t in c.tables)
    assert table.projection is not None
    assert table.location.key.startswith("projections/customers/")


@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("{root}", {}),
        ("{root}/data", {"historyShared": True}),
        (
            "/elsewhere",
            {"accessModes": ["dir"], "historyShared": True, "auxiliaryLocations": ["{root}/data"]},
        ),
        ("/elsewhere", {"projection": {"source": "/lake/customers", "columns": ["id"]}}),
    ],
)
def test_the_database_has_no_projections_and_no_table_in_one(location: str, options: dict[str, Any]) -> None:
    config, place = read(RULE), root(RULE)
    given = json.loads(json.dumps(options).replace("{root}", place))
    table = StoredTable("u", location.replace("{root}", place), given)
    plain = StoredTable("v", "/elsewhere/v")
    stored = StoredShare("other", schemas=(StoredSchema("d", tables=(table, plain)),))
    found = with_stored(config, {"other": stored})
    assert [one.name for one in found.left_out] == ["other.d.u"]
    names = [t.name for s in found.config.shares for c in s.schemas for t in c.tables]
    assert names == ["t", "v"]
