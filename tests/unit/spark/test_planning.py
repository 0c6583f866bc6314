"""Plans of change data: a range that has not begun is told apart from others before anything is asked."""

from __future__ import annotations

import pytest

from gateway.client.actions import TableHead
from gateway.spark.read.options import ReadOptions
from gateway.spark.read.planning import NothingNew, plan_changes

GIVEN = {
    "profile": '{"endpoint": "http://h/p/", "bearerToken": "secret"}',
    "path": "a.b.c",
    "readChangeFeed": "true",
    "startingVersion": "8",
}
LOADED = TableHead("{}", (), {}, version=7)


def test_change_data_after_the_latest_version_are_nothing_new() -> None:
    with pytest.raises(NothingNew, match="startingVersion 8 is after version 7"):
        plan_changes(ReadOptions.parse(GIVEN), LOADED)
    assert plan_changes(ReadOptions.parse(GIVEN | {"allowNoVersions": "true"}), LOADED) == []
