"""`delta-gateway export --tables`: the list of shared tables that the commands on Spark take."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.__main__ import main
from gateway.spark.targets import Target, load_targets

ALICE = {
    "name": "alice",
    "tokens": [{"sha256": "a" * 64}],
    "properties": {"region": "eu"},
    "shares": [
        {"share": "file", "schema": "d", "table": "t", "condition": "region = recipient.region"},
        {"share": "file", "schema": "d", "table": "t", "condition": "region IS NULL"},
        "found",
    ],
}
IN_BUCKET = {"name": "t", "location": "s3://bucket/t", "historyShared": True, "startVersion": 3}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / "lake/sales" / name / "_delta_log").mkdir(parents=True)
    shares = [
        {"name": "file", "schemas": [{"name": "d", "tables": [IN_BUCKET, {"name": "u", "location": "/u"}]}]},
        {"name": "found", "tables": {"discover": f"{tmp_path}/lake/{{schema}}/{{table}}"}},
    ]
    gateway = {"recipients": [ALICE], "audit": {"file": "audit.jsonl"}}
    file = tmp_path / "share.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "shares": shares, "gateway": gateway}))
    assert main(["share", "add", "stored", "-c", str(file)]) == 0
    assert main(["table", "add", "stored.d.t", "/stored", "-c", str(file)]) == 0
    return file


def exported(config: Path, *arguments: str) -> Path:
    file = config.parent / f"tables{len(arguments)}.yaml"
    assert main(["export", "--tables", *arguments, "-c", str(config), "-o", str(file)]) == 0
    return file


def test_a_list_has_the_tables_of_the_file_of_the_database_and_of_a_search(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = config.parent / "lake/sales"
    file = exported(config)
    listed = load_targets(file)
    assert listed == [
        Target("file.d.t", "s3a://bucket/t", 3, history=True),
        Target("file.d.u", "/u"),
        Target("found.sales.a", str(lake / "a")),
        Target("found.sales.b", str(lake / "b")),
        Target("stored.d.t", "/stored"),
    ]
    assert "2 tables found" in capsys.readouterr().err
    assert load_targets(file, ["*.d.t"]) == [listed[0], listed[4]]


def test_a_list_of_a_recipient_has_the_conditions_of_its_grants(config: Path) -> None:
    listed = load_targets(exported(config, "--recipient", "Alice"), recipient="alice")
    of_file, *found = listed
    (configured,) = load_targets(config, ["file.*"], recipient="alice")
    assert of_file == configured
    assert of_file.condition == "(region = recipient.region) OR (region IS NULL)"
    assert [(one.table, one.condition) for one in found] == [("found.sales.a", None), ("found.sales.b", None)]


def test_a_recipient_of_the_database_has_a_list(config: Path) -> None:
    added = ["recipient", "add", "bob", "--share", "stored", "--profile", str(config.parent / "bob.share")]
    assert main([*added, "-c", str(config)]) == 0
    with pytest.raises(ValueError, match=r"export -c .* --tables --recipient bob"):
        load_targets(config, recipient="bob")
    assert load_targets(exported(config, "--recipient", "bob")) == [Target("stored.d.t", "/stored")]


def test_what_cannot_be_listed_is_said(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--tables", "--recipient", "nobody", "-c", str(config)]) == 1
    assert "neither gateway.recipients nor the database has a recipient 'nobody'" in capsys.readouterr().err
    assert main(["export", "--recipient", "alice", "-c", str(config)]) == 1
    assert "--recipient needs --tables" in capsys.readouterr().err


def test_a_list_that_may_lack_tables_fails_the_command(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, file, command = config.parent / "lake", config.parent / "o.yaml", ["-c", str(config)]
    lake.rename(lake.with_name("gone"))
    assert main(["export", "--tables", *command, "-o", str(file)]) == 1
    assert "found: the search is not complete: there is no such directory" in capsys.readouterr().err
    assert [target.table for target in load_targets(file)] == ["file.d.t", "file.d.u", "stored.d.t"]
    assert main(["explain", "found.sales.a", *command]) == 1
    assert "found.sales.a is shared, as far as a search has found tables\n" in capsys.readouterr().err
    (config.parent / "recipients.db").write_bytes(b"no database at all" * 1000)
    file.unlink()
    assert main(["export", "--tables", *command, "-o", str(file)]) == 1
    assert not file.exists()
    assert main(["explain", "stored.d.t", *command]) == 1
    assert capsys.readouterr().err.count("the recipients' database cannot be opened") == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"startVersion": "3"},
        {"startVersion": True},
        {"condition": 1},
        {"properties": {"a": 1}},
        {"historyShared": "yes"},
    ],
)
def test_a_list_with_values_of_other_types_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    file = tmp_path / "tables.yaml"
    file.write_text(yaml.safe_dump({"tables": [{"table": "s.d.t", "location": "/t", **wrong}]}))
    with pytest.raises(ValueError, match=r"s\.d\.t: "):
        load_targets(file)
