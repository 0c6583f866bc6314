"""`usage` sums up the audit log that the gateway writes."""

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import html5lib
import pytest

from gateway.spark import cli
from gateway.spark.operations.usage import read_audit, upsert_usage, usage
from gateway.spark.operations.usage_page import collect, html
from gateway.telemetry.audit_record import AuditRecord

pytestmark = pytest.mark.usefixtures("few_rows")

DAY_MS = 86_400_000
FIRST_DAY_MS = 20_000 * DAY_MS


def record(
    *,
    day: int = 0,
    recipient: str | None = "ada",
    table: str = "orders",
    action: str = "deltaSharingQueriedTable",
    status: int | None = 200,
    error: str | None = None,
    request: str = "r",
    **result: Any,
) -> bytes:
    return AuditRecord(
        at_ms=FIRST_DAY_MS + day * DAY_MS + 5,
        action=action,
        request_id=request,
        recipient=recipient,
        status=status,
        error_code=error,
        details={"share": "s", "schema": "d", "table": table},
        result=result,
    ).line()


@pytest.fixture
def log(tmp_path: Path) -> str:
    lines = [
        record(returned=10, fileBytes=1000, considered=100, complete=True, durationMs=20, version=3),
        record(returned=5, fileBytes=200, considered=5, complete=True, durationMs=9000),
        record(returned=2, complete=False, considered=9),
        record(day=1, action="deltaSharingGetTableVersion"),
        record(recipient="bob", table="parts", status=404, error="RESOURCE_DOES_NOT_EXIST"),
        record(recipient=None, status=401, error="UNAUTHENTICATED"),
        record(status=None),
        b"torn {\n",
    ]
    path = tmp_path / "audit.log"
    path.write_bytes(b"".join(lines[:4]))
    with gzip.open(tmp_path / "audit.log.1.gz", "wb") as rotated:
        rotated.write(b"".join(lines[4:]))
    return str(tmp_path / "audit.log*")


def test_usage_is_summed_per_recipient_table_and_day(spark: Any, log: str) -> None:
    tables = usage(read_audit(spark, [log]))
    rows = {
        (row["recipient"], row["table"], row["day"].isoformat()): (
            row["requests"],
            row["queries"],
            row["errors"],
            row["files"],
            row["addressed_bytes"],
            row["pruned_files"],
        )
        for row in tables.daily.collect()
    }
    assert rows == {
        ("ada", "s.d.orders", "2024-10-04"): (3, 3, 1, 17, 1200, 90),
        ("ada", "s.d.orders", "2024-10-05"): (1, 0, 0, 0, 0, 0),
        ("bob", "s.d.parts", "2024-10-04"): (1, 1, 1, 0, 0, 0),
        ("(no recipient)", "s.d.orders", "2024-10-04"): (1, 1, 1, 0, 0, 0),
    }
    assert tables.unreadable == 1
    assert [row["durationMs"] for row in tables.slow.collect()] == [9000]
    assert {row["error_code"] for row in tables.errors.collect()} == {
        None,
        "RESOURCE_DOES_NOT_EXIST",
        "UNAUTHENTICATED",
    }


class Kept:
    """The usage tables of a directory of logs."""

    def __init__(self, spark: Any, tmp_path: Path) -> None:
        self.spark = spark
        self.location = str(tmp_path / "kept")
        self.logs = tmp_path / "logs"
        self.logs.mkdir()

    def read(self, *names: str) -> None:
        upsert_usage(usage(read_audit(self.spark, [str(self.logs / name) for name in names])), self.location)

    def sum(self, column: str = "requests", name: str = "daily") -> int | None:
        table = self.spark.read.format("delta").load(f"{self.location}/{name}")
        return int(table.selectExpr(f"coalesce(sum({column}), 0)").first()[0])

    def versions(self, name: str) -> int:
        """The number of versions of a table."""
        return len(list(Path(self.location, name, "_delta_log").glob("*.json")))

    def days(self) -> dict[str, int]:
        table = self.spark.read.format("delta").load(f"{self.location}/daily")
        rows = table.groupBy("day").agg({"requests": "sum"}).collect()
        return {row[0].isoformat(): row[1] for row in rows}


@pytest.fixture
def kept(spark: Any, tmp_path: Path) -> Kept:
    return Kept(spark, tmp_path)


