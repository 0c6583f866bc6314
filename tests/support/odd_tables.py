"""Tables with few files whose keys or paths are hard to address, and what each URL has to open."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

# A hive-escaped partition value has a percent sign in its key, which the log escapes once more.
ODD_KEYS = ("p=a%20b/x", "p=a b/x", "p=é/x", "x+y", "q!'()*@$&,;:~", "%41", "A", "p=%3A%2F/x")
SCHEMA = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}


def in_log(key: str) -> str:
    """The path that a log has for a key."""
    return quote(key, safe="/=!'()*@$&,:~+")


def write_log(root: Path, paths: Mapping[str, bytes]) -> None:
    """Writes the log of a table whose files have these paths and contents; the files are not written."""
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": root.name,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(SCHEMA),
                "partitionColumns": [],
                "configuration": {},
            }
        },
        *(
            {
                "add": {
                    "path": path,
                    "partitionValues": {},
                    "size": len(content),
                    "modificationTime": 1,
                    "dataChange": True,
                }
            }
            for path, content in paths.items()
        ),
    ]
    (root / "_delta_log").mkdir(parents=True)
    text = "".join(json.dumps(action, ensure_ascii=False) + "\n" for action in actions)
    (root / "_delta_log/00000000000000000000.json").write_text(text, encoding="utf-8")
