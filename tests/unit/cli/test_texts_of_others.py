"""What commands print of the log of a table, of a server or of other programs: it commands no terminal."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.__main__ import main
from gateway.cli.init import unlisted
from gateway.config import Location
from gateway.tables.search import Search

COMMANDS = "\x1b]0;title\x07\x9b31m\u202e"
SHOWN = "\u241b]0;title\u2407\ufffd31m\ufffd"


def write_log(table: Path, protocol: dict[str, Any], columns: Sequence[str] = (), *actions: Any) -> None:
    """The log of a table that is partitioned by all of its columns, which are texts."""
    fields = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in columns]
    metadata = {
        "id": table.name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": columns,
        "configuration": {},
    }
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    lines = ({"protocol": protocol}, {"metaData": metadata}, *actions)
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, lines)))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table that needs a feature whose name commands a terminal, beside a readable one."""
    for name, features in (("odd", [COMMANDS]), ("plain", ["deletionVectors"])):
        named = {"readerFeatures": features, "writerFeatures": features}
        write_log(tmp_path / "tables" / name, {"minReaderVersion": 3, "minWriterVersion": 7, **named})
    return tmp_path / "tables" / "odd"


@pytest.fixture
def config(tmp_path: Path, table: Path) -> Path:
    path = tmp_path / "share.yaml"
    path.write_text(
        f"version: 1\ngateway: {{anonymous: true}}\n"
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{{name: t, location: '{table}'}}]}}]}}]\n"
    )
    return path


@pytest.mark.parametrize("command", ["check", "explain", "init"])
def test_a_feature_of_a_table_commands_no_terminal(
    config: Path, table: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        "check": ["-c", str(config)],
        "explain": ["s.d.t", "-c", str(config)],
        "init": [str(table.parent), "--recipient", "r", "-c", str(config.with_name("first.yaml"))],
    }
    assert main([command, *options[command]]) == (0 if command == "init" else 1)
    printed = "".join(capsys.readouterr())
    assert f"needs the reader feature '{SHOWN}'" in printed
    assert set(COMMANDS) & set(printed) <= set("]0;title31m")


def test_partition_values_and_conditions_command_no_terminal(
    config: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add = {
        "path": "f",
        "partitionValues": {"p": COMMANDS},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
    }
    write_log(table, {"minReaderVersion": 1, "minWriterVersion": 2}, ["p"], {"add": add})
    grant = {"share": "s", "schema": "d", "table": "t", "condition": f"p = '{COMMANDS}'"}
    settings = yaml.safe_load(config.read_text())
    settings["gateway"]["recipients"] = [{"name": "r", "tokens": [{"sha256": "1" * 64}], "shares": [grant]}]
    config.write_text(yaml.safe_dump(settings))
    assert main(["explain", "s.d.t", "-c", str(config), "--recipient", "r"]) == 0
    printed = "".join(capsys.readouterr())
    assert f"files where (`p` = '{SHOWN}')" in printed
    assert '"partitionValues":{"p":"\\u001b]0;title\\u0007\\u009b31m\\u202e"}' in printed
    assert set(COMMANDS) & set(printed) <= set("]0;title31m")


def test_a_directory_without_access_commands_no_terminal() -> None:
    location = Location.parse("/data")
    search = Search(location, (), is_complete=False, unlisted=(Location.parse(f"/data/{COMMANDS}"),))
    assert unlisted(search) == f": the search cannot list file:///data/{SHOWN}"


@pytest.mark.parametrize("operation", ["list", "show", "delete"])
def test_a_recipient_that_another_program_has_written_commands_no_terminal(
    config: Path, capsys: pytest.CaptureFixture[str], operation: str
) -> None:
    assert main(["recipient", "add", "plain", "-c", str(config), "--share", "s"]) == 0
    with closing(sqlite3.connect(config.with_name("recipients.db"))) as database, database:
        database.execute("UPDATE grants SET share = ?", [COMMANDS])
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("UPDATE recipients SET name = ?, key = ?", [COMMANDS, COMMANDS])
        database.execute("UPDATE grants SET recipient = ?", [COMMANDS])
    capsys.readouterr()
    name = [] if operation == "list" else [COMMANDS]
    assert main(["recipient", operation, *name, "-c", str(config)]) == 0
    printed = "".join(capsys.readouterr())
    assert set(COMMANDS) & set(printed) <= set("]0;title31m")
    assert "]0;title" in printed
