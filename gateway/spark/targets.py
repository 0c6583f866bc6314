"""The shared tables and their locations, as targets of the commands.

In: the gateway's configuration file, or a short list of tables (YAML or JSON). Out: targets, with locations
as Spark writes them (`s3a://`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

from gateway import config


@dataclass(frozen=True)
class Target:
    """A shared table and the location of the Delta table behind it."""

    table: str
    location: str
    start_version: int = 0


def load_targets(path: Path, patterns: Sequence[str] = ()) -> list[Target]:
    """Read a gateway's configuration, or a file `tables: [{table: share.schema.name, location: ..}]`.

    `patterns` choose tables by name, with `*` and `?`. Raises ConfigError or ValueError.
    """
    document = _document(path)
    listed = document.get("tables") if isinstance(document, dict) else None
    if listed is not None and not isinstance(listed, list):
        raise ValueError(f"{path}: `tables` is not a list")
    targets = _configured(path) if listed is None else [_listed(entry) for entry in listed]
    chosen = [one for one in targets if not patterns or any(fnmatchcase(one.table, p) for p in patterns)]
    if not chosen:
        raise ValueError("there is no such shared table" if patterns else "the file shares no tables")
    return chosen


def _document(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{path}{line} is not YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{path} is not YAML ({type(error).__name__})") from None


def _configured(path: Path) -> list[Target]:
    return [
        Target(
            f"{share.name}.{schema.name}.{table.name}", _for_spark(table.location.url), table.start_version
        )
        for share in config.load(path).shares
        for schema in share.schemas
        for table in schema.tables
    ]


def _listed(entry: object) -> Target:
    if not isinstance(entry, dict) or not {"table", "location"} <= entry.keys():
        raise ValueError("each of `tables` has a table (share.schema.name) and a location")
    return Target(str(entry["table"]), _for_spark(str(entry["location"])))


def _for_spark(location: str) -> str:
    """Hadoop's S3 client is named s3a; Delta takes bare paths for local files."""
    if location.startswith("s3://"):
        return "s3a://" + location.removeprefix("s3://")
    return location.removeprefix("file://")
