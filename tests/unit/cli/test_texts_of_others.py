"""What commands print of the log of a table or of a server: no text of them commands a terminal."""

import json
from pathlib import Path

import pytest

from gateway.__main__ import main

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
    assert set("\x1b\x07\x9b\u202e").isdisjoint(printed)