@pytest.mark.nightly
def test_days_are_replaced_when_they_are_summed_again(spark: Any, log: str, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    for _ in range(2):
        upsert_usage(usage(read_audit(spark, [log])), kept)
    daily = spark.read.format("delta").load(f"{kept}/daily")
    assert daily.selectExpr("sum(requests)").first()[0] == 6


def test_a_day_without_errors_leaves_the_errors_of_other_days(kept: Kept) -> None:
    first = record()
    failed = record(status=404, error="RESOURCE_DOES_NOT_EXIST", durationMs=9000)
    (kept.logs / "one").write_bytes(first + failed)
    (kept.logs / "two").write_bytes(record(day=1))
    (kept.logs / "none").write_bytes(b"torn {\n")
    for name in ("one", "two", "none"):
        kept.read(name)
    assert (kept.sum(name="errors"), kept.sum("1", name="slow"), kept.sum()) == (1, 1, 3)
    assert [kept.versions(name) for name in ("errors", "slow", "daily")] == [1, 1, 2]
    # By another name, as Spark has the lines of this one in its cache.
    (kept.logs / "one again").write_bytes(first)
    kept.read("one again")
    assert (kept.sum(name="errors"), kept.sum("1", name="slow"), kept.sum()) == (0, 0, 2)


# By day a renamed log and the one after it are two parts of a day, one of which is read again.
@pytest.mark.nightly
def test_a_part_of_a_day_leaves_the_other_parts_of_the_day(kept: Kept) -> None:
    (kept.logs / "morning").write_bytes(record() * 2)
    (kept.logs / "evening").write_bytes(record(request="e") * 3 + record(day=1))
    kept.read("morning")
    kept.read("evening")
    kept.read("evening", "morning")
    assert kept.sum() == 6


@pytest.mark.nightly
def test_a_log_that_grows_and_is_compressed_replaces_itself(kept: Kept) -> None:
    (kept.logs / "audit's.log").write_bytes(record(status=500, error="INTERNAL_ERROR"))
    kept.read("audit's.log")
    (kept.logs / "audit's.log").unlink()
    with gzip.open(kept.logs / "audit's.log.gz", "wb") as grown:
        grown.write(record(status=500, error="INTERNAL_ERROR") + record() * 3)
    kept.read("audit's.log.gz")
    assert (kept.sum(), kept.sum(name="errors")) == (4, 1)


def test_a_log_that_is_renamed_counts_its_days_once(kept: Kept) -> None:
    (kept.logs / "audit.jsonl").write_bytes(record() * 3)
    kept.read("audit*")
    (kept.logs / "audit.jsonl").rename(kept.logs / "audit.jsonl-20241005")
    (kept.logs / "audit.jsonl").write_bytes(record(day=1, request="s") * 2)
    kept.read("audit*")
    assert kept.days() == {"2024-10-04": 3, "2024-10-05": 2}
    with (kept.logs / "audit.jsonl").open("ab") as appended:
        # Another part of the day that the renamed log is of, too.
        appended.write(record(day=1) * 2 + record(request="t"))
    kept.read("audit.jsonl")
    assert kept.days() == {"2024-10-04": 4, "2024-10-05": 4}


def test_the_command_writes_a_page(spark: Any, log: str, tmp_path: Path) -> None:
    path = tmp_path / "usage.html"
    assert cli.main(["usage", log, "--html", str(path)]) == 0
    page = path.read_text(encoding="utf-8")
    html5lib.HTMLParser(strict=True).parse(page)
    assert "17 files addressed (1.2 kB)" in page
    assert page.index("check the recipient&#39;s token") < page.index("<svg")
    assert page.index("s.d.orders") < page.index("Requests by day")


def test_a_torn_or_mislabelled_file_is_named_and_left_out(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "logs [1]"
    logs.mkdir()
    (logs / "audit.log").write_bytes(record() * 3)
    whole = gzip.compress(b"".join(record(request=f"r{number}") for number in range(2000)))
    (logs / "torn.gz").write_bytes(whole[: len(whole) // 2])
    (logs / "plain.gz").write_bytes(record(recipient="bob"))
    escaped = str(logs).replace("[", "\\[").replace("]", "\\]")
    assert cli.main(["usage", escaped]) == 1
    said = capsys.readouterr().err
    assert "torn.gz: cannot be read to its end, and is left out" in said
    assert "plain.gz: cannot be read to its end, and is left out" in said
    assert "ada s.d.orders: 3 requests" in said
    assert "bob" not in said


def test_a_log_under_two_names_counts_once(kept: Kept) -> None:
    lines = [record(request=f"r{number}") for number in range(4)]
    (kept.logs / "audit.log").write_bytes(b"".join(lines))
    (kept.logs / "audit.log.1.gz").write_bytes(gzip.compress(b"".join(lines[:3])))
    (kept.logs / "other.log").write_bytes(record(request="x"))
    names = ("audit.log", "audit.log.1.gz", "other.log")
    daily = usage(read_audit(kept.spark, [str(kept.logs / name) for name in names])).daily
    assert daily.agg({"requests": "sum"}).first()[0] == 5


def test_a_page_of_no_lines_and_of_hostile_names_is_valid(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "hostile").write_bytes(
        b"".join(
            record(recipient=name, table=name, returned=1, considered=3, fileBytes=7)
            for name in ("<script>alert(1)</script>", "x" * 255, "\u05e9\u05dc\u05d5\u05dd", "nul\x00")
        )
    )
    for name in ("empty", "hostile"):
        tables = usage(read_audit(spark, [str(tmp_path / name)]))
        page = html(collect(tables), dt.datetime(2026, 1, 2, tzinfo=dt.UTC))
        html5lib.HTMLParser(strict=True).parse(page)
        assert page.count("<script") == 1
        assert ("No values." in page) == (name == "empty")
