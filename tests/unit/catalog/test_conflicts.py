"""The same refusals for a table of the configuration, of the database and of a search."""

from typing import Any

import pytest
import yaml

from gateway.catalog.catalog import Catalog
from gateway.catalog.discovered import Discovered, FoundTable, with_discovered
from gateway.catalog.stored_shares import StoredSchema, StoredShare, StoredTable, with_stored
from gateway.config import Config, ConfigError, Location, loads
from gateway.config.shares import stable_id

ROLE = "arn:aws:iam::123456789012:role/reader"
RULE = {"source": "s3://lake/customers", "columns": ["id"]}
DIRECTORY = {
    "name": "dir",
    "location": "s3://lake/offered/t",
    "historyShared": True,
    "accessModes": ["dir"],
    "auxiliaryLocations": ["s3://lake/cloned/t"],
}
OTHERS = {
    "name": "o",
    "schemas": [
        {
            "name": "d",
            "tables": [
                DIRECTORY,
                {"name": "projected", "location": "s3://lake/p", "projection": RULE},
                {"name": "named", "location": "s3://lake/named", "id": stable_id("s", "d", "t")},
            ],
            "volumes": [{"name": "v", "location": "s3://lake/files/v"}],
        }
    ],
}
PROJECTED = "{projected}"
OFFERED = "o.d.dir"
REFUSED = {
    "the directory of credentials contains it": ("s3://lake/offered/t/inner", OFFERED),
    "it contains the directory of credentials": ("s3://lake/offered", OFFERED),
    "an auxiliary location contains it": ("s3://lake/cloned/t/inner", OFFERED),
    "it contains an auxiliary location": ("s3://lake/cloned", OFFERED),
    "it is an auxiliary location": ("s3://lake/cloned/t", OFFERED),
    "by the alias of an access point": ("s3://points-1-s3alias/offered/t/inner", OFFERED),
    "by the scheme of another client": ("s3a://lake/offered/t/inner", OFFERED),
    "a volume contains it": ("s3://lake/files/v/t", "o.d.v"),
    "it is a volume": ("s3://lake/files/v", "o.d.v"),
    "it contains a volume": ("s3://lake/files", "o.d.v"),
    "a projection contains it": (f"{PROJECTED}/data", "the projection o.d.projected"),
    "it is of an earlier rule of a projection": (f"s3://lake/p/{'0' * 32}", "the projection o.d.projected"),
    "its id is that of another location": ("s3://lake/fine", "table of another location"),
}
NAMES = dict.fromkeys(REFUSED, "other") | {"its id is that of another location": "t"}


def configured(*tables: dict[str, Any], **share: Any) -> Config:
    """The other shares, and one with some tables."""
    own = {"name": "s", "schemas": [{"name": "d", "tables": [*tables]}], **share}
    storages = [{"prefix": f"s3://{bucket}/", "roleArn": ROLE} for bucket in ("lake", "elsewhere")]
    gateway = {
        "anonymous": True,
        "storages": storages,
        "allowedRoots": ["s3://lake/"],
    }
    shares = [OTHERS, own] if tables or share else [OTHERS]
    return loads(yaml.safe_dump({"version": 1, "shares": shares, "gateway": gateway}))


def place(location: str) -> str:
    (root,) = (
        table.location.url for table in Catalog.of(configured().shares).tables() if table.name == "projected"
    )
    return location.replace(PROJECTED, root)


def from_file(name: str, location: str, **options: Any) -> str | None:
    try:
        configured({"name": name, "location": location, **options})
    except ConfigError as error:
        return str(error)
    return None


def from_database(name: str, location: str, **options: Any) -> str | None:
    schema = StoredSchema("d", tables=(StoredTable(name, location, options),))
    found = with_stored(configured(), {"s": StoredShare("s", schemas=(schema,))})
    (left_out,) = found.left_out or (None,)
    assert (left_out is None) == (f"s.d.{name}" in names(found.config))
    return left_out and left_out.reason


def from_search(name: str, location: str, **_options: Any) -> str | None:
    config = configured(schemas=[{"name": "d", "tables": {"discover": "s3://elsewhere/{table}"}}])
    (source,) = config.sources
    found = with_discovered(
        config, Discovered({source.key: (FoundTable("d", name, Location.parse(location)),)})
    )
    (left_out,) = found.left_out or (None,)
    shown = {table.full_name for table in Catalog.of(found.shares).tables()}
    assert (left_out is None) == (f"s.d.{name}" in shown)
    return left_out and left_out.reason


def names(config: Config) -> set[str]:
    return {table.full_name for table in Catalog.of(config.shares).tables()}


@pytest.mark.parametrize("came_from", [from_file, from_database, from_search])
@pytest.mark.parametrize("refusal", REFUSED)
def test_a_table_is_refused_wherever_it_comes_from(refusal: str, came_from: Any) -> None:
    location, reason = REFUSED[refusal]
    if refusal == "its id is that of another location" and came_from is from_file:
        reason = "id"
    assert reason in (came_from(NAMES[refusal], place(location)) or "")


@pytest.mark.parametrize("came_from", [from_file, from_database, from_search])
@pytest.mark.parametrize("location", ["s3://lake/offered/other", "s3://lake/filesystem", "s3://lake/fine"])
def test_a_table_beside_them_is_shared_wherever_it_comes_from(location: str, came_from: Any) -> None:
    assert came_from("other", location) is None


@pytest.mark.parametrize("came_from", [from_file, from_database])
@pytest.mark.parametrize(
    ("auxiliary", "reason"),
    [
        ("s3://lake/files/v", "o.d.v"),
        ("s3://lake/offered/t/inner", OFFERED),
        (f"{PROJECTED}/data", "o.d.projected"),
        ("s3://elsewhere/t", "allowedRoots"),
    ],
)
def test_an_auxiliary_location_is_refused_wherever_it_comes_from(
    auxiliary: str, reason: str, came_from: Any
) -> None:
    options = DIRECTORY | {"auxiliaryLocations": [place(auxiliary)]}
    del options["name"], options["location"]
    assert reason in (came_from("other", "s3://lake/cloned/other", **options) or "")
