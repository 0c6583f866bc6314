"""Reports contain the results in formats that other tools read. No Spark session is needed."""

import datetime as dt
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import html5lib
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.spark import cli
from gateway.spark.operations.fleet import TableHealth, _from_log, advise
from gateway.spark.operations.fleet_history import Survey
from gateway.spark.operations.fleet_page import html as fleet_html
from gateway.spark.targets import Target
from gateway.spark.verify import history
from gateway.spark.verify.errors import described
from gateway.spark.verify.history import Proof, Run, subject_of
from gateway.spark.verify.page import html
from gateway.spark.verify.report import junit, result_rows, write_metrics
from gateway.spark.verify.results import OUTCOMES, Check, TableResult, VerifyOptions

MIB = 1 << 20
RUN_AT = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)

EQUAL = TableResult("s.d.fine", 7, 100, 2000, 3, 1.5, [Check("schema", 0.1), Check("rows", 1.0)])
DIFFERENT = TableResult(
    "s.d.wrong",
    8,
    50,
    10,
    1,
    2.0,
    [
        Check("rows", 1.0, ("file part-0: 1 rows shared, 2 in the table", 'row {"a":"<b>\x01&"}')),
        Check("changes", 0.0, skipped="not shared with history"),
    ],
)
FAILED = TableResult("s.d.broken", error="the table <is> not there")
RESULTS = [EQUAL, DIFFERENT, FAILED]


def read_page(page: str) -> str:
    """The text of a page, which must be valid HTML."""
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    return " ".join(tree.find("body").itertext())


def test_the_page_lists_every_difference_and_escapes_it() -> None:
    text = read_page(html(RESULTS, RUN_AT))
    assert "2 of 3 tables differ" in text
    assert '{"a":"<b>\N{SYMBOL FOR START OF HEADING}&"}' in text
    assert "the table <is> not there" in text
    assert "not shared with history" in text
    assert "2026-01-02 03:04 UTC" in text


def test_the_page_of_equal_tables_reports_equality() -> None:
    assert "1 tables, 100 rows: all equal." in read_page(html([EQUAL], RUN_AT))


def test_junit_has_a_case_per_check() -> None:
    suites = ET.fromstring(junit(RESULTS))
    counts = {
        suite.get("name"): tuple(suite.get(key) for key in ("tests", "failures", "errors", "skipped"))
        for suite in suites
    }
    assert counts == {
        "s.d.fine": ("2", "0", "0", "0"),
        "s.d.wrong": ("2", "1", "0", "1"),
        "s.d.broken": ("1", "0", "1", "0"),
    }
    failure = suites.find(".//failure")
    assert failure is not None
    assert "part-0" in (failure.text or "")


def test_result_rows_name_every_outcome() -> None:
    rows = result_rows(RESULTS, RUN_AT)
    assert [(row[1], row[3], row[4]) for row in rows] == [
        ("s.d.fine", "schema", "equal"),
        ("s.d.fine", "rows", "equal"),
        ("s.d.wrong", "rows", "different"),
        ("s.d.wrong", "changes", "skipped"),
        ("s.d.broken", "read", "failed"),
    ]


UNCHANGED = TableResult("s.d.calm", 7, 0, 2000, 3, 0.1, table_id="i", unchanged_since=RUN_AT, subject="c")
POSTPONED = TableResult("s.d.late", postponed=True, subject="l")
UNPROVED = replace(EQUAL, table="s.d.hid", checks=[Check("sizes", 0.0, skipped="hidden", is_expected=False)])


def test_a_skip_that_was_not_expected_is_no_proof() -> None:
    expected = replace(EQUAL, checks=[Check("changes", 0.0, skipped="not shared with history")])
    assert (UNPROVED.outcome, expected.outcome) == ("unproved", "equal")
    assert [row[3:5] for row in result_rows([UNPROVED, expected], RUN_AT)] == [
        ("sizes", "unproved"),
        ("changes", "skipped"),
    ]
    text = read_page(html([EQUAL, UNPROVED], RUN_AT))
    assert "1 tables, 200 rows: all equal. 1 equal as far as the server lets them be compared." in text


