"""The shared tables and their locations, as targets of the commands.

In: the gateway's configuration file, or a list of tables (YAML or JSON), such as `export --tables` prints.
Out: targets, with locations as Spark writes them (`s3a://`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from gateway import config
from gateway.config.yaml_loader import read_document


@dataclass(frozen=True)
class Target:
    """A shared table and the location of the Delta table behind it.

    `condition` is the rule of a recipient, as SQL for Spark, and `properties` are those that it names.
    `history`: whether the configuration shares the history; None if that is not known.
    """

    table: str
    location: str
    start_version: int = 0
    condition: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    history: bool | None = None


def load_targets(path: Path, patterns: Sequence[str] = (), recipient: str | None = None) -> list[Target]:
    """Read a gateway's configuration, or a file `tables: [{table: share.schema.name, location: ..}]`.

    `patterns` choose tables by name, with `*` and `?`. Of a `recipient` of the configuration, the targets are
    the granted tables with the conditions of the grants; a list has them already, in `condition` and
    `properties`, and perhaps a `startVersion`. Raises ConfigError or ValueError.
    """
    document = read_document(path)
    listed = document.get("tables") if isinstance(document, dict) else None
    if listed is not None and not isinstance(listed, list):
        raise ValueError(f"{path}: `tables` is not a list")
    if listed is not None:
        targets = [_listed(entry) for entry in listed]
    elif recipient is None:
        targets = [target for _, target in _named(config.load(path))]
    else:
        targets = _granted(path, recipient)
    chosen = [
        target for target in targets if not patterns or any(fnmatchcase(target.table, p) for p in patterns)
    ]
    if not chosen:
        raise ValueError("there is no such shared table" if patterns else "the file shares no tables")
    return chosen


def _named(loaded: config.Config) -> Iterator[tuple[tuple[str, str, str], Target]]:
    for share in loaded.shares:
        for schema in share.schemas:
            for table in schema.tables:
                names = share.name, schema.name, table.name
                location = for_spark(table.location.url)
                yield (
                    names,
                    Target(".".join(names), location, table.start_version, history=table.history_shared),
                )


def _granted(path: Path, recipient: str) -> list[Target]:
    loaded = config.load(path)
    recipients = [
        granted for granted in loaded.gateway.recipients if granted.name.casefold() == recipient.casefold()
    ]
    if not recipients:
        raise ValueError(
            f"{path}: gateway.recipients has no recipient '{recipient}'. The database is not read: give the "
            f"list that `delta-gateway export -c {path} --tables --recipient {recipient}` prints"
        )
    (entry,) = recipients
    targets = []
    for names, target in _named(loaded):
        conditions = [grant.condition for grant in entry.shares if grant.covers(*names)]
        if conditions:
            whole = None in conditions
            text = any_of(condition for condition in conditions if condition is not None)
            targets.append(replace(target, condition=None if whole else text, properties=entry.properties))
    return targets


def any_of(conditions: Iterable[str]) -> str:
    """Return the condition that is true where one of a recipient's grants is."""
    return " OR ".join(f"({condition})" for condition in conditions)


def _listed(entry: object) -> Target:
    if not isinstance(entry, dict) or not {"table", "location"} <= entry.keys():
        raise ValueError("each of `tables` has a table (share.schema.name) and a location")
    names = ("startVersion", "condition", "properties", "historyShared")
    start, condition, properties, history = (entry.get(name) for name in names)
    if not (start is None or type(start) is int) or not (condition is None or isinstance(condition, str)):
        raise ValueError(f"{entry['table']}: startVersion is a number, and condition a text")
    if not (history is None or isinstance(history, bool)):
        raise ValueError(f"{entry['table']}: historyShared is true or false")
    texts = {} if properties is None else properties
    if not isinstance(texts, dict) or not all(
        isinstance(text, str) for pair in texts.items() for text in pair
    ):
        raise ValueError(f"{entry['table']}: properties are texts by name")
    location = for_spark(str(entry["location"]))
    return Target(str(entry["table"]), location, start or 0, condition, texts, history)


def for_spark(location: str) -> str:
    """Return a location as Spark writes it.

    Hadoop's S3 client is named s3a; Delta takes bare paths for local files.
    """
    if location.startswith("s3://"):
        return "s3a://" + location.removeprefix("s3://")
    return location.removeprefix("file://")
