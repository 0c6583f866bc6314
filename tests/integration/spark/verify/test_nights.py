"""Verify night after night: proofs, unchanged tables, a budget of time, and what alerts read."""

import datetime as dt
import hashlib
import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.plain_server import PlainServer
from support.rewriting_proxy import RewritingProxy

from gateway.spark import java
from gateway.spark.opened_logs import OpenedLogs
from gateway.spark.targets import Target
from gateway.spark.verify.commit_mark import commit_mark
from gateway.spark.verify.history import History
from gateway.spark.verify.one_table import Verification
from gateway.spark.verify.report import append_results, write_metrics
from gateway.spark.verify.results import Check, TableResult, VerifyOptions
from gateway.spark.verify.tables import verify

pytestmark = pytest.mark.usefixtures("few_rows")

NIGHTLY = VerifyOptions(predicates=0, incremental=True, shown_rows=3)
# Inside of the age at which tables are proved again.
RUN_AT = dt.datetime.now(dt.UTC).replace(microsecond=123456) - dt.timedelta(days=2)
NIGHT = dt.timedelta(days=1)
EACH_NIGHT = pytest.mark.nightly


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nights") / "t"
    properties = "delta.enableChangeDataFeed = true, delta.enableDeletionVectors = false"
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id FROM range(10)")
    return path


@pytest.fixture
def tables(made: Path, tmp_path: Path) -> dict[str, Path]:
    return {name: Path(shutil.copytree(made, tmp_path / name)) for name in ("one", "other")}


@pytest.fixture
def night(spark: Any, tables: dict[str, Path], server: PlainServer, tmp_path: Path) -> Callable[..., Any]:
    """Run verify with the proofs of the nights before, and keep its results unless `is_kept` is false."""
    results = str(tmp_path / "results")
    targets = [Target(f"s.d.{name}", str(path)) for name, path in tables.items()]
    nights = 0

    def run(
        options: VerifyOptions = NIGHTLY,
        profile: str = "",
        *,
        is_kept: bool = True,
        only: Collection[str] = tables,
        **more: Any,
    ) -> dict[str, TableResult]:
        nonlocal nights
        proofs = History(spark, results).proofs()
        chosen = [target for target, name in zip(targets, tables, strict=True) if name in only]
        found = verify(spark, profile or server.profile, chosen, options, proofs=proofs, **more)
        if is_kept:
            append_results(spark, found, results, RUN_AT + nights * NIGHT)
            nights += 1
        return {one.table.removeprefix("s.d."): one for one in found}

    run.results = results  # type: ignore[attr-defined]
    return run


@pytest.fixture
def no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows count as equal without a look, and answers are compared."""

    def readings(verification: Verification, *_: Any) -> None:
        verification._result.checks.append(Check("rows", 0.0))

    monkeypatch.setattr(Verification, "_check_readings", readings)


@pytest.fixture(params=[False, pytest.param(True, marks=EACH_NIGHT)], ids=["answers", "rows"])
def reads_rows(request: pytest.FixtureRequest) -> bool:
    """Whether the rows are compared as well, for which Spark needs most of the time."""
    if not request.param:
        request.getfixturevalue("no_rows")
    return request.param


@pytest.fixture
def no_comparison(no_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compared: for tests of what is compared, which is decided before."""
    for name in ("_check_answers", "_check_changes"):
        monkeypatch.setattr(Verification, name, lambda _: None)


def outcomes(found: dict[str, TableResult]) -> dict[str, str]:
    return {name: result.outcome for name, result in found.items()}


def test_only_tables_with_new_versions_are_compared(
    spark: Any, tables: dict[str, Path], server: PlainServer, night: Any, reads_rows: bool
) -> None:
    assert outcomes(night()) == {"one": "equal", "other": "equal"}
    spark.sql(f"INSERT INTO delta.`{tables['other']}` VALUES (10)")
    spark.sql(f"INSERT INTO delta.`{tables['other']}` VALUES (11)")
    server.requests.clear()
    second = night()
    assert outcomes(second) == {"one": "unchanged", "other": "equal"}
    assert second["one"].unchanged_since == RUN_AT
    assert second["other"].rows == 12 * reads_rows
    # The change data since the proof, and not those before.
    assert [check.name for check in second["other"].checks if "changes" in check.name] == ["changes 2 to 3"]
    assert not [path for _, path, _ in server.requests if "/tables/one/" in path and "metadata" not in path]
    # An unchanged table keeps its proof.
    assert outcomes(night()) == {"one": "unchanged", "other": "unchanged"}
    runs = History(spark, night.results).runs()
    assert [(run.equal, run.unchanged, run.wrong, run.rows) for run in runs] == [
        (2, 0, 0, 20 * reads_rows),
        (1, 1, 0, 12 * reads_rows),
        (0, 2, 0, 0),
    ]
    assert [run.run_at for run in runs] == [RUN_AT + number * NIGHT for number in range(3)]


@pytest.mark.usefixtures("no_comparison")
def test_a_proof_is_of_one_release_of_the_server(server: PlainServer, night: Any) -> None:
    night()
    server.product = "plain/2"
    assert outcomes(night()) == {"one": "equal", "other": "equal"}
    assert outcomes(night()) == {"one": "unchanged", "other": "unchanged"}


@pytest.mark.usefixtures("no_rows")
@pytest.mark.parametrize("and_back", [False, pytest.param(True, marks=EACH_NIGHT)])
def test_a_difference_ends_a_proof(server: PlainServer, night: Any, and_back: bool) -> None:
    def fewer(path: str, lines: list[Any]) -> list[Any]:
        return lines[:-1] if path.partition("?")[0].endswith("/query") and "file" in lines[-1] else lines

    options = replace(NIGHTLY, change_versions=0)
    night(options, only=["one"])
    faulty = RewritingProxy(server.profile, fewer)
    try:
        # Another endpoint is another subject: its tables have no proof.
        for _ in range(2):
            assert outcomes(night(options, faulty.profile, only=["one"])) == {"one": "different"}
    finally:
        faulty.close()
    if and_back:
        assert outcomes(night(options, only=["one"])) == {"one": "unchanged"}


