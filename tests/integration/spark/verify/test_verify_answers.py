"""Verify finds each alteration of a server's answers, of those about other versions and formats, too."""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from support.gateway_process import running_gateway, share
from support.rewriting_proxy import RewritingProxy

from gateway.spark.targets import Target
from gateway.spark.verify.results import TableResult, VerifyOptions
from gateway.spark.verify.tables import verify

pytestmark = pytest.mark.usefixtures("few_rows")

OPTIONS = VerifyOptions(predicates=1, shown_rows=0, late_ms=0)
Lines = list[Any]


def actions(lines: Lines) -> list[Any]:
    """The actions of the files, as the log has them, or those of the parquet format."""
    wrapped = [next(iter(line.values())) for line in lines if line.keys() & {"file", "add", "remove"}]
    return [next(iter(one.get("deltaSingleAction", {"": one}).values())) for one in wrapped]


def files(lines: Lines) -> Lines:
    return [line for line in lines if line.keys() & {"file", "add", "remove", "cdf"}]


def metadata(lines: Lines) -> Any:
    found = lines[1]["metaData"]
    return found.get("deltaMetadata", found)


def cut(lines: Lines) -> Lines:
    lines.remove(files(lines)[0])
    return lines


def emptied(lines: Lines) -> Lines:
    return [line for line in lines if line not in files(lines)]


def repeated(lines: Lines) -> Lines:
    return [*lines[:2], files(lines)[0], *lines[2:]]


def each(change: Callable[[Any], None]) -> Callable[[Lines], Lines]:
    """Change each action."""

    def altered(lines: Lines) -> Lines:
        for action in actions(lines):
            change(action)
        return lines

    return altered


def first(change: Callable[[Any], Any]) -> Callable[[Lines], Lines]:
    """Change the first action that can be changed so."""

    def altered(lines: Lines) -> Lines:
        for action in actions(lines):
            if change(action):
                break
        return lines

    return altered


def stats(**values: Any) -> Callable[[Lines], Lines]:
    def change(action: Any) -> bool:
        known = json.loads(action["stats"])
        more = {
            name: known[name] | value if isinstance(value, dict) else value for name, value in values.items()
        }
        action["stats"] = json.dumps(known | more)
        return True

    return first(change)


def swapped(of: Callable[[Any], Any], name: str) -> Callable[[Lines], Lines]:
    """Give the first and the last file that have a value each other's."""

    def altered(lines: Lines) -> Lines:
        having = [action for action in actions(lines) if of(action)]
        one, other = having[0], having[-1]
        assert one[name] != other[name]
        one[name], other[name] = other[name], one[name]
        return lines

    return altered


def vectors(action: Any) -> Any:
    return action.get("deletionVector")


def without_vector(action: Any) -> Any:
    return action.pop("deletionVector", None)


def fewer_deleted(action: Any) -> bool:
    if vectors(action):
        action["deletionVector"]["cardinality"] -= 1
    return bool(vectors(action))


def of_table(change: Callable[[Any], None]) -> Callable[[Lines], Lines]:
    def altered(lines: Lines) -> Lines:
        change(metadata(lines))
        return lines

    return altered


def in_schema(text: str, other: str) -> Callable[[Lines], Lines]:
    def change(table: Any) -> None:
        assert text in table["schemaString"]
        table["schemaString"] = table["schemaString"].replace(text, other)

    return of_table(change)


def unmapped(lines: Lines) -> Lines:
    lines[0]["protocol"].get("deltaProtocol", {}).pop("readerFeatures", None)
    return lines


def newer_reader(lines: Lines) -> Lines:
    lines[0]["protocol"]["deltaProtocol"]["minReaderVersion"] = 4
    return lines


def totals(**values: Any) -> Callable[[Lines], Lines]:
    def altered(lines: Lines) -> Lines:
        kept = {**lines[1]["metaData"], **values}
        lines[1]["metaData"] = {name: value for name, value in kept.items() if value is not None}
        return lines

    return altered


