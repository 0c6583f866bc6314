"""Discovered tables among those that a configuration lists."""

from contextlib import nullcontext
from typing import Any

import pytest
import yaml

from gateway.catalog.catalog import Catalog, Recipient
from gateway.catalog.discovered import Discovered, FoundTable, with_discovered
from gateway.catalog.grants import Grant
from gateway.config import Config, Location, loads
from gateway.config.shares import stable_id
from gateway.errors import NotShared, Unavailable

ROLE = "arn:aws:iam::123456789012:role/reader"
DISCOVER = {"discover": "s3://lake/w/{schema}/{table}/"}
ALL = Recipient("all", frozenset({"*"}))


def configured(share: dict[str, Any] | None = None, others: tuple[dict[str, Any], ...] = ()) -> Config:
    settings = {
        "version": 1,
        "shares": [{"name": "s", "tables": DISCOVER, **(share or {})}, *others],
        "gateway": {"anonymous": True, "storages": [{"prefix": "s3://lake/", "roleArn": ROLE}]},
    }
    return loads(yaml.safe_dump(settings))


def found(*names: str, root: str = "s3://lake/w") -> tuple[FoundTable, ...]:
    return tuple(FoundTable(*name.split("/"), Location.parse(f"{root}/{name}")) for name in names)


def shared(config: Config, *tables: FoundTable) -> tuple[list[str], list[str]]:
    """The names of all tables, and the reasons of those that are left out."""
    (source, *_) = config.sources
    merged = with_discovered(config, Discovered({source.key: tables}))
    catalog = Catalog.of(merged.shares)
    return [table.full_name for table in catalog.tables()], [one.reason for one in merged.left_out]


def test_found_tables_follow_the_listed_ones_by_name() -> None:
    config = configured({"schemas": [{"name": "Z", "tables": [{"name": "t", "location": "s3://lake/t"}]}]})
    names, refused = shared(config, *found("a/y", "a/x", "z/u"))
    assert names == ["s.Z.t", "s.Z.u", "s.a.x", "s.a.y"]
    assert refused == []


def test_a_listed_table_wins_by_its_name_and_by_its_location() -> None:
    tables = [
        {"name": "t", "location": "s3://lake/other"},
        {"name": "public", "location": "s3://lake/w/d/orders", "startVersion": 4},
    ]
    config = configured({"schemas": [{"name": "d", "tables": tables}]})
    names, refused = shared(config, *found("d/T", "d/orders", "d/new"))
    assert names == ["s.d.t", "s.d.public", "s.d.new"]
    assert refused == ["a table of its schema has its name", "its directory is a table of the share already"]


def test_a_location_within_a_log_leaves_out_its_table_alone() -> None:
    """A catalog may name any location."""
    names, refused = shared(configured(), *found("d/t"), *found("d/u", root="s3://lake/w/t/_delta_log"))
    assert names == ["s.d.t"]
    assert refused == ["its location is the log of a table; give the directory that contains _delta_log"]


@pytest.mark.parametrize("location", ["s3://lake/w/d", "s3://lake/w/d/t/inner", "s3://lake/w/d/t"])
def test_a_table_with_files_of_a_volume_is_left_out(location: str) -> None:
    volumes = [{"name": "v", "location": location}]
    other = {"name": "o", "schemas": [{"name": "d", "volumes": volumes}]}
    names, (reason,) = shared(configured(others=(other,)), *found("d/t", "e/t"))
    assert names == ["s.e.t"]
    assert "the volume o.d.v" in reason


@pytest.mark.parametrize("root", ["s3://points-1-s3alias/w", "s3://lake/w"])
def test_the_alias_of_an_access_point_is_compared_with_all_buckets(root: str) -> None:
    volumes = [{"name": "v", "location": "s3://lake/w/d/t"}]
    other = {"name": "o", "schemas": [{"name": "d", "volumes": volumes}]}
    assert shared(configured(others=(other,)), *found("d/t", root=root))[0] == []
    assert shared(configured(others=(other,)), *found("d/t", root="s3://elsewhere/w"))[0] == ["s.d.t"]


