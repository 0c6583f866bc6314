"""Shared fixtures, marks, and the rule that a skip needs a missing toolchain.

tests/run.py installs the parts into its cache and runs pytest; pytest alone uses what it finds there and
skips the rest with a reason. With DELTA_GATEWAY_NO_SKIPS, which run.py sets where no toolchain is missing, a
skip fails. The absence of others' golden tables, an option, stays a skip, and so do a test of `deploy` that
needs another machine, such as Debian and root, and tests of pages where no browser can be had.
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import run
import tools
from hypothesis import HealthCheck, settings

if sys.dont_write_bytecode:
    # Compiling the tests takes each process of pytest eight seconds: what it compiles is kept in the cache.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(tools.CACHE / "bytecode")
# Of what a collection of tests makes nothing is garbage, and each look at all of it takes longer.
gc.disable()
# How long an example takes says something of the other processes alone. At night there are more of them, and
# fewer where one case of each test runs.
examples = int(os.environ.get(run.EXAMPLES, "8" if os.environ.get(run.FIRST_CASES) else "25"))
slow = [HealthCheck.too_slow]
settings.register_profile("any-load", max_examples=examples, deadline=None, suppress_health_check=slow)
settings.load_profile("any-load")
pytest.register_assert_rewrite("support", "tables")
pytest_plugins = [
    "support.store_fixtures",
    "tables.demo",
    "tables.golden",
    "support.gateway_process",
    "support.official_client",
    "support.postgresql_server",
    "support.spark_session",
    "support.written_tables",
]

from support import skips  # noqa: E402 - once its asserts are rewritten

TESTS = Path(__file__).resolve().parent
SPARK_TEST_SECONDS = 900

# Their tests are of the part `stores`: programs that a toolchain of its own installs.
EMULATORS = {"azurite_program", "s3_with_sts", "openid_provider"}
# Its tests run in `nightly`, too, on MinIO.
SESSIONS = "s3_with_sts"
# Their tests are of the parts `spark` and `jobs`, which need Java.
JVM = {"spark", "oauth_server"}
# Compiling it takes longer than most parts: tests with this fixture are of the part `nightly`.
KERNEL = "kernel_program"
# Servers that tests share. A unit test on one of them has the mark `processes` without being written so.
SHARED_SERVERS = {"postgresql", "versitygw"}
# Audit events of a process that starts.
STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
# Programs that libraries run once on a machine or in a process: `platform`, and Matplotlib for its fonts.
QUESTIONS = frozenset({"uname", "fc-list", "system_profiler"})


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: needs Java (set for every test with a fixture of JVM)")
    config.addinivalue_line(
        "markers",
        "stores: needs Azurite, a store with STS or an OpenID provider (set for tests with such a fixture)",
    )
    config.addinivalue_line("markers", "sessions: needs a store with STS (set for tests with SESSIONS)")
    config.addinivalue_line("markers", "clone: needs a clone of the project (set for all of tests/clone)")
    config.addinivalue_line("markers", "deploy: needs the tools of deployments (set for all of tests/deploy)")
    config.addinivalue_line(
        "markers", "nightly: takes minutes, or needs delta_kernel's program (set for tests with KERNEL)"
    )
    # Those that measure time or a share of the machine. The memory of a process does not depend on others.
    config.addinivalue_line("markers", "alone: runs beside no other test of its part")
    config.addinivalue_line(
        "markers", "processes: a unit test that starts a process (set for those with SHARED_SERVERS, too)"
    )
    sys.addaudithook(refuse_processes)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(TESTS).as_posix()
        if JVM & {*getattr(item, "fixturenames", ())} or path.startswith("integration/spark/"):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(SPARK_TEST_SECONDS))
            # py4j leaves its sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
        if EMULATORS & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.stores)
        if SESSIONS in used_names(item):
            item.add_marker(pytest.mark.sessions)
        if KERNEL in used_names(item):
            item.add_marker(pytest.mark.nightly)
        if "tests/clone/" in item.path.as_posix():
            item.add_marker(pytest.mark.clone)
        if "tests/deploy/" in item.path.as_posix():
            item.add_marker(pytest.mark.deploy)
        if SHARED_SERVERS & used_names(item):
            item.add_marker(pytest.mark.processes)
    refuse_unread_files(items)
    choose_cases(items)


def choose_cases(items: list[pytest.Item]) -> None:
    """Leaves cases to the part `nightly`, and all but the first of each test out where FIRST_CASES is set."""
    on_postgresql = [item for item in items if "postgresql" in parameters_of(item)]
    first_on_postgresql = first_cases(on_postgresql)
    for item in on_postgresql:
        # A test on both databases has one case on PostgreSQL in each run.
        if item not in first_on_postgresql:
            item.add_marker(pytest.mark.nightly)
    if os.environ.get(run.FIRST_CASES):
        # What an absent file or another version of a package breaks, it breaks in each case of a test.
        items[:] = first_cases(items)


def first_cases(items: list[pytest.Item]) -> list[pytest.Item]:
    """The first case of each test."""
    firsts = {item.nodeid.partition("[")[0]: item for item in reversed(items)}
    return [*firsts.values()][::-1]


def refuse_unread_files(items: list[pytest.Item]) -> None:
    """Fails where a file has a marked test, and the part of that mark would not read it."""
    for mark in run.WORDS_OF_MARKS:
        marked = {f"tests/{item.path.relative_to(TESTS)}" for item in items if item.get_closest_marker(mark)}
        others = {path for path in marked if not path.startswith(run.PIPELINE)}
        if others and (missed := others - {*run.files_of(mark)}):
            raise pytest.UsageError(f"the part of `{mark}` does not read {missed}: see WORDS_OF_MARKS")


@pytest.hookimpl
def pytest_collection_finish() -> None:
    # Some million objects that live to the end: each collection of garbage would look at all of them.
    gc.collect()
    gc.freeze()
    gc.enable()


def used_names(item: pytest.Item) -> set[str]:
    """The fixtures of a test, and those of its parameters that name one for `getfixturevalue`."""
    return {*getattr(item, "fixturenames", ()), *parameters_of(item)}


def parameters_of(item: pytest.Item) -> set[str]:
    """The parameters of a test that are texts."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return {value for value in parameters if isinstance(value, str)}


