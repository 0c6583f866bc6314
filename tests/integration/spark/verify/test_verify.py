"""Verify reports each injected fault and no difference for equal tables."""

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from support.gateway_process import TOKEN, running_gateway, share
from support.plain_server import PlainServer, Table
from support.rewriting_proxy import Rewrite, RewritingProxy
from support.spark_session import settings

from gateway.spark.operations.generate import generate
from gateway.spark.source import DeltaSharingSource
from gateway.spark.targets import Target, load_targets
from gateway.spark.verify import one_table as verifying
from gateway.spark.verify import tables as many_tables
from gateway.spark.verify.compare import Comparison
from gateway.spark.verify.digest import digest
from gateway.spark.verify.errors import described
from gateway.spark.verify.one_table import CONNECTOR_FORMAT
from gateway.spark.verify.page import html
from gateway.spark.verify.predicates import draw_predicates
from gateway.spark.verify.report import junit, result_rows
from gateway.spark.verify.results import TableResult, VerifyOptions
from gateway.spark.verify.tables import verify

pytestmark = pytest.mark.usefixtures("few_rows")

NIGHTLY = pytest.mark.nightly
ROWS = 120
CHECKS = ("schema", "rows", "counts", "statistics", "metadata", "version", "stream", "parquet")
FAST = VerifyOptions(predicates=0, shown_rows=3)


