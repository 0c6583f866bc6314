"""The commands of `delta-gateway` that run on Spark, also for spark-submit of this file.

In: a command line. Out: reports and an exit code: 0 for success, 1 for differences or a failure, 2 for a
wrong command line. PySpark is imported when a command runs, so the gateway works without it.
"""

import argparse
import datetime as dt
import itertools
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    # spark-submit puts this file's directory before the standard library, whose `profile` it would hide.
    sys.path.pop(0)
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

if TYPE_CHECKING:
    from gateway.spark.verify.results import TableResult

MISSING = (
    "delta-gateway: this command runs on PySpark, and the module {} is not installed here.\n"
    "Install it with: pip install 'delta-sharing-gateway[spark]' (Java 17 is needed too), or run the command "
    "by spark-submit on a cluster.\n"
)

OR_LIST = ", or a list `tables: [{table, location}]`"
ON_CLASS_PATH = Path()


def add_commands(commands: Any) -> None:
    """Add the pipeline's commands to the subparsers of `delta-gateway`."""
    for name, (text, example, add_arguments, run) in COMMANDS.items():
        parser = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}. Runs on PySpark.",
            epilog=f"example:\n  delta-gateway {name} {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_arguments(parser)
        parser.add_argument("--jars", type=Path, metavar="DIR", help="Delta's jars, instead of a download")
        parser.set_defaults(run=_with_spark(run))


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands without `delta-gateway`, as spark-submit does."""
    parser = argparse.ArgumentParser(prog="delta-gateway")
    add_commands(parser.add_subparsers(required=True, metavar="COMMAND"))
    parsed = parser.parse_args(arguments)
    return int(parsed.run(parsed))


def _with_spark(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def installed(arguments: argparse.Namespace) -> int:
        try:
            return _checked(run, arguments)
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            if module == "gateway":
                raise
            sys.stderr.write(MISSING.format(module))
            return 1

    return installed


def _checked(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from gateway.report.page import ReportUnavailable, check_libraries  # noqa: PLC0415
    from gateway.report.text import system_error_text  # noqa: PLC0415
    from gateway.spark.session import SparkUnavailable, check_jars  # noqa: PLC0415

    try:
        check_jars(arguments.jars, _connector_jar(arguments))
        if getattr(arguments, "html", None) is not None:
            # The work may take hours: a page that cannot be written fails before it.
            check_libraries()
    except (ReportUnavailable, ValueError) as error:
        _say(f"delta-gateway: {error}")
        return 1 if isinstance(error, ReportUnavailable) else 2
    try:
        for file in (getattr(arguments, name, None) for name in ("junit", "html", "prometheus")):
            if file is not None:
                _check_writable(file)
        return run(arguments)
    except OSError as error:
        _say(f"delta-gateway: {system_error_text(error)}")
    except (ValueError, SparkUnavailable) as error:
        _say(f"delta-gateway: {error}")
    except PySparkException as error:
        # The following lines are a plan, or stack traces of other processes.
        _say(f"delta-gateway: {str(error).strip().splitlines()[0]}")
    return 1


def _check_writable(file: Path) -> None:
    """Raise OSError before the work starts if its report cannot be written."""
    is_new = not file.exists()
    with file.open("a", encoding="utf-8"):
        pass
    if is_new:
        file.unlink()


def _connector_jar(arguments: argparse.Namespace) -> Path | None:
    jar: Path | None = getattr(arguments, "connector", None)
    return None if jar == ON_CLASS_PATH else jar


def _tables_arguments(parser: argparse.ArgumentParser, other: str = "") -> None:
    parser.add_argument(
        "-c", "--config", type=Path, required=True, metavar="FILE", help=f"the gateway's configuration{other}"
    )
    parser.add_argument(
        "--table", action="append", default=[], metavar="PATTERN", help="only these, such as 'share.*'"
    )


def _thread_count(text: str) -> int:
    """Parse a number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return int(text)


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    _tables_arguments(parser, OR_LIST)
    parser.add_argument("--profile", required=True, metavar="FILE", help="a recipient's profile")
    parser.add_argument(
        "--recipient", metavar="NAME",
        help="the recipient of the profile, to compare with what the conditions of its grants select",
    )  # fmt: skip
    parser.add_argument("--predicates", type=int, default=3, metavar="N", help="filters tried per table")
    parser.add_argument(
        "--change-versions", type=int, default=20, metavar="N", help="versions of change data"
    )
    parser.add_argument(
        "--shown-rows", type=int, default=10, metavar="N", help="differing rows shown; 0 keeps data out"
    )
    parser.add_argument("--parallel", type=_thread_count, default=4, metavar="N", help="tables at a time")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the random filters")
    parser.add_argument(
        "--connector", nargs="?", type=Path, const=ON_CLASS_PATH, metavar="JAR",
        help="read shares through Spark's official connector: its jar, or nothing where Spark has it already",
    )  # fmt: skip
    parser.add_argument(
        "--directory", action="store_true", help="compare files by directory access, too, where it is offered"
    )
    parser.add_argument("--results", metavar="LOCATION", help="a Delta table to append the results to")
    parser.add_argument(
        "--incremental", action="store_true",
        help="with --results: only tables with versions since their last proof",
    )  # fmt: skip
    parser.add_argument(
        "--prove-again-days", type=float, default=7, metavar="N",
        help="with --incremental: age of a proof after which an unchanged table is compared again",
    )  # fmt: skip
    parser.add_argument(
        "--budget-minutes", type=float, metavar="N",
        help="begin no table after this time; with --results the least recently proved tables come first",
    )  # fmt: skip
    _report_arguments(parser)


