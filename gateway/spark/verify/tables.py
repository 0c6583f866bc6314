"""Compares many shared tables with the same tables read by delta-spark, several at a time.

In: a profile and targets (a shared table and its location). Out: a `TableResult` per table. With the proofs
of earlier runs, the tables whose proof is the oldest come first, and those that have the version of their
proof are left alone.
"""

import datetime as dt
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed

from pyspark.sql import SparkSession

from gateway.client.profile import Profile
from gateway.client.server import Server
from gateway.client.transport import HttpError
from gateway.spark.opened_logs import OpenedLogs
from gateway.spark.project.evaluation import MEANING
from gateway.spark.session import session_like
from gateway.spark.source import register
from gateway.spark.targets import Target
from gateway.spark.verify.errors import described
from gateway.spark.verify.history import Proof, subject_of
from gateway.spark.verify.one_table import Share, Verification
from gateway.spark.verify.results import TableResult, VerifyOptions

_MOVED_ATTEMPTS = 3
_ALL = {
    # Rules of recipients mean to Spark what they mean to the server, whatever a cluster sets.
    **MEANING,
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    # Hashes of texts that are equal by a collation differ.
    "spark.sql.legacy.collationAwareHashFunctions": "false",
    # Spark keeps the texts of a thousand plans for the web interface; that of a wide table takes megabytes.
    "spark.sql.maxPlanStringLength": "1000",
}
# Compiled, each plan and each schema costs more than its few rows save.
_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Hash rows above a union, in one expression, and not in a copy of it for each of its DataFrames.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughUnion",
}


def verify(
    spark: SparkSession,
    profile: str,
    targets: Iterable[Target],
    options: VerifyOptions | None = None,
    progress: Callable[[TableResult], None] = lambda _: None,
    *,
    proofs: Mapping[str, Proof] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[TableResult]:
    """Verify many tables, several at a time. A failure affects only its table.

    The results have the order of `targets`. The tables that `proofs`, by subject, do not name begin, then
    those with the oldest proof. `clock`: seconds, for the budget. Raises ProfileError.
    """
    chosen = options or VerifyOptions()
    share = Share(profile, Profile.load(profile))
    sessions, logs = _sessions(spark), OpenedLogs(spark)
    given = list(targets)
    what = {**chosen.what(), "server": _product(share.profile)}
    subjects = [subject_of(target, share.profile.endpoint, what) for target in given]
    known = [(proofs or {}).get(subject) for subject in subjects]
    ends = None if chosen.budget is None else clock() + chosen.budget.total_seconds()

    def run(index: int) -> TableResult:
        if ends is not None and clock() >= ends:
            result = TableResult(given[index].table, postponed=True)
        else:
            result = verify_table(sessions, share, given[index], chosen, known[index])
            logs.add(given[index].location)
        result.subject = subjects[index]
        return result

    never = dt.datetime.min.replace(tzinfo=dt.UTC)
    times = [never if proof is None else proof.proved_at for proof in known]
    results: dict[int, TableResult] = {}
    with ThreadPoolExecutor(max(chosen.parallel, 1)) as pool:
        futures = {
            pool.submit(run, index): index for index in sorted(range(len(given)), key=times.__getitem__)
        }
        for future in as_completed(futures):
            results[futures[future]] = future.result()
            progress(future.result())
    return [results[index] for index in range(len(given))]


def _sessions(spark: SparkSession) -> dict[bool, SparkSession]:
    """Return sessions in the time zone in which values are sent as text, by whether tables have few rows."""
    sessions = {few: session_like(spark, {**_ALL, **(_FEW_ROWS if few else {})}) for few in (False, True)}
    for session in sessions.values():
        register(session)
    return sessions


def _product(profile: Profile) -> str:
    """Return the name and release of a server; empty if they are unknown, which is a subject of its own."""
    try:
        return Server(profile).product()
    except HttpError:
        return ""


def verify_table(
    sessions: Mapping[bool, SparkSession],
    share: Share,
    target: Target,
    options: VerifyOptions,
    proof: Proof | None,
) -> TableResult:
    """Verify one table. Never raises: a failure is the result's `error`."""
    started = time.monotonic()
    result = TableResult(target.table)
    try:
        for attempt in range(_MOVED_ATTEMPTS):
            result = TableResult(target.table)
            try:
                verification = Verification(sessions, share, target, options, result, proof=proof)
                verification.run()
                if result.equal or not verification.has_moved_on():
                    break
            except Exception as error:
                # Without history sharing only the latest version can be read, and there may be a newer one.
                if "the server answered version" not in str(error) or attempt + 1 == _MOVED_ATTEMPTS:
                    raise
    except Exception as error:  # noqa: BLE001 - one broken table must not end the others
        result.error = described(error, has_values=options.shown_rows > 0)
    result.seconds = time.monotonic() - started
    return result