def test_tables_that_were_not_compared_are_neither_equal_nor_wrong() -> None:
    results = [EQUAL, UNCHANGED, POSTPONED]
    assert [result.outcome for result in results] == ["equal", "unchanged", "postponed"]
    assert [row[3:5] for row in result_rows([UNCHANGED, POSTPONED], RUN_AT)] == [
        ("table", "unchanged"),
        ("table", "postponed"),
    ]
    suites = ET.fromstring(junit(results))
    assert [suite.get("skipped") for suite in suites] == ["0", "1", "1"]
    text = read_page(html(results, RUN_AT))
    assert "1 tables, 100 rows: all equal. 1 unchanged since their proof. 1 left for the next run." in text
    assert "unchanged since its proof of 2026-01-02 03:04 UTC" in text
    assert "the time of this run was used up before this table" in text
    assert "1 of 4 tables differ or could not be read. 1 unchanged" in read_page(
        html([*results, FAILED], RUN_AT)
    )


def test_pages_have_trends_once_there_are_two_nights() -> None:
    night = dt.timedelta(days=1)
    runs = [
        Run(RUN_AT - night, equal=3, wrong=0, unchanged=0, postponed=0, rows=70, seconds=9.0),
        Run(RUN_AT, equal=1, wrong=1, unchanged=1, postponed=0, rows=50, seconds=4.0),
    ]
    page = html(RESULTS, RUN_AT, runs)
    assert "Nights" in read_page(page)
    for title in ("Tables by outcome", "Rows compared", "Time of all tables together"):
        assert title in page
    assert "2026-01-01" in page
    assert "Nights" not in read_page(html(RESULTS, RUN_AT, runs[1:]))
    sums = {"tables": 2, "unreadable": 0, "bytes": 5, "small_files": 1, "tombstones": 0}
    surveys = [
        Survey(run.run_at, files=files, longest_listing_seconds=0.5, **sums)
        for run, files in zip(runs, (7, 9), strict=True)
    ]
    fleet = fleet_html([TableHealth("s.d.t", files=9)], RUN_AT, surveys)
    assert "Files of all tables" in fleet
    assert "Nights" not in read_page(fleet_html([TableHealth("s.d.t", files=9)], RUN_AT, surveys[1:]))