def _verify(arguments: argparse.Namespace) -> int:
    from gateway.client.profile import Profile  # noqa: PLC0415
    from gateway.spark.session import delta_session  # noqa: PLC0415
    from gateway.spark.targets import load_targets  # noqa: PLC0415
    from gateway.spark.verify import page, report  # noqa: PLC0415
    from gateway.spark.verify.history import History  # noqa: PLC0415
    from gateway.spark.verify.results import VerifyOptions  # noqa: PLC0415
    from gateway.spark.verify.tables import verify  # noqa: PLC0415

    if arguments.incremental and not arguments.results:
        raise ValueError("--incremental needs --results, which has the proofs of earlier runs")
    targets = load_targets(arguments.config, arguments.table, arguments.recipient)
    # Before the work, which may take hours: the file may be another one then.
    shared = load_targets(arguments.config, (), arguments.recipient) if arguments.prometheus else []
    Profile.load(arguments.profile)
    minutes = arguments.budget_minutes
    options = VerifyOptions(
        predicates=arguments.predicates,
        change_versions=arguments.change_versions,
        shown_rows=arguments.shown_rows,
        parallel=arguments.parallel,
        seed=arguments.seed,
        connector=arguments.connector is not None,
        directory=arguments.directory,
        incremental=arguments.incremental,
        prove_again_after=dt.timedelta(days=arguments.prove_again_days),
        budget=None if minutes is None else dt.timedelta(minutes=minutes),
        reader=arguments.recipient or _profile_file(arguments.profile),
    )
    run_at = dt.datetime.now(dt.UTC)
    spark = delta_session("delta-gateway verify", jars=arguments.jars, connector=_connector_jar(arguments))
    proofs = History(spark, arguments.results).proofs() if arguments.results else {}
    results = verify(spark, arguments.profile, targets, options, _progress(len(targets)), proofs=proofs)
    seconds = (dt.datetime.now(dt.UTC) - run_at).total_seconds()
    if arguments.junit:
        arguments.junit.write_text(report.junit(results), encoding="utf-8")
    if arguments.prometheus:
        unnamed = {table.table for table in shared} - {target.table for target in targets}
        report.write_metrics(arguments.prometheus, results, run_at, seconds, proofs, others=unnamed)
    if arguments.results:
        report.append_results(spark, results, arguments.results, run_at)
    if arguments.html:
        runs = History(spark, arguments.results).runs() if arguments.results else []
        arguments.html.write_text(page.html(results, run_at, runs), encoding="utf-8")
    counts = Counter(result.outcome for result in results)
    remaining = "".join(
        f", {counts[name]} {name}" for name in ("unproved", "unchanged", "postponed") if counts[name]
    )
    skipped = sum(check.skipped is not None for result in results for check in result.checks)
    skips = f"; {skipped} checks were skipped" if skipped else ""
    _say(f"{counts['equal']} of {len(results)} tables are equal{remaining}{skips}")
    return 1 if any(result.is_wrong for result in results) else 0


def _profile_file(profile: str) -> str:
    """Return the path of a profile; empty for the text of one, which has a token."""
    return "" if profile.lstrip().startswith("{") else str(Path(profile).absolute())


