"""The audit log, as the gateway writes it, summed up."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from gateway.audit import Action, AuditRecord
from gateway.spark import cli
from gateway.spark.usage import append_usage, read_audit, usage

DAY_MS = 86_400_000
FIRST_DAY_MS = 20_000 * DAY_MS


def record(
    *,
    day: int = 0,
    recipient: str | None = "ada",
    table: str = "orders",
    action: Action = Action.QUERIED_TABLE,
    status: int | None = 200,
    error: str | None = None,
    **result: Any,
) -> bytes:
    return AuditRecord(
        at_ms=FIRST_DAY_MS + day * DAY_MS + 5,
        action=action,
        request_id="r",
        recipient=recipient,
        source_address=None,
        user_agent=None,
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
        record(returned=2, complete=False),
        record(day=1, action=Action.GET_TABLE_VERSION),
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


def test_sums_per_recipient_table_and_day(spark: Any, log: str) -> None:
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
        ("(nobody)", "s.d.orders", "2024-10-04"): (1, 1, 1, 0, 0, 0),
    }
    assert tables.unreadable == 1
    assert [row["durationMs"] for row in tables.slow.collect()] == [9000]
    assert {row["error_code"] for row in tables.errors.collect()} == {
        None,
        "RESOURCE_DOES_NOT_EXIST",
        "UNAUTHENTICATED",
    }


def test_days_are_replaced_when_they_are_summed_up_again(spark: Any, log: str, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    for _ in range(2):
        append_usage(usage(read_audit(spark, [log])), kept)
    assert spark.read.format("delta").load(f"{kept}/daily").count() == 4


def test_the_command_writes_a_page(spark: Any, log: str, tmp_path: Path) -> None:
    page = tmp_path / "usage.html"
    assert cli.main(["usage", log, "--html", str(page)]) == 0
    assert "s.d.orders" in page.read_text()
    assert "17 files addressed (1.2 kB)" in page.read_text()
