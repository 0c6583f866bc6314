"""Entries that are made from values are those that the same keys in a file make."""

from functools import cache
from typing import Any

import pytest
import yaml
from support.nightly import at_night

from gateway.config import ConfigError, TableEntry, loads
from gateway.config.entries import EntryReader

GATEWAY = {"anonymous": True, "storages": [{"prefix": "az://lake/", "account": "acct"}]}


def of_file(table: dict[str, Any]) -> TableEntry | None:
    """The entry of a configuration; None if it is refused."""
    shares = [{"name": "s", "schemas": [{"name": "d", "tables": [table]}]}]
    try:
        config = loads(yaml.safe_dump({"version": 1, "shares": shares, "gateway": GATEWAY}))
    except ConfigError:
        return None
    return config.shares[0].schemas[0].tables[0]


def of_values(name: str, location: str, options: dict[str, Any]) -> TableEntry | None:
    try:
        return reader().table(name, location, options)
    except ConfigError:
        return None


@cache
def reader() -> EntryReader:
    return EntryReader(loads(yaml.safe_dump({"version": 1, "gateway": GATEWAY})))


NAMES = ("t", "", "a/b", "no", "2024", "x" * 256, "ü t")
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"id": "i"},
    {"id": ""},
    {"id": None},
    {"historyShared": True},
    {"historyShared": False, "id": "i"},
    {"historyShared": "yes"},
    {"historyShared": 1},
    {"historyShared": None},
    {"historyShared": True, "startVersion": 3},
    {"startVersion": -1},
    {"startVersion": "3"},
    {"accessModes": ["url"]},
    {"accessModes": []},
    {"accessModes": "url"},
)
# Options are read in two ways, apart from the name: by day each of them once, and each name in both ways.
CASES = [(name, options) for name in NAMES for options in OPTIONS]
BY_DAY = [
    (name, options) for name, options in CASES if name == "t" or options in ({}, {"accessModes": ["url"]})
]


@pytest.mark.parametrize(
    ("name", "options"), [*BY_DAY, *at_night(*(case for case in CASES if case not in BY_DAY))]
)
def test_a_table_of_values_is_that_of_a_file(name: str, options: dict[str, Any]) -> None:
    for location in ("/t", "", "s3a://b/t", "az://lake/t", "az://other/t", "/x/../y"):
        found = of_values(name, location, options)
        assert found == of_file({"name": name, "location": location, **options}), location
        if found is not None and location.startswith("s3a"):
            assert found.location.scheme == "s3a"


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown key; accepted: "):
        EntryReader(loads("version: 1\ngateway: {anonymous: true}")).table("t", "/t", {"histroyShared": True})