def test_an_id_is_that_of_a_listed_table_of_the_name() -> None:
    config = configured()
    (source,) = config.sources
    one = with_discovered(config, Discovered({source.key: found("d/t")}))
    listed = loads(
        "version: 1\ngateway: {anonymous: true}\nshares:\n- name: s\n  schemas:\n  - name: d\n"
        "    tables: [{name: t, location: /somewhere}]\n"
    )
    ids = [Catalog.of(shares).table(ALL, "s", "d", "t").id for shares in (one.shares, listed.shares)]
    assert ids[0] == ids[1]


def test_a_found_table_takes_no_id_that_a_listed_one_has() -> None:
    tables = [{"name": "old", "location": "s3://lake/old", "id": stable_id("s", "d", "t")}]
    names, refused = shared(configured({"schemas": [{"name": "D", "tables": tables}]}), *found("d/T", "d/u"))
    assert names == ["s.D.old", "s.D.u"]
    assert refused == [f"the id '{stable_id('s', 'd', 't')}' belongs to a table of another location"]


def test_without_a_search_the_shares_are_those_of_the_file() -> None:
    config = configured()
    assert with_discovered(config, Discovered()).shares is config.shares


def test_what_no_search_has_reached_is_unknown_to_those_with_a_grant_there() -> None:
    """To others a schema without known tables is as absent as any other name."""
    schemas = [
        {"name": "listed", "tables": [{"name": "t", "location": "s3://lake/t"}]},
        {"name": "Found", "tables": {"discover": "s3://lake/w/{table}"}},
    ]
    unsearched = with_discovered(configured({"tables": None, "schemas": schemas}), Discovered())
    catalog = Catalog.of(unsearched.shares, unsearched=unsearched.unsearched)
    partial = {name: Recipient("r", frozenset(), (), (Grant("s", name),)) for name in ("listed", "found")}
    for recipient in (ALL, partial["found"]):
        for schema in (None, "FOUND"):
            with pytest.raises(Unavailable):
                catalog.require_searched(recipient, "s", schema)
        with pytest.raises(Unavailable):
            catalog.table(recipient, "s", "found", "t")
    catalog.require_searched(ALL, "s", "listed")
    catalog.require_searched(partial["listed"], "s")
    for recipient in (ALL, partial["listed"]):
        assert catalog.table(recipient, "s", "listed", "t").name == "t"
        with pytest.raises(NotShared):
            catalog.table(recipient, "s", "listed", "u")
    for schema in ("found", "absent"):
        with pytest.raises(NotShared):
            catalog.schema(partial["listed"], "s", schema)
        with pytest.raises(NotShared):
            catalog.table(partial["listed"], "s", schema, "t")


def test_of_a_grant_in_every_share_no_share_is_known_to_be_absent_before_all_are_searched() -> None:
    config = configured(others=({"name": "other", "schemas": [{"name": "d"}]},))
    (source,) = config.sources
    recipient = Recipient("r", frozenset(), (), (Grant("*", "d"),))
    for tables, error in (({}, Unavailable), ({source.key: ()}, NotShared)):
        shares = with_discovered(config, Discovered(tables))
        catalog = Catalog.of(shares.shares, unsearched=shares.unsearched)
        assert catalog.share(recipient, "other").name == "other"
        for name in ("s", "absent"):
            with pytest.raises(error):
                catalog.share(recipient, name)
            with pytest.raises(error):
                catalog.table(recipient, name, "d", "t")
        with pytest.raises(Unavailable) if tables == {} else nullcontext():
            catalog.require_searched(recipient)
        catalog.require_searched(Recipient("r", frozenset(), (), (Grant("other", "d"),)))
