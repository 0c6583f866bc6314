"""Compares what a server says of files with the table's own log, file by file.

In: the files of an answer, and those of the log as delta-spark reads it. Out: descriptions of differences,
without values. Of a large table a part is compared, which the sizes of its files draw.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, NamedTuple
from urllib.parse import unquote

from pyspark.sql import functions as f

from gateway.client.actions import DataFile
from gateway.spark import java
from gateway.spark.project.table_log import TableLog

_MOST_COMPARED = 10_000
_MOST_NAMED = 5
_STATISTICS = ("numRecords", "minValues", "maxValues", "nullCount")
_TIME = re.compile(r"^(\S+-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d*?)0*)?Z?$")
"""A time in UTC, which the parquet format writes in another form than logs."""
_DIGITS = Context(prec=80)


class FileFacts(NamedTuple):
    """What recipients are told of a file. The name tells it from others, also where URLs are signed."""

    name: str
    size: int
    partition_values: tuple[tuple[str, str], ...]
    deletion_vector: tuple[int, int, int] | None
    statistics: str


@dataclass(frozen=True)
class Part:
    """The files that are compared: those whose size has a remainder."""

    of: int
    number: int

    @classmethod
    def drawn(cls, files: int, seed: int) -> "Part":
        """Return a part of so many files."""
        of = -(-files // _MOST_COMPARED) or 1
        return cls(of, seed % of)

    def has(self, size: int) -> bool:
        """Return whether a file of this size is compared."""
        return size % self.of == self.number


def facts_of(file: DataFile) -> FileFacts:
    name, vector = file.url.partition("?")[0], file.deletion_vector
    place = None if vector is None else (vector.offset, vector.size_bytes, vector.cardinality)
    return _facts(name, file.size_bytes, file.partition_values, place, file.stats)


def facts_of_log(log: TableLog, version: int, part: Part) -> Counter[FileFacts]:
    """Return the files of a version of the log. Raises Spark's errors for one that is not there."""
    files = java.frame(log.snapshot(version).allFiles().toDF(), log.spark)
    vector = f.when(
        f.col("deletionVector").isNotNull(),
        f.array(
            f.coalesce("deletionVector.offset", f.lit(0)),
            f.col("deletionVector.sizeInBytes"),
            f.col("deletionVector.cardinality"),
        ),
    ).alias("vector")
    actions = files.where(f.col("size") % part.of == part.number)
    return Counter(
        _facts(row["path"], row["size"], row["partitionValues"], row["vector"], row["stats"])
        for row in actions.select("path", "size", "partitionValues", vector, "stats").collect()
    )


def facts_of_action(action: Mapping[str, Any]) -> FileFacts:
    """Return the facts of an `add` or a `remove` of a commit."""
    vector = action.get("deletionVector")
    place = vector and [vector.get("offset") or 0, vector["sizeInBytes"], vector["cardinality"]]
    values = action.get("partitionValues")
    return _facts(action["path"], action.get("size") or 0, values, place, action.get("stats"))


def file_differences(
    answer: str, served: Counter[FileFacts], expected: Counter[FileFacts], *, has_all: bool
) -> list[str]:
    """Describe the files of an answer that the log does not have so, and with `has_all` those it lacks."""
    more = served - expected
    less = expected - served if has_all else Counter[FileFacts]()
    known: defaultdict[str, list[FileFacts]] = defaultdict(list)
    for file in expected - served:
        known[file.name].append(file)
    lines = []
    for file in more:
        candidates = known[file.name]
        if candidates:
            other = candidates.pop()
            less -= Counter([other])
            different = [
                word.replace("_", " ")
                for word in FileFacts._fields
                if getattr(file, word) != getattr(other, word)
            ]
            lines.append(f"{answer}: file {file.name}: its {', '.join(different)} in the log differ")
        else:
            lines.append(
                f"{answer}: file {file.name} is listed {served[file]} times, "
                f"the log has it {expected[file]} times"
            )
    lines += [f"{answer}: file {file.name} is not listed" for file in less]
    rest = len(lines) - _MOST_NAMED
    return [*lines[:_MOST_NAMED], *([f"{answer}: and {rest} more files"] if rest > 0 else [])]


def _facts(
    path: str,
    size: int,
    partition_values: Mapping[str, str | None] | None,
    vector: Sequence[int] | None,
    statistics: str | None,
) -> FileFacts:
    # An empty text is null to readers, whatever a writer means.
    given = (partition_values or {}).items()
    values = tuple(sorted((name, _TIME.sub(r"\1 \2.\3", value)) for name, value in given if value))
    place = None if vector is None else (vector[0], vector[1], vector[2])
    return FileFacts(unquote(path.rpartition("/")[2]), size, values, place, _canonical(statistics))


def _canonical(statistics: str | None) -> str:
    """Return statistics as one text for all forms of their JSON; empty without any."""
    try:
        values = json.loads(statistics or "{}", parse_int=Decimal, parse_float=Decimal)
        stated = _stated({name: values[name] for name in _STATISTICS if name in values})
    except (ValueError, TypeError):
        return "none that can be read"
    return json.dumps(stated, sort_keys=True, default=lambda number: str(_DIGITS.normalize(number)))


def _stated(node: Any) -> Any:
    """Return JSON without what states nothing."""
    if not isinstance(node, dict):
        return node
    values: Iterable[tuple[str, Any]] = ((name, _stated(value)) for name, value in node.items())
    return {name: value for name, value in values if value is not None and value != {}}