class Running:
    """Whether the test that runs may start processes."""

    may_start_processes = True


def refuse_processes(
    event: str, arguments: tuple[Any, ...], starts: frozenset[str] = STARTS, running: type[Running] = Running
) -> None:
    """Fails a unit test that starts a process without the mark, by which `quick` selects.

    An audit hook: it outlives the names of this module, which is why it holds what it needs.
    """
    if event not in starts or running.may_start_processes:
        return
    if event == "subprocess.Popen":
        _, words, *_ = arguments
        program = words if isinstance(words, str | bytes | os.PathLike) else words[0]
        if Path(os.fsdecode(program)).name in QUESTIONS:
            return
    pytest.fail(f"a unit test without the mark `processes` starts one ({event})", pytrace=False)


@contextmanager
def watched(item: pytest.Item) -> Iterator[None]:
    """Refuses processes within the context, where a unit test may start none."""
    is_unit = item.path.is_relative_to(TESTS / "unit")
    # `quick` leaves out those of Spark, too, which start Java and its workers.
    marks = any(item.get_closest_marker(name) is not None for name in ("processes", "spark"))
    Running.may_start_processes = not is_unit or marks
    try:
        yield
    finally:
        Running.may_start_processes = True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    # Not in the teardown, in which the last test of a run ends the servers of all tests.
    with watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    report = yield
    is_strict = os.environ.get("DELTA_GATEWAY_NO_SKIPS") and not hasattr(report, "wasxfail")
    options = (tools.GOLDEN_ABSENT, skips.OTHER_MACHINE, skips.BROWSER_ABSENT, skips.NOTHING_RELEASED)
    is_option = any(reason in str(call.excinfo) for reason in options)
    if report.skipped and is_strict and not is_option:
        report.outcome = "failed"
        report.longrepr = f"skipped although no toolchain is missing: {call.excinfo}"
    return report


@pytest.fixture(scope="session")
def client_python() -> Path:
    """The interpreter of the official client's own environment."""
    python = tools.CACHE / "client" / "bin" / "python"
    if not python.exists():
        pytest.skip("the official client is not installed: tests/run.py does it")
    return python