def wrapped(**values: Any) -> Callable[[Lines], Lines]:
    def altered(lines: Lines) -> Lines:
        for line in files(lines):
            line["file"] |= values
        return lines

    return altered


LATEST, OLDER = {"version": 6}, {"version": "older"}
STREAM, LIMIT = {"startingVersion": None}, {"limitHint": None}
TIME, HINT = {"timestamp": None}, {"predicateHints": None}
ALTERED: dict[str, tuple[str, dict[str, Any], Callable[[Lines], Lines]]] = {
    "a_file_cut": ("query", LATEST, cut),
    "a_file_twice": ("query", LATEST, repeated),
    "a_vector_dropped": ("query", LATEST, first(without_vector)),
    "vectors_swapped": ("query", LATEST, swapped(vectors, "deletionVector")),
    "a_vector_of_fewer_rows": ("query", LATEST, first(fewer_deleted)),
    "a_partition_value_altered": ("query", LATEST, each(lambda one: one["partitionValues"].update(part="a"))),
    "a_partition_value_emptied": (
        "query",
        LATEST,
        first(lambda one: one["partitionValues"].update(part=None) or 1),
    ),
    "a_size_altered": ("query", LATEST, first(lambda one: one.update(size=one["size"] - 1) or True)),
    "a_lower_bound_raised": ("query", LATEST, stats(minValues={"id": 10**6})),
    "an_upper_bound_lowered": ("query", LATEST, stats(maxValues={"id": -1})),
    "a_number_of_rows_altered": ("query", LATEST, stats(numRecords=1000)),
    "statistics_swapped": ("query", LATEST, swapped(lambda one: True, "stats")),
    "statistics_emptied": ("query", LATEST, each(lambda one: one.pop("stats"))),
    "a_limit_cut": ("query", LIMIT, emptied),
    "a_hint_cut": ("query", HINT, emptied),
    "an_older_version_cut": ("query", OLDER, cut),
    "an_older_version_by_its_time_cut": ("query", TIME, cut),
    "a_stream_cut": ("query", STREAM, cut),
    "a_stream_emptied": ("query", STREAM, emptied),
    "a_stream_with_other_times": ("query", STREAM, wrapped(timestamp=0)),
    "a_stream_with_other_versions": ("query", STREAM, wrapped(version=6)),
    "a_stream_with_other_partitions": (
        "query",
        STREAM,
        each(lambda one: one["partitionValues"].update(part="a")),
    ),
    "changes_cut": ("changes", {}, cut),
    "changes_with_other_times": ("changes", {}, wrapped(timestamp=0)),
    "a_type_altered": ("", {}, in_schema('"long"', '"integer"')),
    "a_column_dropped": ("", {}, in_schema(',{"name":"word"', ',{"name":"other"')),
    "a_comment_emptied": ("", {}, in_schema("the number", "")),
    "the_description_emptied": ("", {}, of_table(lambda one: one.pop("description"))),
    "the_table_id_altered": ("", {}, of_table(lambda one: one.update(id="another"))),
    "partition_columns_emptied": ("", {}, of_table(lambda one: one.update(partitionColumns=[]))),
    "features_emptied": ("", {}, unmapped),
    "a_newer_reader": ("", {}, newer_reader),
    "the_feed_hidden": ("metadata", {}, of_table(lambda one: one.update(configuration={}))),
    "a_number_of_files_altered": ("", {}, totals(numFiles=1)),
    "totals_emptied": ("", {}, totals(size=None, numFiles=None)),
    "times_answered_with_another_version": ("ask", TIME, lambda lines: lines),
    "older_versions_answered_with_the_latest": ("ask", OLDER, lambda lines: lines),
}
OF_PLAIN: dict[str, tuple[str, dict[str, Any], Callable[[Lines], Lines]]] = {
    "parquet_cut": ("query", {}, cut),
}
FALSE: dict[str, Callable[[Any], Any]] = {
    "a_false_lower_bound": lambda one: one["minValues"].update(id=39),
    "a_false_upper_bound": lambda one: one["maxValues"].update(word="w20"),
    "nulls_that_are_not_there": lambda one: one["nullCount"].update(id=one["numRecords"]),
    "a_false_bound_of_a_char": lambda one: one["maxValues"].update(c="c0"),
    "a_false_number_of_rows": lambda one: one.update(numRecords=one["numRecords"] + _DIFFERENCE.pop()),
}
_DIFFERENCE = [-1, 1]
"""Two files, whose false numbers add up to the right one."""
LOOSE = (
    """CREATE TABLE {t} (id BIGINT, c CHAR(6), long STRING, at TIMESTAMP, d DOUBLE, m DECIMAL(9, 2), n INT)
    USING delta
    TBLPROPERTIES (delta.enableDeletionVectors = true, delta.columnMapping.mode = 'name')""",
    """INSERT INTO {t} SELECT id, concat('c', id), concat(repeat('😀é', 30), id),
    timestamp_micros(id * 999983),
    element_at(array(double('NaN'), -0D, 0D, double('-Infinity'), 0.1D), cast(id % 5 + 1 AS INT)), id / 4,
    IF(id = 0, NULL, 1) FROM range(0, 20, 1, 1)""",
    # Of these the bounds are left, and the number of nulls.
    "DELETE FROM {t} WHERE id IN (0, 19)",
)
"""A table whose bounds are right, and no values of its rows."""
KNOWN = {**ALTERED, **OF_PLAIN}
TOGETHER = {
    "a_limit_cut": "limitHint",
    "an_older_version_cut": "version ",
    "a_stream_cut": "(add|remove) of version ",
}
"""Alterations of one table, which have no answer in common, by what the words on each begin with."""
BY_ALL_CHECKS = ("t", "plain")
OF_EACH_CHECK = {
    *("vectors_swapped", "a_number_of_rows_altered", "a_hint_cut"),
    *("changes_cut", "a_type_altered", "the_table_id_altered", "totals_emptied"),
    *("older_versions_answered_with_the_latest", "parquet_cut", "late"),
    *("a_false_upper_bound", "a_false_number_of_rows"),
}
"""An alteration for each check that finds it, beside TOGETHER. Those of a further form run each night."""


