"""The results of verify as JUnit XML and as rows of a Delta table.

In: the `TableResult` of each table. Out: text, or rows appended to a table. Nothing is decided here.
"""

import datetime as dt
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from pyspark.sql import SparkSession

from gateway.spark.verify.history import NOT_COMPARED
from gateway.spark.verify.results import Check, TableResult

RESULT_SCHEMA = (
    "run_at TIMESTAMP, table STRING, version BIGINT, check STRING, outcome STRING, seconds DOUBLE, "
    "rows BIGINT, bytes BIGINT, files BIGINT, differences ARRAY<STRING>, subject STRING, table_id STRING, "
    "commit_mark STRING"
)


def outcome(check: Check) -> str:
    """Return the status of a check as one word."""
    return "skipped" if check.skipped is not None else "different" if check.differences else "equal"


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
            said = [check.skipped] if check.skipped else list(check.differences)
            said += [check.remark] if check.remark else []
            named = (run_at, result.table, result.version, check.name, outcome(check), check.seconds)
            rows.append((*named, *size, said, *identity))
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
        suite = ET.SubElement(suites, "testsuite", name=result.table, time=f"{result.seconds:.3f}")
        for check in result.checks:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=result.table,
                name=xml_text(check.name),
                time=f"{check.seconds:.3f}",
            )
            if check.skipped is not None:
                ET.SubElement(case, "skipped", message=xml_text(check.skipped))
            elif check.differences:
                message = xml_text(check.differences[0])
                ET.SubElement(case, "failure", message=message).text = xml_text("\n".join(check.differences))
            if check.remark is not None:
                ET.SubElement(case, "system-out").text = xml_text(check.remark)
        if result.outcome in NOT_COMPARED:
            case = ET.SubElement(suite, "testcase", classname=result.table, name="table")
            ET.SubElement(case, "skipped", message=not_compared(result))
        if result.error is not None:
            case = ET.SubElement(suite, "testcase", classname=result.table, name="read")
            ET.SubElement(case, "error", message=xml_text(result.error))
        suite.set("tests", str(len(suite)))
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        suite.set("errors", str(len(suite.findall("testcase/error"))))
        suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def xml_text(text: str) -> str:
    """Replace the characters that XML 1.0 does not allow: rows may contain any."""
    return (
        "".join(
            character
            if character in "\t\n" or " " <= character < "\ud800" or character > "\udfff"
            else "\ufffd"
            for character in text
        )
        .replace("\ufffe", "\ufffd")
        .replace("\uffff", "\ufffd")
    )
