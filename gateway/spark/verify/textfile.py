"""The results of verify as metrics, in the text format that Prometheus' node exporter collects from files.

In: the `TableResult` of each table, and the proofs of earlier runs. Out: a file, replaced as a whole.
"""

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

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
    registry = CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"delta_gateway_verify_{name}", text, labels, registry=registry)

    gauge("run_timestamp_seconds", "Start of the last run, as Unix time.").set(run_at.timestamp())
    gauge("run_seconds", "Length of the last run.").set(seconds)
    tables = gauge("tables", "Tables of the last run by outcome.", "outcome")
    counts = Counter(result.outcome for result in results)
    for outcome in OUTCOMES:
        tables.labels(outcome).set(counts[outcome])
    wrong = gauge("table_wrong", "1 if the table differed or could not be compared, else 0.", "table")
    proved = gauge("table_proof_timestamp_seconds", "Last run that proved the table, as Unix time.", "table")
    for result in results:
        if result.outcome != "postponed":
            wrong.labels(result.table).set(result.is_wrong)
        at = _proved_at(result, run_at, proofs)
        if at is not None:
            proved.labels(result.table).set(at.timestamp())
    write_to_textfile(str(path), registry)


def _proved_at(result: TableResult, run_at: dt.datetime, proofs: Mapping[str, Proof]) -> dt.datetime | None:
    if result.outcome == "equal":
        return run_at
    earlier = proofs.get(result.subject)
    return None if earlier is None or result.is_wrong else earlier.proved_at