def samples_of(file: Path) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("delta_gateway_verify_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }


def test_metrics_tell_wrong_tables_and_the_age_of_proofs(tmp_path: Path) -> None:
    file = tmp_path / "verify.prom"
    named = replace(EQUAL, table='s.d."quoted\\"', subject="e")
    earlier = {"c": Proof(7, "i", RUN_AT - dt.timedelta(days=3)), "l": Proof(1, "i", RUN_AT)}
    results = [named, UNPROVED, DIFFERENT, FAILED, UNCHANGED, POSTPONED]
    write_metrics(file, results, RUN_AT, 12.5, earlier)
    samples = samples_of(file)
    at = RUN_AT.timestamp()
    assert samples == {
        ("run_timestamp_seconds",): at,
        ("run_seconds",): 12.5,
        **{("tables", outcome): 1 for outcome in OUTCOMES},
        ("table_wrong", named.table): 0,
        ("table_wrong", "s.d.hid"): 0,
        ("table_wrong", "s.d.wrong"): 1,
        ("table_wrong", "s.d.broken"): 1,
        ("table_wrong", "s.d.calm"): 0,
        ("table_proof_timestamp_seconds", named.table): at,
        ("table_proof_timestamp_seconds", "s.d.calm"): at - 3 * 86_400,
        ("table_proof_timestamp_seconds", "s.d.late"): at,
    }
    # A run of some tables, or one that was too short, takes nothing back.
    broken = replace(POSTPONED, table=FAILED.table)
    write_metrics(file, [broken], RUN_AT, 1, {}, others={"s.d.calm", "s.d.wrong"})
    later = samples_of(file)
    wrong = {key[1]: value for key, value in later.items() if key[0] == "table_wrong"}
    assert wrong == {"s.d.broken": 1, "s.d.wrong": 1, "s.d.calm": 0}
    proof = ("table_proof_timestamp_seconds", "s.d.calm")
    assert later[proof] == samples[proof]
    # Also where no table of results has the proof.
    write_metrics(file, [replace(POSTPONED, table="s.d.calm")], RUN_AT, 1, {})
    assert samples_of(file)[proof] == samples[proof]
    # Nothing else is left beside the file, which a collector may read at any time.
    assert list(tmp_path.iterdir()) == [file]


HOSTILE = [
    "s.d.<script>alert(1)</script>",
    "s.d." + "x" * 251,
    "s.d.\u05e9\u05dc\u05d5\u05dd",
    "s.d.\x00\ud800",
]


def test_a_page_of_verify_begins_with_differences_and_actions() -> None:
    page = html(RESULTS, RUN_AT)
    first_table = page.index("<table")
    for said in ("rows: different", "cannot be read", "--table &#39;s.d.wrong&#39; --shown-rows 100"):
        assert page.index(said) < first_table
    assert page.index("s.d.broken", first_table) < page.index("s.d.fine", first_table)


def test_the_action_for_another_schema_shows_no_more_rows() -> None:
    check = Check("schema", 0.1, ("column a is not shared",))
    text = read_page(html([TableResult("s.d.wrong", 8, 0, 10, 1, 0.4, [check])], RUN_AT))
    assert "at the location that it was compared with" in text
    assert "--table 's.d.wrong'" in text
    assert "--shown-rows" not in text


def test_rows_that_were_not_read_are_missing_and_not_zero() -> None:
    unread = TableResult("s.d.unread", 8, checks=[Check("schema", 0.1, ("column a is not shared",))])
    page = html([unread, replace(EQUAL, rows=0)], RUN_AT)
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iterfind(".//tbody/tr")]
    assert [(row[0], row[3]) for row in rows] == [("s.d.unread", "\N{EN DASH}"), ("s.d.fine", "0")]


def test_the_error_of_a_java_method_is_its_cause() -> None:
    error = ValueError(
        "An error occurred while calling o68.load.\n"
        ": java.io.FileNotFoundException: File file:/gone does not exist\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
        "\tSuppressed: org.apache.spark.util.Utils$OriginalTryStackTraceException: Full stacktrace\n"
        "\t\tat org.apache.spark.sql.Dataset.load(Dataset.scala:1)\n"
        "\t\t... 21 more\n"
    )
    cause = "java.io.FileNotFoundException: File file:/gone does not exist"
    assert described(error, has_values=True) == cause


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_of_a_table_is_only_text(name: str) -> None:
    check = Check(name, 1.0, (name,), remark=name)
    verified = TableResult(name, 1, 1, 1, 1, 1.0, [check, Check(name, 0.0, skipped=name)], error=name)
    health = TableHealth(name, checkpoint=name, reader_features=(name,), needs_delta_format=True)
    pages = [html([verified], RUN_AT), fleet_html([health, TableHealth(name, error=name)], RUN_AT)]
    for page in pages:
        page.encode()
        read_page(page)
        assert page.count("<script") == 1


def test_pages_of_no_table_and_of_thousands_are_valid() -> None:
    assert "0 tables, 0 rows: all equal." in read_page(html([], RUN_AT))
    assert "0 tables, 0 files" in read_page(fleet_html([], RUN_AT))
    many = [TableHealth(f"s.d.{index}", files=index, small_files=index) for index in range(2000)]
    page = fleet_html(many, RUN_AT)
    assert "2,000 tables, 1,999,000 files" in page
    assert "The largest 20 of 2,000." in page
    assert page.count("<bdi>s.d.1999</bdi>") == 2