def by_night(names: Iterable[str]) -> list[Any]:
    nightly = pytest.mark.nightly
    return [name if name in OF_EACH_CHECK else pytest.param(name, marks=nightly) for name in names]


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("answers")
    found = {"t": root / "t", "plain": root / "plain"}
    for name, properties in (
        ("t", "delta.enableChangeDataFeed = true, delta.enableDeletionVectors = true"),
        ("plain", "delta.enableDeletionVectors = false"),
    ):
        table = f"delta.`{found[name]}`"
        spark.sql(
            f"CREATE TABLE {table} (id BIGINT COMMENT 'the number', word STRING, part STRING, c CHAR(6)) "
            f"USING delta PARTITIONED BY (part) COMMENT 'of tests' TBLPROPERTIES ({properties})"
        )
        values = "id, concat('w', id), IF(id % 2 = 0, 'a', 'b'), concat('c', id % 7)"
        insert = f"INSERT INTO {table} SELECT {values} FROM range"
        spark.sql(f"{insert}(0, 20, 1, 1)")
        spark.sql(f"{insert}(20, 40, 1, 1)")
        if name == "t":
            spark.sql(f"DELETE FROM {table} WHERE id IN (1, 2, 21)")
            spark.sql(f"UPDATE {table} SET word = 'u' WHERE id IN (4, 7, 9)")
            spark.sql(f"DELETE FROM {table} WHERE id IN (24, 28, 30)")
        spark.sql(f"{insert}(40, 60, 1, 1)")
    # Its log has false statistics, which the server sends as they are.
    for name, change in FALSE.items():
        found[name] = root / name
        shutil.copytree(found["plain"], found[name])
        commit = found[name] / "_delta_log" / f"{2:020}.json"
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for one in lines:
            if "add" in one:
                values = json.loads(one["add"]["stats"])
                change(values)
                one["add"]["stats"] = json.dumps(values)
        commit.write_text("".join(json.dumps(one) + "\n" for one in lines))
        # The checksums of Delta and of Hadoop are of what was written.
        for checksum in (f"{commit.stem}.crc", f".{commit.name}.crc"):
            commit.with_name(checksum).unlink(missing_ok=True)
    found["loose"] = root / "loose"
    for statement in LOOSE:
        spark.sql(statement.format(t=f"delta.`{found['loose']}`"))
    # The server's copy of a table that has a later version.
    found["late"] = root / "late"
    shutil.copytree(found["t"], found["late"])
    newest = found["late"] / "_delta_log" / f"{6:020}"
    for suffix in (".json", ".crc"):
        newest.with_suffix(suffix).unlink(missing_ok=True)
    return found