@pytest.mark.usefixtures("no_comparison")
def test_a_proof_holds_for_the_same_question_and_not_for_ever(night: Any) -> None:
    night()
    others: tuple[dict[str, Any], ...] = (
        {"prove_again_after": dt.timedelta(hours=1)},
        {"incremental": False},
        {"change_versions": 0},
        {"reader": "another"},
    )
    for other in others:
        found = night(replace(NIGHTLY, **other), is_kept=False)
        assert outcomes(found) == {"one": "equal", "other": "equal"}, other


@pytest.mark.usefixtures("no_comparison")
def test_a_table_that_was_made_again_is_compared(spark: Any, tables: dict[str, Path], night: Any) -> None:
    night()
    shutil.rmtree(tables["one"])
    spark.sql(f"CREATE TABLE delta.`{tables['one']}` (id BIGINT) USING delta")
    spark.sql(f"INSERT INTO delta.`{tables['one']}` SELECT id FROM range(7)")
    assert outcomes(night()) == {"one": "equal", "other": "unchanged"}


def test_a_table_put_back_from_a_copy_is_compared_though_its_version_is_the_same(
    spark: Any, made: Path, tables: dict[str, Path], night: Any, reads_rows: bool
) -> None:
    def insert(name: str, rows: str) -> None:
        spark.sql(f"INSERT INTO delta.`{tables[name]}` VALUES {rows}")

    insert("one", "(10)")
    insert("other", "(10)")
    assert outcomes(night()) == {"one": "equal", "other": "equal"}
    for path in tables.values():
        shutil.rmtree(path)
        shutil.copytree(made, path)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    insert("one", "(11), (12)")
    insert("other", "(11)")
    insert("other", "(12)")
    second = night()
    assert outcomes(second) == {"one": "equal", "other": "equal"}
    rows = 12 * reads_rows
    assert [(result.version, result.rows) for result in second.values()] == [(2, rows), (3, rows)]
    # Not only since the version of the proof, which is of another past.
    assert [check.name for check in second["other"].checks if "changes" in check.name] == ["changes 0 to 3"]
    if reads_rows:
        assert outcomes(night()) == {"one": "unchanged", "other": "unchanged"}


def test_without_its_commit_a_version_is_marked_by_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    log = tmp_path / "a table" / "_delta_log"
    log.mkdir(parents=True)

    def mark() -> str | None:
        return commit_mark(spark, str(log.parent), 7)

    assert mark() is None
    checkpoint = log / f"{7:020}.checkpoint.parquet"
    checkpoint.write_bytes(b"rows")
    first = mark()
    checkpoint.write_bytes(b"other rows")
    second = mark()
    commit = log / f"{7:020}.json"
    commit.write_bytes(b"{}")
    third = mark()
    commit.write_bytes(b"[]")
    os.utime(commit, (1, 1))
    assert len({first, second, third, mark(), None}) == 5
    checkpoint.unlink()
    assert mark() == hashlib.sha256(b"[]").hexdigest() + "-2-1000"


@pytest.mark.usefixtures("no_comparison")
def test_what_the_time_does_not_suffice_for_comes_first_the_next_night(night: Any, tmp_path: Path) -> None:
    one_at_a_time = replace(NIGHTLY, parallel=1, incremental=False, budget=dt.timedelta(seconds=60))
    # The time of the start, then of each table.
    first = night(one_at_a_time, clock=iter([0.0, 59.9, 60.0]).__next__)
    assert outcomes(first) == {"one": "equal", "other": "postponed"}
    second = night(one_at_a_time, clock=iter([0.0, 59.9, 60.0]).__next__)
    assert outcomes(second) == {"one": "postponed", "other": "equal"}
    file = tmp_path / "verify.prom"
    write_metrics(file, list(second.values()), RUN_AT, 12.5, {})
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }
    assert samples["delta_gateway_verify_tables", "postponed"] == 1
    assert samples["delta_gateway_verify_table_wrong", "s.d.other"] == 0
    assert samples["delta_gateway_verify_table_proof_timestamp_seconds", "s.d.other"] == RUN_AT.timestamp()
    assert ("delta_gateway_verify_table_wrong", "s.d.one") not in samples


@pytest.mark.usefixtures("no_comparison")
def test_delta_keeps_the_logs_of_the_last_tables_only(
    spark: Any, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {f"t{number}": Path(shutil.copytree(made, tmp_path / f"t{number}")) for number in range(3)}
    monkeypatch.setattr("gateway.spark.verify.tables.OpenedLogs", lambda of: OpenedLogs(of, most=2))
    kept = java.companion(java.classes(spark).org.apache.spark.sql.delta, "DeltaLog")
    kept.clearCache()
    server = PlainServer(tables)
    targets = [Target(f"s.d.{name}", str(path)) for name, path in tables.items()]
    try:
        found = verify(spark, server.profile, targets, VerifyOptions(predicates=0, parallel=1))
    finally:
        server.close()
    assert [one.outcome for one in found] == ["equal"] * 3
    # Exact for one table at a time: of several, one can be forgotten after another use has opened it again.
    assert kept.cacheSize() == 2
    # What is let go of while it is read is read to its end.
    logs, rows = OpenedLogs(spark, most=0), spark.read.format("delta").load(targets[0].location)
    logs.add(targets[0].location)
    assert rows.count() == 10