@pytest.mark.parametrize(
    ("files", "small", "size", "left"),
    [
        (3000, 3000, 1_234_567, 1),
        (100, 100, 100 * 15 * MIB, 12),
        (19, 15, 4 * 2048 * MIB, 4 + 2),
        (19, 15, 4 * 2048 * MIB + 15 * MIB, 4 + 2),
    ],
)
def test_the_advice_to_optimize_estimates_the_remaining_files(
    files: int, small: int, size: int, left: int
) -> None:
    (advice,) = advise([TableHealth("s.d.t", files=files, small_files=small, bytes=size)])
    assert advice.action == "optimize"
    assert advice.reason.endswith(f"OPTIMIZE would leave about {left}")
    assert advice.gain > 0


@pytest.mark.parametrize(
    ("names", "removed"),
    [
        (["80a083e8-7026-4e79-81be-64bd76c43a11.parquet", "parquet"], 1),
        ([f"{first}0a083e8-7026-4e79-81be-64bd76c43a11.parquet" for first in "8f"], 1),
        ([f"000000000{part}.0000000002.parquet" for part in "12"] + ["0000000001.0000000001.parquet"], 2),
    ],
)
def test_removed_files_are_counted_in_one_checkpoint_of_a_version(
    tmp_path: Path, names: list[str], removed: int
) -> None:
    (tmp_path / "_delta_log").mkdir()
    for name in names:
        file = tmp_path / f"_delta_log/{3:020}.checkpoint.{name}"
        pq.write_table(pa.table({"remove": [{"path": "a"}, None]}), file)
    assert _from_log(Target("t", str(tmp_path))).tombstones == removed


def test_the_page_of_a_fleet_begins_with_unreadable_tables_and_then_advice() -> None:
    sound = TableHealth(
        "s.d.small", version=12, files=3000, bytes=1_234_567, small_files=3000, days_since_commit=1.5,
        listing_seconds=0.0123456,
    )  # fmt: skip
    unknown = TableHealth("s.d.unknown", days_since_commit=None)
    page = fleet_html([sound, unknown, TableHealth("s.d.gone", error="NotFound: <no> table")], RUN_AT)
    text = read_page(page)
    assert "1 tables that cannot be read" in text
    assert (
        text.index("NotFound: <no> table") < text.index("OPTIMIZE would leave about") < text.index("12.3 ms")
    )
    assert "1.23 MB" in text
    assert "36 h" in text


def test_a_command_with_a_page_fails_at_once_without_the_libraries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("gateway.report.page._LIBRARIES", ("jinja2", "no_such_library"))
    command = ["usage", str(tmp_path / "none.jsonl"), "--html", str(tmp_path / "usage.html")]
    assert cli.main(command) == 1
    assert "no_such_library: pip install 'delta-sharing-gateway[spark]'" in capsys.readouterr().err


def test_a_subject_is_a_table_with_all_that_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history.metadata, "version", lambda _name: "a release")
    target, what = Target("s.d.t", "/t", 3, "p = recipient.area", {"area": "x"}), VerifyOptions().what()
    others = [
        subject_of(replace(target, **change), "http://h", what)
        for change in (
            {"table": "s.d.u"},
            {"location": "/u"},
            {"start_version": 4},
            {"history": True},
            {"condition": None},
            {"properties": {"area": "y"}},
        )
    ]
    others += [
        subject_of(target, "http://other", what),
        subject_of(target, "http://h", {**what, "reader": "bob"}),
    ]
    first = subject_of(target, "http://h", what)
    assert first == subject_of(target, "http://h", what)
    assert len({first, *others}) == len(others) + 1
    monkeypatch.setattr(history.metadata, "version", lambda _name: "another release")
    assert subject_of(target, "http://h", what) != first
    monkeypatch.setattr(history.metadata, "version", raise_not_found)
    assert subject_of(target, "http://h", what) not in {first, *others}


def raise_not_found(name: str) -> str:
    raise history.metadata.PackageNotFoundError(name)