def _progress(tables: int) -> "Callable[[TableResult], None]":
    """Return what prints the result of each table when it is complete."""
    numbers = itertools.count(1)

    def say(result: "TableResult") -> None:
        outcome = result.outcome.upper() if result.is_wrong else result.outcome
        _say(
            f"[{next(numbers)}/{tables}] {result.table} version {result.version}: {outcome}, "
            f"{result.rows} rows in {result.seconds:.1f} s"
        )
        for check in result.checks:
            skipped = [f"skipped: {check.skipped}"] if check.skipped else []
            for line in [*check.differences, *skipped, *([check.remark] if check.remark else [])]:
                _say(f"    {check.name}: {line}")
        if result.error:
            _say(f"    {result.error}")

    return say


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files in which a run reports."""
    parser.add_argument("--junit", type=Path, metavar="FILE", help="JUnit XML")
    parser.add_argument(
        "--prometheus", type=Path, metavar="FILE", help="metrics for the node exporter's textfile collector"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page to read")


def _project_arguments(parser: argparse.ArgumentParser) -> None:
    _tables_arguments(parser)
    parser.add_argument("--check", action="store_true", help="only check the rules against their sources")
    parser.add_argument("--whole", action="store_true", help="prove all rows, not only the changed ones")
    parser.add_argument(
        "--parallel", type=_thread_count, default=4, metavar="N", help="projections at a time"
    )
    parser.add_argument(
        "--optimize-hours", type=int, default=24, metavar="N",
        help="hours between two compactions of small files; 0 for none",
    )  # fmt: skip
    parser.add_argument(
        "--vacuum-hours", type=int, default=168, metavar="N",
        help="hours between two removals of files that the shared history does not need; 0 for none",
    )  # fmt: skip
    parser.add_argument(
        "--budget-minutes", type=float, metavar="N",
        help="begin no projection after this time; those brought up to date least recently come first",
    )  # fmt: skip
    _report_arguments(parser)


def _project(arguments: argparse.Namespace) -> int:
    from fnmatch import fnmatchcase  # noqa: PLC0415

    from gateway import config  # noqa: PLC0415
    from gateway.spark.project import page, report  # noqa: PLC0415
    from gateway.spark.project.published import published  # noqa: PLC0415
    from gateway.spark.project.results import Options  # noqa: PLC0415
    from gateway.spark.project.run import LOCAL_SETTINGS, keep, left_over, projections  # noqa: PLC0415
    from gateway.spark.session import delta_session  # noqa: PLC0415

    patterns = arguments.table
    loaded = config.load(arguments.config, needs_readers=False)
    targets = projections(loaded, lambda name: not patterns or any(fnmatchcase(name, p) for p in patterns))
    if not targets:
        raise ValueError("there is no such projection" if patterns else "the file has no projections")
    options = Options(
        check=arguments.check,
        whole=arguments.whole,
        optimize_hours=arguments.optimize_hours,
        vacuum_hours=arguments.vacuum_hours,
    )
    run_at = dt.datetime.now(dt.UTC)
    spark = delta_session("delta-gateway project", jars=arguments.jars, local=LOCAL_SETTINGS)
    minutes = arguments.budget_minutes
    outcomes = keep(
        spark,
        targets,
        options,
        parallel=arguments.parallel,
        ended=lambda outcome: _say(str(outcome)),
        budget=None if minutes is None else dt.timedelta(minutes=minutes),
    )
    seconds = (dt.datetime.now(dt.UTC) - run_at).total_seconds()
    declared = projections(loaded)
    forgotten = left_over(spark, declared)
    for root in forgotten:
        _say(f"{root}: of a rule that the file no longer has; remove it when nobody reads it")
    if arguments.junit:
        arguments.junit.write_text(report.junit(outcomes), encoding="utf-8")
    versions = []
    if arguments.html or arguments.prometheus:
        versions = published(spark, [target.root for target in targets], parallel=arguments.parallel)
    if arguments.prometheus:
        unnamed = {target.names[0] for target in declared} - {target.names[0] for target in targets}
        report.write_metrics(arguments.prometheus, outcomes, versions, run_at, seconds, others=unnamed)
    if arguments.html:
        text = page.html(list(zip(outcomes, versions, strict=True)), forgotten, run_at)
        arguments.html.write_text(text, encoding="utf-8")
    counts = Counter(outcome.outcome for outcome in outcomes)
    fine = "rules fit their sources" if arguments.check else "projections are up to date"
    postponed = f", {counts['postponed']} postponed" if counts["postponed"] else ""
    _say(f"{len(outcomes) - counts['failed'] - counts['postponed']} of {len(outcomes)} {fine}{postponed}.")
    return 1 if counts["failed"] else 0


def _generate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("root", metavar="LOCATION", help="where the tables go")
    parser.add_argument("--rows", type=int, default=1000, metavar="N", help="rows per insert")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the random rows")
    parser.add_argument("--only", action="append", metavar="NAME", help="one of the tables; may be repeated")
    parser.add_argument("--parallel", type=_thread_count, default=4, metavar="N", help="tables at a time")


def _generate(arguments: argparse.Namespace) -> int:
    from gateway.spark.operations.generate import generate  # noqa: PLC0415
    from gateway.spark.session import delta_session  # noqa: PLC0415

    spark = delta_session("delta-gateway generate", jars=arguments.jars)
    generate(
        spark,
        arguments.root,
        rows=arguments.rows,
        seed=arguments.seed,
        only=arguments.only,
        parallel=arguments.parallel,
        progress=_say,
    )
    return 0


def _fleet_arguments(parser: argparse.ArgumentParser) -> None:
    _tables_arguments(parser, OR_LIST)
    parser.add_argument("--results", metavar="LOCATION", help="a Delta table to append the survey to")
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page to read")


def _fleet(arguments: argparse.Namespace) -> int:
    from gateway.spark.operations import fleet, fleet_history, fleet_page  # noqa: PLC0415
    from gateway.spark.session import delta_session  # noqa: PLC0415
    from gateway.spark.targets import load_targets  # noqa: PLC0415

    targets = load_targets(arguments.config, arguments.table)
    spark = delta_session("delta-gateway fleet", jars=arguments.jars)
    tables = fleet.survey(spark, targets)
    run_at = dt.datetime.now(dt.UTC)
    if arguments.results:
        fleet_history.append_results(spark, tables, arguments.results, run_at)
    if arguments.html:
        surveys = fleet_history.surveys(spark, arguments.results) if arguments.results else []
        page = fleet_page.html(tables, run_at, surveys)
        arguments.html.write_text(page, encoding="utf-8")
    for table in tables:
        if table.error is not None:
            _say(f"{table.table}: cannot be read: {table.error}")
    for advice in fleet.advise(tables):
        _say(f"{advice.table}: {advice.action}: {advice.reason}")
    return 1 if any(table.error is not None for table in tables) else 0


def _usage_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("logs", nargs="+", metavar="LOCATION", help="audit logs: files or directories")
    parser.add_argument("--tables", metavar="LOCATION", help="where to keep the Delta tables")
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page to read")


def _usage(arguments: argparse.Namespace) -> int:
    from gateway.spark.operations import usage, usage_page  # noqa: PLC0415
    from gateway.spark.session import delta_session  # noqa: PLC0415

    spark = delta_session("delta-gateway usage", jars=arguments.jars)
    files, torn = usage.readable(spark, arguments.logs)
    for path in torn:
        _say(f"{path}: cannot be read to its end, and is left out")
    if not files:
        return 1
    tables = usage.usage(usage.read_audit(spark, files))
    if arguments.tables:
        usage.upsert_usage(tables, arguments.tables)
    if arguments.html:
        page = usage_page.html(usage_page.collect(tables), dt.datetime.now(dt.UTC))
        arguments.html.write_text(page, encoding="utf-8")
    for row in tables.daily.collect():
        _say(
            f"{row['day']} {row['recipient']} {row['table']}: {row['requests']} requests, "
            f"{row['files']} files of {row['addressed_bytes']} bytes, {row['errors']} errors"
        )
    return 1 if torn else 0


def _say(text: str) -> None:
    """Print a text, which may quote a server or the log of a table: it commands no terminal."""
    from gateway.report.text import printable  # noqa: PLC0415

    sys.stderr.write(f"{printable(text)}\n")


Command = tuple[str, str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]

COMMANDS: dict[str, Command] = {
    "verify": (
        "compare what recipients get with the tables themselves",
        "-c share.yaml --profile alice.share --html verify.html",
        _verify_arguments,
        _verify,
    ),
    "project": (
        "keep the projections: write, prove and publish them",
        "-c share.yaml --parallel 8",
        _project_arguments,
        _project,
    ),
    "generate": (
        "write Delta tables of each feature that readers must know",
        "/data/tables --rows 1000",
        _generate_arguments,
        _generate,
    ),
    "fleet": (
        "survey many tables' logs and rank what to do",
        "-c share.yaml --html fleet.html",
        _fleet_arguments,
        _fleet,
    ),
    "usage": (
        "sum up the audit log by recipient, table and day",
        "/var/log/gateway/audit.jsonl --html usage.html",
        _usage_arguments,
        _usage,
    ),
}

if __name__ == "__main__":
    sys.exit(main())