@pytest.fixture(scope="module")
def tables(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("faulty")
    tests = [item for item in request.session.items if item.path == request.path]
    named = {item.callspec.params.get("table") for item in tests if hasattr(item, "callspec")}
    of_tests = {"legacy_dates", "legacy_int96"} & named
    only = ["partitioned", "deletion_vectors", "changes", "changes_mapped_by_id", *of_tests]
    made = generate(spark, str(root), rows=ROWS, only=only)
    return {table.name: Path(table.location) for table in made}


@pytest.fixture
def through(spark: Any, tables: dict[str, Path], server: PlainServer) -> Iterator[Callable[..., TableResult]]:
    """Verify one table through a proxy that rewrites the answers."""
    proxies: list[RewritingProxy] = []

    def run(table: str, rewrite: Rewrite = lambda _, lines: lines, *, fails: bool = False) -> TableResult:
        proxies.append(RewritingProxy(server.profile, rewrite))
        targets = [Target(f"s.d.{table}", str(tables[table]))]
        (result,) = verify(spark, proxies[-1].profile, targets, FAST)
        assert (result.error is not None) == fails
        return result

    yield run
    for proxy in proxies:
        proxy.close()


def differences(result: TableResult, check: str) -> str:
    return "\n".join(line for one in result.checks if one.name.startswith(check) for line in one.differences)


class TestFaultsOfTheSource:
    """Verify finds each fault of earlier sources on tables of `generate`, which test_gateway finds equal."""

    @pytest.fixture
    def verified(
        self, spark: Any, tables: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> Callable[..., TableResult]:
        """Verify one table through a gateway, with a faulty source."""

        def run(
            table: str, source: type[DeltaSharingSource] = DeltaSharingSource, **options: Any
        ) -> TableResult:
            shares = [share("s", {table: str(tables[table])}, historyShared=True)]
            if source is not DeltaSharingSource:
                monkeypatch.setattr(verifying, "FORMAT", source.name())
                monkeypatch.setattr(
                    many_tables, "register", lambda session: session.dataSource.register(source)
                )
            with running_gateway(tmp_path, shares) as gateway:
                targets = [Target(f"s.default.{table}", str(tables[table]))]
                (result,) = verify(spark, str(gateway.profile), targets, replace(FAST, **options))
            monkeypatch.undo()
            assert result.error is None
            return result

        return run

    def test_a_reader_that_all_filters_of_a_dataframe_share_is_found(self, verified: Any, spark: Any) -> None:
        class Pushing(DeltaSharingSource):
            @classmethod
            def name(cls) -> str:
                return "pushing"

            def reader(self, schema: Any) -> Any:
                reader = super().reader(schema)

                def push(filters: Any) -> Any:
                    words = {"EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<="}
                    words |= {"GreaterThan": ">", "GreaterThanOrEqual": ">="}
                    hints = [
                        f"{one.attribute[0]} {words[type(one).__name__]} {literal(one.value)}"
                        for one in filters
                        if type(one).__name__ in words
                    ]
                    hints += [
                        f"{one.attribute[0]} IS NULL" for one in filters if type(one).__name__ == "IsNull"
                    ]
                    if hints:
                        reader._options = replace(reader._options, predicate_hints=" AND ".join(hints))
                    return filters

                def literal(value: Any) -> str:
                    return repr(value) if isinstance(value, int) else f"'{value}'"

                reader.pushFilters = push
                return reader

        with settings(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
            result = verified("partitioned", Pushing, predicates=1)
            assert " rows shared, " in differences(result, "uses")

    def test_change_types_looked_up_by_field_id_are_found(self, verified: Any) -> None:
        class ById(DeltaSharingSource):
            @classmethod
            def name(cls) -> str:
                return "by-id"

            def reader(self, schema: Any) -> Any:
                reader = super().reader(schema)
                read = reader.read

                def by_id(partition: Any) -> Iterator[Any]:
                    from gateway.spark.read import decode  # noqa: PLC0415 - in the worker

                    honest = decode.FileDecoder._change_column

                    def column(self: Any, file: Any, wanted: Any, constants: Any) -> Any:
                        found = honest(self, file, wanted, constants)
                        lost = isinstance(found, decode._FromFile) and self._shape.by_field_id
                        return decode._Constant(decode.pa.scalar(None, decode.pa.string())) if lost else found

                    decode.FileDecoder._change_column = column  # type: ignore[method-assign]
                    try:
                        yield from read(partition)
                    finally:
                        decode.FileDecoder._change_column = honest  # type: ignore[method-assign]

                reader.read = by_id
                return reader

        assert "None of version" in differences(verified("changes_mapped_by_id", ById), "changes")

    @pytest.mark.parametrize("table", ["legacy_dates", pytest.param("legacy_int96", marks=NIGHTLY)])
    def test_dates_of_the_julian_calendar_read_as_gregorian_are_found(
        self, verified: Any, table: str
    ) -> None:
        class Proleptic(DeltaSharingSource):
            @classmethod
            def name(cls) -> str:
                return "proleptic"

            def reader(self, schema: Any) -> Any:
                reader = super().reader(schema)
                read = reader.read

                def unmoved(partition: Any) -> Iterator[Any]:
                    from gateway.spark.read import decode  # noqa: PLC0415 - in the worker

                    honest = decode.FileCalendar
                    decode.FileCalendar = type("Same", (), {"of": lambda *_: honest()})  # type: ignore[misc]
                    try:
                        yield from read(partition)
                    finally:
                        decode.FileCalendar = honest  # type: ignore[misc]

                reader.read = unmoved
                return reader

        assert "rows on both sides, but not the same rows" in differences(verified(table, Proleptic), "rows")


def test_a_filter_for_which_delta_spark_skips_wrongly_is_not_a_difference(spark: Any, tmp_path: Path) -> None:
    """The statistics of a column widened from float to double are rounded, and Spark skips by them."""
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (x FLOAT) USING delta TBLPROPERTIES (delta.enableTypeWidening = true)"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (CAST(0.1 AS FLOAT))")
    spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN x TYPE DOUBLE")
    server = PlainServer({"t": path})
    try:
        options = replace(FAST, predicates=12)
        (result,) = verify(spark, server.profile, [Target("s.d.t", str(path))], options)
    finally:
        server.close()
    assert result.error is None
    assert [check for check in result.checks if check.differences] == []
    remarks = [check.remark for check in result.checks if check.remark]
    assert remarks
    assert "with data skipping on" in remarks[0]


@pytest.mark.parametrize("name", [pytest.param("_metadata", marks=NIGHTLY), "_file_name"])
def test_columns_of_our_names_are_compared(spark: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    spark.sql(f"SELECT id, id _place_of_row, id {name} FROM range(9)").write.format("delta").save(str(path))
    server = PlainServer({"t": path})
    proxy = RewritingProxy(server.profile, only("query", lambda lines: lines[:-1]))
    targets = [Target("s.d.t", str(path))]
    try:
        (equal,) = verify(spark, server.profile, targets, replace(FAST, predicates=2))
        (cut,) = verify(spark, proxy.profile, targets, replace(FAST, predicates=1))
    finally:
        proxy.close()
        server.close()
    assert (equal.outcome, cut.outcome, cut.error) == ("equal", "different", None)
    assert "shared 0 times, in the table 1 times" in differences(cut, "rows")


class TestReportsWithoutValues:
    def test_no_value_of_a_table_is_in_any_report(
        self, spark: Any, tables: dict[str, Path], server: PlainServer
    ) -> None:
        def move(lines: list[Any]) -> list[Any]:
            action = lines[files_of(lines)[0]]["file"]["deltaSingleAction"]["add"]
            action["partitionValues"]["day"] = "1999-12-31"
            return lines

        proxy = RewritingProxy(server.profile, only("query", move))
        targets = [Target("s.d.partitioned", str(tables["partitioned"])), Target("s.d.p", "/nowhere/secret")]
        try:
            results = verify(spark, proxy.profile, targets, replace(FAST, predicates=4, shown_rows=0))
        finally:
            proxy.close()
        assert not results[0].equal
        assert any("partitions differ" in line for line in results[0].checks[1].differences)
        now = dt.datetime.now(dt.UTC)
        for report in (junit(results), html(results, now), str(result_rows(results, now))):
            for value in ("1999-12-31", "2024-01", "name-", "a=b", "é"):
                assert value not in report

    def test_a_value_in_brackets_is_no_error_class(self) -> None:
        plain = ValueError("cannot parse [SECRET_VALUE]")
        assert described(plain, has_values=False) == "ValueError"
        spark_error = AnalysisException(
            errorClass="CANNOT_PARSE_DATATYPE", messageParameters={"msg": "[SECRET_VALUE]"}
        )
        assert described(spark_error, has_values=False) == "AnalysisException CANNOT_PARSE_DATATYPE"


def test_changes_are_compared_from_the_first_shared_version(
    spark: Any, tables: dict[str, Path], tmp_path: Path
) -> None:
    location = str(tables["changes"])
    table = {"name": "changes", "location": location, "historyShared": True, "startVersion": 2}
    shares = [{"name": "s", "schemas": [{"name": "default", "tables": [table]}]}]
    with running_gateway(tmp_path, shares) as gateway:
        targets = load_targets(tmp_path / "gateway.yaml")
        assert targets[0].start_version == 2
        (result,) = verify(spark, str(gateway.profile), targets, FAST)
    assert result.error is None
    assert [check for check in result.checks if check.differences] == []
    assert "changes 2 to 5" in {check.name for check in result.checks}


def test_changes_that_spark_cannot_read_either_are_skipped(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "renamed"
    properties = "delta.enableChangeDataFeed = true, delta.columnMapping.mode = 'name'"
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1)")
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN id TO number")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (2)")
    server = PlainServer({"t": path})
    try:
        (result,) = verify(spark, server.profile, [Target("s.d.t", str(path))], FAST)
    finally:
        server.close()
    assert result.error is None
    assert [check for check in result.checks if check.differences] == []
    (changes,) = [check for check in result.checks if check.name.startswith("changes")]
    assert "Spark cannot read them directly: " in (changes.skipped or "")
    assert "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE" in (changes.skipped or "")


def test_changes_whose_files_are_gone_are_skipped(spark: Any, tmp_path: Path) -> None:
    """The first row is that of the latest version, whose file is there."""
    path = tmp_path / "vacuumed"
    table = f"delta.`{path}`"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    for statement in ("INSERT INTO {} VALUES (1)", "DELETE FROM {}", "VACUUM {} RETAIN 0 HOURS"):
        spark.sql(statement.format(table))
    spark.sql(f"INSERT INTO {table} SELECT id FROM range(0, 5000, 1, 1)")
    server = PlainServer({"t": path})
    try:
        (result,) = verify(spark, server.profile, [Target("s.d.t", str(path), history=True)], FAST)
    finally:
        server.close()
    assert (result.outcome, result.error) == ("equal", None)
    (changes,) = [check for check in result.checks if check.name.startswith("changes")]
    assert "FILE_NOT_EXIST" in (changes.skipped or "")


def test_texts_that_are_equal_by_a_collation_have_two_digests_whatever_a_cluster_sets(spark: Any) -> None:
    with settings(spark, {"spark.sql.legacy.collationAwareHashFunctions": "true"}):
        session = many_tables._sessions(spark)[True]
    lower, upper = (digest(session.sql(f"SELECT '{text}' COLLATE UTF8_LCASE t")) for text in "aA")
    assert lower != upper


# A text is read as a value of its column's type, as by Spark's ANSI rules.
OTHERWISE = {"spark.sql.ansi.enabled": "false", "spark.sql.caseSensitive": "true"}
RULES = {
    "partitioned": "part = recipient.part OR part IS NULL AND day BETWEEN date '2024-01-01' AND "
    "date '2024-01-02'",
    "partition_types": "(I <> '01' AND i IN ('00', '02', '3') OR NOT b) AND m IN (0.5, 7.25) AND "
    "at >= TIMESTAMP '2023-11-14T22:13:20.123457Z' AND n < TIMESTAMP_NTZ '2024-03-01 00:00:00'",
}


def test_a_recipient_reads_what_spark_finds_by_the_rule_of_its_grants(
    spark: Any, tables: dict[str, Path], tmp_path: Path
) -> None:
    made = generate(spark, str(tmp_path / "typed"), rows=ROWS, only=["partition_types"])
    found = {"partitioned": str(tables["partitioned"]), "partition_types": str(made[0].location)}
    grants = [
        {"share": "s", "schema": "default", "table": table, "condition": condition}
        for table, condition in RULES.items()
    ]
    recipient = {
        "name": "tests",
        "tokens": [{"sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}],
        "shares": grants,
        "properties": {"part": "a=b"},
    }
    shares = [share("s", found)]
    with running_gateway(tmp_path, shares, {"recipients": [recipient]}) as gateway:
        configuration = tmp_path / "gateway.yaml"
        targets = load_targets(configuration, recipient="Tests")
        with settings(spark, OTHERWISE):
            results = verify(spark, str(gateway.profile), targets, replace(FAST, predicates=1))
        (whole,) = verify(spark, str(gateway.profile), load_targets(configuration, ["*.partitioned"]), FAST)
    assert [result.table for result in results] == ["s.default.partitioned", "s.default.partition_types"]
    for result in results:
        assert result.error is None
        assert result.equal, [check.differences for check in result.checks]
        assert result.rows > 0
    # Without the rule the rows outside of it are missing.
    assert (whole.error, whole.equal) == (None, False)
    with pytest.raises(ValueError, match="no recipient 'nobody'"):
        load_targets(configuration, recipient="nobody")


def files_of(lines: list[Any]) -> list[int]:
    return [index for index, line in enumerate(lines) if "file" in line]


def only(kind: str, change: Callable[[list[Any]], list[Any]]) -> Rewrite:
    return lambda path, lines: change(lines) if path.partition("?")[0].endswith(f"/{kind}") else lines


def test_what_is_examined_is_not_for_the_server_to_say(
    spark: Any, through: Any, tables: dict[str, Path]
) -> None:
    """A hidden feed is compared all the same, a refused history is found, and so are numbers of rows."""

    def alter(_: str, lines: list[Any]) -> list[Any]:
        for line in lines:
            if "metaData" in line:
                line["metaData"]["deltaMetadata"]["configuration"] = {}
            add = line.get("file", {}).get("deltaSingleAction", {}).get("add")
            if add is not None:
                statistics = json.loads(add["stats"])
                add["stats"] = json.dumps(statistics | {"numRecords": statistics["numRecords"] + 1})
        return lines

    result = through("changes", alter)
    assert "changes" in {check.name.split()[0] for check in result.checks if check.passed}
    assert "states" in differences(result, "counts")
    refusing = PlainServer({"changes": tables["changes"]})
    refusing.history = False
    target = Target("s.d.changes", str(tables["changes"]), history=True)
    try:
        (result,) = verify(spark, refusing.profile, [target], FAST)
    finally:
        refusing.close()
    assert "the server refuses version" in differences(result, "history")


def test_dropped_and_moved_files_are_named_by_partition_and_row(through: Any) -> None:
    def alter(lines: list[Any]) -> list[Any]:
        dropped, moved = files_of(lines)[:2]
        lines[moved]["file"]["deltaSingleAction"]["add"]["partitionValues"]["day"] = "1999-12-31"
        return [line for index, line in enumerate(lines) if index != dropped]

    found = differences(through("partitioned", only("query", alter)), "rows")
    assert "partition part=" in found
    assert ": 0 rows shared, " in found
    assert "day=1999-12-31" in found
    assert "0 in the table" in found
    assert "shared 0 times, in the table 1 times" in found


def test_an_earlier_version_that_is_no_listing_differs_and_a_lost_answer_fails_the_table(
    through: Any,
) -> None:
    def is_earlier(path: str) -> bool:
        return '/query?{"version": ' in path and '"version": 2' not in path

    def garble(path: str, lines: list[Any]) -> list[Any]:
        return lines[::-1] if is_earlier(path) else lines

    def lose(path: str, lines: list[Any]) -> list[Any]:
        if is_earlier(path):
            raise ConnectionError
        return lines

    assert ": the answer does not begin with" in differences(through("partitioned", garble), "version")
    lost = through("partitioned", lose, fails=True)
    assert "/query: " in lost.error
    assert "version" not in {check.name.split()[0] for check in lost.checks}


def test_a_stale_deletion_vector_is_found(through: Any, tables: dict[str, Path], server: PlainServer) -> None:
    past = Table(tables["deletion_vectors"], f"{server.url}/files").query({"version": 1})[1]
    stale = {past[index]["file"]["id"]: past[index] for index in files_of(past)}

    def exchange(lines: list[Any]) -> list[Any]:
        return [stale.get(line["file"]["id"], line) if "file" in line else line for line in lines]

    found = differences(through("deletion_vectors", only("query", exchange)), "rows")
    assert "file part-" in found
    assert "shared 1 times, in the table 0 times" in found


# By day test_verify_answers.py cuts the changes of a table.
@NIGHTLY
def test_a_missing_change_is_found(through: Any) -> None:
    def drop(lines: list[Any]) -> list[Any]:
        return [line for index, line in enumerate(lines) if index not in files_of(lines)[-1:]]

    result = through("changes", only("changes", drop))
    assert not differences(result, "rows")
    assert "of version 5" in differences(result, "changes")


@NIGHTLY
def test_changes_that_differ_in_one_reading_alone_are_found(
    through: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop(lines: list[Any]) -> list[Any]:
        return [line for index, line in enumerate(lines) if index not in files_of(lines)[-1:]]

    # The second reading, in which the difference is traced, finds none.
    monkeypatch.setattr(verifying, "compare_groups", lambda *_: Comparison())
    assert "digest " in differences(through("changes", only("changes", drop)), "changes")


@NIGHTLY
def test_the_official_connectors_format_is_read_on_request(
    spark: Any,
    tables: dict[str, Path],
    server: PlainServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A source of the same name replaces the official connector, which is no dependency of the tests."""

    class Connector(DeltaSharingSource):
        @classmethod
        def name(cls) -> str:
            return CONNECTOR_FORMAT

        def __init__(self, options: Any) -> None:
            self.options = {
                name: value for name, value in options.items() if name.lower() != "responseformat"
            }

    monkeypatch.setattr(many_tables, "register", lambda session: session.dataSource.register(Connector))
    profile = tmp_path / "profile.share"
    profile.write_text(server.profile)
    options = replace(FAST, connector=True)
    targets = [
        Target("s.d.changes", str(tables["changes"])),
        Target("s.d.changes", str(tables["partitioned"])),
    ]
    equal, different = verify(spark, str(profile), targets, options)
    assert equal.error is None
    assert equal.equal
    passed = {check.name.split()[0] for check in equal.checks if check.passed}
    assert passed == {*CHECKS, "changes"}
    assert not different.equal


# By day test_verify_answers.py alters a type.
@NIGHTLY
def test_a_column_of_another_type_is_found(through: Any) -> None:
    def retype(lines: list[Any]) -> list[Any]:
        metadata = lines[1]["metaData"]["deltaMetadata"]
        metadata["schemaString"] = metadata["schemaString"].replace('"double"', '"float"')
        return lines

    found = differences(through("changes", lambda _, lines: retype(lines)), "schema")
    assert found == "column amount is shared as float, the table has double"


def test_a_table_that_cannot_be_read_fails_alone(
    spark: Any, tables: dict[str, Path], server: PlainServer
) -> None:
    targets = [Target("s.d.nowhere", "/nowhere"), Target("s.d.changes", str(tables["changes"]))]
    broken, fine = verify(spark, server.profile, targets, FAST)
    assert broken.error is not None
    assert not broken.equal
    assert fine.equal
    assert {check.name.split()[0] for check in fine.checks if check.passed} == {*CHECKS, "changes"}
    assert fine.rows > 0


def test_the_same_seed_draws_the_same_predicates(spark: Any) -> None:
    frame = spark.sql("SELECT id, id % 3 = 0 b, concat('x', id) s, timestamp_seconds(id) at FROM range(50)")
    drawn = [[one.text for one in draw_predicates(frame, 10, seed)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    for predicate in draw_predicates(frame, 10, 1):
        assert frame.where(predicate.column).count() <= 50