def altered_in(table: str) -> Iterable[str]:
    """The alterations of a table, by its name."""
    return TOGETHER if table == "together" else {table} & KNOWN.keys()


def is_meant(name: str, path: str) -> bool:
    """Whether a request is one whose answer is altered."""
    kind, words, _ = KNOWN[name]
    place, _, query = path.partition("?")
    asked = json.loads(query) if query.startswith("{") else {k: v[0] for k, v in parse_qs(query).items()}
    if kind not in ("", "ask") and not place.endswith(f"/{kind}"):
        return False
    for word, value in words.items():
        given = str(asked.get(word))
        if word not in asked or given != str({"older": asked[word], None: asked[word]}.get(value, value)):
            return False
        if value == "older" and given == str(LATEST["version"]):
            return False
    return True


def checks_of(names: Iterable[str]) -> Iterator[tuple[set[str], VerifyOptions]]:
    """The names of tables with the options of the checks that find what is altered there.

    Only alterations of hints and of change data need drawn filters and change data.
    """
    rest = set(names)
    of_hints = {name for name in rest if KNOWN.get(name, ("", {}))[1] is HINT}
    of_changes = {name for name in rest if KNOWN.get(name, ("",))[0] == "changes"}
    for some, options in (
        (rest & set(BY_ALL_CHECKS), OPTIONS),
        (of_hints, replace(OPTIONS, change_versions=0)),
        (of_changes, replace(OPTIONS, predicates=0)),
    ):
        yield some, options
        rest -= some
    yield rest, replace(OPTIONS, predicates=0, change_versions=0)


def name_of(path: str) -> str:
    return path.partition("/tables/")[2].partition("/")[0]


def rewrite(path: str, lines: Lines) -> Lines:
    for name in altered_in(name_of(path)):
        lines = KNOWN[name][2](lines) if is_meant(name, path) else lines
    return lines


