"""The results of verify as metrics, in the text format that Prometheus' node exporter collects from files.

In: the `TableResult` of each table, and the proofs of earlier runs. Out: a file, replaced as a whole.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.spark.run_metrics import RunMetrics
from gateway.spark.verify.history import Proof
from gateway.spark.verify.results import OUTCOMES, TableResult


def write(
    path: Path,
    results: Sequence[TableResult],
    run_at: dt.datetime,
    seconds: float,
    proofs: Mapping[str, Proof],
) -> None:
    """Write the metrics. `proofs` are of earlier runs, by subject. Raises OSError."""
    metrics = RunMetrics("delta_gateway_verify_", run_at, seconds)
    outcomes = (result.outcome for result in results)
    metrics.count("tables", "Tables of the last run by outcome.", OUTCOMES, outcomes)
    wrong = metrics.gauge("table_wrong", "1 if the table differed or could not be compared, else 0.", "table")
    proved = metrics.gauge(
        "table_proof_timestamp_seconds", "Last run that proved the table, as Unix time.", "table"
    )
    for result in results:
        if result.outcome != "postponed":
            wrong.labels(result.table).set(result.is_wrong)
        at = _proved_at(result, run_at, proofs)
        if at is not None:
            proved.labels(result.table).set(at.timestamp())
    metrics.write(path)


def _proved_at(result: TableResult, run_at: dt.datetime, proofs: Mapping[str, Proof]) -> dt.datetime | None:
    if result.outcome == "equal":
        return run_at
    earlier = proofs.get(result.subject)
    return None if earlier is None or result.is_wrong else earlier.proved_at
