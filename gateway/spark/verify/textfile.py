"""The results of verify as metrics, in the text format that Prometheus' node exporter collects from files.

In: the `TableResult` of each table, and the proofs of earlier runs. Out: a file, replaced as a whole.
"""

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gateway.spark.run_metrics import RunMetrics
from gateway.spark.verify.history import Proof
from gateway.spark.verify.results import OUTCOMES, TableResult

_WRONG = "table_wrong"
_PROVED = "table_proof_timestamp_seconds"


def write(
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
    metrics = RunMetrics(path, "delta_gateway_verify_", run_at, seconds)
    outcomes = (result.outcome for result in results)
    metrics.count("tables", "Tables of the last run by outcome.", OUTCOMES, outcomes)
    wrong = metrics.gauge(_WRONG, "1 if the table differed or could not be compared, else 0.", "table")
    proved = metrics.gauge(_PROVED, "Last run that proved the table, as Unix time.", "table")
    postponed = {result.table for result in results if result.outcome == "postponed"}
    for name, gauge in ((_WRONG, wrong), (_PROVED, proved)):
        metrics.carry(name, gauge, postponed.union(others))
    for result in results:
        if result.table not in postponed:
            wrong.labels(result.table).set(result.is_wrong)
        at = _proved_at(result, run_at, proofs)
        if at is not None:
            proved.labels(result.table).set(at.timestamp())
    metrics.write()


def _proved_at(result: TableResult, run_at: dt.datetime, proofs: Mapping[str, Proof]) -> dt.datetime | None:
    if result.outcome == "equal":
        return run_at
    earlier = proofs.get(result.subject)
    return None if earlier is None or result.is_wrong else earlier.proved_at
