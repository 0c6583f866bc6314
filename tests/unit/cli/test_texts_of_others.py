"""What commands print of the log of a table, of a server or of other programs: it commands no terminal."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from gateway.__main__ import main
from gateway.cli.init import denied
from gateway.config import Location
from gateway.tables.search import Search

COMMANDS = "\x1b]0;title\x07\x9b31m\u202e"
SHOWN = "\u241b]0;title\u2407\ufffd31m\ufffd"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table that needs a feature whose name commands a terminal, beside a readable one."""
    for name, features in (("odd", [COMMANDS]), ("plain", ["deletionVectors"])):
        lines = (
            {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": features,
                    "writerFeatures": features,
                }
            },
            {
                "metaData": {
                    "id": name,
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": '{"type":"struct","fields":[]}',
                    "partitionColumns": [],
                    "configuration": {},
                }
            },
        )
        log = tmp_path / "tables" / name / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, lines)))
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
    log = table / "_delta_log" / f"{0:020}.json"
    schema = {
        "type": "struct",
        "fields": [{"name": "p", "type": "string", "nullable": True, "metadata": {}}],
    }
    metadata = {
        "id": "odd",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": ["p"],
        "configuration": {},
    }
    add = {
        "path": "f",
        "partitionValues": {"p": COMMANDS},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
    }
    lines = (
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
        {"add": add},
    )
    log.write_text("\n".join(map(json.dumps, lines)))
    grant = {"share": "s", "schema": "d", "table": "t", "condition": f"p = '{COMMANDS}'"}
    settings = yaml.safe_load(config.read_text())
    settings["gateway"]["recipients"] = [{"name": "r", "tokens": [{"sha256": "1" * 64}], "shares": [grant]}]
    config.write_text(yaml.safe_dump(settings))
    assert main(["explain", "s.d.t", "-c", str(config), "--recipient", "r"]) == 0
    printed = "".join(capsys.readouterr())
    assert f"files where (`p` = '{SHOWN}')" in printed
    assert '"partitionValues":{"p":"\\u001b]0;title\\u0007\ufffd31m\ufffd"}' in printed
    assert set(COMMANDS) & set(printed) <= set("]0;title31m")


def test_a_directory_without_access_commands_no_terminal() -> None:
    location = Location.parse("/data")
    search = Search(location, (), is_complete=False, denied=(Location.parse(f"/data/{COMMANDS}"),))
    assert denied(search) == f": access is denied to file:///data/{SHOWN}"


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