def ask(path: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Ask for the first version in place of a time, and for the latest in place of an older one."""
    name = name_of(path)
    asked = f"{path}?{json.dumps(body)}" if body else path
    if name not in KNOWN or KNOWN[name][0] != "ask" or not is_meant(name, asked):
        return path, body
    other = {"version": 0} if "timestamp" in asked else LATEST
    return (path, other) if body else (f"{path.partition('?')[0]}?version={other['version']}", body)


@pytest.fixture(scope="module")
def verified(
    spark: Any,
    tables: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> dict[str, TableResult]:
    """The results of tables of one server by the names of their alterations, beside unaltered ones.

    Of those alone that the tests of this run name.
    """
    tests = [item for item in request.session.items if item.path == request.path]
    chosen = {item.callspec.params["name"] for item in tests if hasattr(item, "callspec")}
    chosen |= {"loose", "together"}
    locations = {name: str(tables["t"]) for name in ("t", "together", *ALTERED)}
    locations |= {name: str(tables["plain"]) for name in ("plain", *OF_PLAIN)}
    locations |= {name: str(tables[name]) for name in ("loose", *FALSE)}
    shares = [share("s", locations | {"late": str(tables["late"])})]
    locations["late"] = str(tables["t"])
    with running_gateway(tmp_path_factory.mktemp("gateway"), shares) as gateway:
        proxy = RewritingProxy(gateway.profile.read_text(), rewrite, ask)
        try:
            targets = [
                Target(f"s.default.{name}", path, history=True)
                for name, path in locations.items()
                if name in chosen
            ]
            found = []
            for names, options in checks_of(chosen):
                some = [one for one in targets if one.table.rpartition(".")[2] in names]
                found += verify(spark, proxy.profile, some, options)
        finally:
            proxy.close()
    return {one.table.rpartition(".")[2]: one for one in found}


def said(result: TableResult) -> list[str]:
    return [result.error or "", *(line for check in result.checks for line in check.differences)]


@pytest.mark.parametrize("name", ["t", "plain"])
def test_unaltered_answers_are_equal(verified: dict[str, TableResult], name: str) -> None:
    result = verified[name]
    assert (result.outcome, said(result)) == ("equal", [""])
    assert all(check.passed for check in result.checks)
    made = {check.name.split()[0] for check in result.checks}
    of_both = {"schema", "rows", "counts", "statistics", "predicate", "uses"}
    of_both |= {"metadata", "version", "stream"}
    assert made == of_both | ({"changes"} if name == "t" else {"parquet"})


@pytest.mark.parametrize("name", by_night([*ALTERED, *OF_PLAIN, "late"]))
def test_an_alteration_is_found(verified: dict[str, TableResult], name: str) -> None:
    result = verified[name]
    assert result.is_wrong if name != "totals_emptied" else result.outcome == "unproved", said(result)
    if name == "parquet_cut":
        assert "parquet" in [check.name for check in result.checks if check.differences]


def test_each_of_several_alterations_is_found(verified: dict[str, TableResult]) -> None:
    lines = said(verified["together"])
    assert verified["together"].is_wrong
    for beginning in TOGETHER.values():
        assert any(re.match(beginning, line) for line in lines), (beginning, lines)


@pytest.mark.parametrize("name", by_night(FALSE))
def test_false_statistics_of_the_log_are_found(verified: dict[str, TableResult], name: str) -> None:
    column = {"a_false_upper_bound": "word", "a_false_bound_of_a_char": "c"}.get(name, "id")
    line = f"the statistics of a file do not hold for its rows in column {column}"
    if name == "a_false_number_of_rows":
        line = "the statistics of a file state another number of rows than it has"
    differing = [(check.name, check.differences) for check in verified[name].checks if check.differences]
    assert differing == [("statistics", (line,))]


@pytest.mark.parametrize(
    "name", by_night(["a_lower_bound_raised", "an_upper_bound_lowered", "a_number_of_rows_altered"])
)
def test_statistics_that_a_server_alters_do_not_hold_for_the_rows(
    verified: dict[str, TableResult], name: str
) -> None:
    differing = {check.name for check in verified[name].checks if check.differences}
    assert differing >= {"counts", "statistics"}


def test_bounds_that_are_no_values_of_rows_are_right(verified: dict[str, TableResult]) -> None:
    result = verified["loose"]
    assert (result.outcome, said(result)) == ("equal", [""])
    assert "statistics" in {check.name for check in result.checks if check.passed and not check.skipped}


def test_no_value_is_in_what_is_said(verified: dict[str, TableResult]) -> None:
    text = str([said(result) for result in verified.values()])
    for value in ("1000000", "the number", "w59"):
        assert value not in text
