"""The results of verify as JUnit XML, as metrics and as rows of a Delta table.

In: the `TableResult` of each table. Out: text, a file, or rows appended to a table. Nothing is decided here.
"""

import datetime as dt
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from gateway.spark.run_reports import Case, RunMetrics, Subject, suite, xml
from gateway.spark.verify.history import NOT_COMPARED, Proof
from gateway.spark.verify.results import OUTCOMES, Check, TableResult

RESULT_SCHEMA = (
    "run_at TIMESTAMP, table STRING, version BIGINT, check STRING, outcome STRING, seconds DOUBLE, "
    "rows BIGINT, bytes BIGINT, files BIGINT, differences ARRAY<STRING>, subject STRING, table_id STRING, "
    "commit_mark STRING"
)

_METRICS = RunMetrics(
    "delta_gateway_verify_",
    "table",
    OUTCOMES,
    ("tables", "Tables of the last run by outcome."),
    ("table_wrong", "1 if the table differed or could not be compared, else 0."),
    ("table_proof_timestamp_seconds", "Last run that proved the table, as Unix time."),
)


def outcome(check: Check) -> str:
    """Return the status of a check as one word."""
    if check.skipped is not None:
        return "skipped" if check.is_expected else "unproved"
    return "different" if check.differences else "equal"


def not_compared(result: TableResult) -> str:
    """Return why a table was not compared."""
    if result.unchanged_since is None:
        return "the time of this run was used up before this table"
    return f"unchanged since its proof of {result.unchanged_since:%Y-%m-%d %H:%M} UTC"


def result_rows(results: Sequence[TableResult], run_at: dt.datetime) -> list[tuple[object, ...]]:
    """Return a row per table and check, in the columns of `RESULT_SCHEMA`."""
    rows: list[tuple[object, ...]] = []
    for result in results:
        size = (result.rows, result.bytes, result.files)
        identity = (result.subject, result.table_id, result.commit_mark)
        if result.outcome in NOT_COMPARED:
            named = (run_at, result.table, result.version, "table", result.outcome, result.seconds)
            rows.append((*named, 0, *size[1:], [], *identity))
        for check in result.checks:
            message = [check.skipped] if check.skipped else list(check.differences)
            message += [check.remark] if check.remark else []
            named = (run_at, result.table, result.version, check.name, outcome(check), check.seconds)
            rows.append((*named, *size, message, *identity))
        if result.error is not None:
            failed = (run_at, result.table, result.version, "read", "failed", result.seconds)
            rows.append((*failed, *size, [result.error], *identity))
    return rows


def append_results(
    spark: SparkSession, results: Sequence[TableResult], location: str, run_at: dt.datetime
) -> None:
    """Append a run to a Delta table, which is created if it does not exist."""
    frame = spark.createDataFrame(result_rows(results, run_at), RESULT_SCHEMA)
    frame.write.format("delta").mode("append").save(location)


def junit(results: Sequence[TableResult]) -> str:
    """Render a test suite per table and a case per check, as CI systems read them."""
    suites = ET.Element("testsuites", name="delta-gateway verify")
    for result in results:
        made = suite(result.table, _cases(result))
        made.set("time", f"{result.seconds:.3f}")
        suites.append(made)
    return xml(suites)


def _cases(result: TableResult) -> Iterator[Case]:
    for check in result.checks:
        yield Case(
            result.table,
            check.name,
            check.seconds,
            skipped=check.skipped,
            failures=check.differences if check.skipped is None else (),
            remark=check.remark,
        )
    if result.outcome in NOT_COMPARED:
        yield Case(result.table, "table", skipped=not_compared(result))
    if result.error is not None:
        yield Case(result.table, "read", error=result.error)


def write_metrics(
    path: Path,
    results: Sequence[TableResult],
    run_at: dt.datetime,
    seconds: float,
    proofs: Mapping[str, Proof],
    *,
    others: Collection[str] = (),
) -> None:
    """Write the metrics. Raises OSError.

    `proofs` are of earlier runs, by subject. `others`: shared tables that the run was not about, of which the
    file keeps what it says.
    """

    def subject(result: TableResult) -> Subject:
        earlier = proofs.get(result.subject)
        proved_at = None if earlier is None or result.is_wrong else earlier.proved_at
        return Subject(
            result.table,
            result.outcome,
            None if result.outcome == "postponed" else result.is_wrong,
            run_at if result.outcome == "equal" else proved_at,
            is_good_before=result.outcome == "postponed",
        )

    _METRICS.write(path, list(map(subject, results)), run_at, seconds, others=others)
