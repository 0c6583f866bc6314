"""The projections of a configuration, as the command chooses them."""

from pathlib import Path

import pytest
import yaml

from gateway import config
from gateway.spark.project.run import projections


@pytest.mark.parametrize("pattern", ["", "long.d.t", "short.d.t"])
def test_a_projection_of_several_names_is_the_same_by_each(tmp_path: Path, pattern: str) -> None:
    """Files that the history of one name needs are not removed by a run of the other one."""
    table = {
        "name": "t",
        "location": str(tmp_path / "projections"),
        "projection": {"source": str(tmp_path / "source"), "columns": ["id"]},
    }
    histories = {"long": {"historyShared": True, "startVersion": 3}, "short": {}, "other": {}}
    shares = [
        {"name": name, "schemas": [{"name": "d", "tables": [table | history]}]}
        for name, history in histories.items()
    ]
    shares[2]["schemas"][0]["tables"][0]["projection"] = {**table["projection"], "where": "id > 3"}
    file = tmp_path / "share.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "shares": shares}))
    found = projections(config.load(file, needs_readers=False), lambda name: pattern in ("", name))
    assert [(one.names, one.first_version) for one in found[:1]] == [(("long.d.t", "short.d.t"), 3)]
    assert len(found) == (1 if pattern else 2)
