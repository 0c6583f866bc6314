"""What verify found: as a page, as JUnit XML, as rows of a Delta table.

Comes in: `TableResult`s. Goes out: text, or rows appended to a table. Nothing is decided here.
"""

import datetime as dt
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from pyspark.sql import SparkSession

from gateway.spark.report import Cell, Verdict, bars, heading, page, paragraph, preformatted, table
from gateway.spark.verify.tables import Check, TableResult

RESULT_SCHEMA = (
    "run_at TIMESTAMP, table STRING, version BIGINT, check STRING, outcome STRING, seconds DOUBLE, "
    "rows BIGINT, bytes BIGINT, files BIGINT, differences ARRAY<STRING>"
)


def outcome(check: Check) -> str:
    """One word for a check."""
    return "skipped" if check.skipped is not None else "different" if check.differences else "equal"


def result_rows(results: Sequence[TableResult], run_at: dt.datetime) -> list[tuple[object, ...]]:
    """A row per table and check, in the columns of `RESULT_SCHEMA`."""
    rows: list[tuple[object, ...]] = []
    for result in results:
        size = (result.rows, result.bytes, result.files)
        for check in result.checks:
            said = [check.skipped] if check.skipped else list(check.differences)
            said += [check.remark] if check.remark else []
            named = (run_at, result.table, result.version, check.name, outcome(check), check.seconds)
            rows.append((*named, *size, said))
        if result.error is not None:
            failed = (run_at, result.table, result.version, "read", "failed", result.seconds)
            rows.append((*failed, *size, [result.error]))
    return rows


def append_results(
    spark: SparkSession, results: Sequence[TableResult], location: str, run_at: dt.datetime
) -> None:
    """Append a run to a Delta table, which is made when it is not there."""
    frame = spark.createDataFrame(result_rows(results, run_at), RESULT_SCHEMA)
    frame.write.format("delta").mode("append").save(location)


def junit(results: Sequence[TableResult]) -> str:
    """A test suite per table and a case per check, as CI systems read them."""
    suites = ET.Element("testsuites", name="delta-gateway verify")
    for result in results:
        suite = ET.SubElement(suites, "testsuite", name=result.table, time=f"{result.seconds:.3f}")
        for check in result.checks:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=result.table,
                name=_xml_text(check.name),
                time=f"{check.seconds:.3f}",
            )
            if check.skipped is not None:
                ET.SubElement(case, "skipped", message=_xml_text(check.skipped))
            elif check.differences:
                message = _xml_text(check.differences[0])
                ET.SubElement(case, "failure", message=message).text = _xml_text("\n".join(check.differences))
            if check.remark is not None:
                ET.SubElement(case, "system-out").text = _xml_text(check.remark)
        if result.error is not None:
            case = ET.SubElement(suite, "testcase", classname=result.table, name="read")
            ET.SubElement(case, "error", message=_xml_text(result.error))
        suite.set("tests", str(len(suite)))
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        suite.set("errors", str(len(suite.findall("testcase/error"))))
        suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def html(results: Sequence[TableResult], run_at: dt.datetime) -> str:
    """The page: summary, per table, plots, and every difference."""
    wrong = [result for result in results if not result.equal]
    rows = sum(result.rows for result in results)
    summary = (
        f"{len(results)} tables, {rows:,} rows: all equal."
        if not wrong
        else f"{len(wrong)} of {len(results)} tables differ or could not be read."
    )
    parts = [
        paragraph(summary, good=not wrong),
        paragraph(f"Run at {run_at:%Y-%m-%d %H:%M} UTC."),
        table(
            ["table", "version", "outcome", "rows", "bytes", "files", "seconds", "checks"],
            [_line(result) for result in results],
        ),
        *(part for result in wrong for part in _findings(result)),
        *_skipped(results),
        *_remarks(results),
        bars("Rows", [(result.table, result.rows) for result in results]),
        bars("Bytes", [(result.table, result.bytes) for result in results], "B"),
        bars("Time", [(result.table, result.seconds) for result in results], "s"),
    ]
    return page("Shares against their tables", *parts)


def _line(result: TableResult) -> list[Cell]:
    verdict = "failed" if result.error else "equal" if result.equal else "different"
    passed = sum(check.passed for check in result.checks)
    return [
        result.table,
        "" if result.version is None else str(result.version),
        Verdict(verdict, result.equal),
        result.rows,
        result.bytes,
        result.files,
        round(result.seconds, 2),
        f"{passed} of {len(result.checks)}",
    ]


def _findings(result: TableResult) -> list[str]:
    parts = [heading(result.table)]
    if result.error is not None:
        parts.append(preformatted([result.error]))
    for check in result.checks:
        if check.differences:
            parts += [paragraph(check.name), preformatted(check.differences)]
    return parts


def _skipped(results: Sequence[TableResult]) -> list[str]:
    rows = [
        [result.table, check.name, check.skipped]
        for result in results
        for check in result.checks
        if check.skipped is not None
    ]
    return [heading("Not compared"), table(["table", "check", "why"], rows)] if rows else []


def _remarks(results: Sequence[TableResult]) -> list[str]:
    rows = [
        [result.table, check.name, check.remark]
        for result in results
        for check in result.checks
        if check.remark is not None
    ]
    return [heading("Seen besides"), table(["table", "check", "what"], rows)] if rows else []


def _xml_text(text: str) -> str:
    """Replace what XML 1.0 cannot hold: rows may have any character in them."""
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
