"""Shared fixtures, marks, and the rule that a skip needs a missing toolchain.

tests/run.py installs the parts into its cache and runs pytest; pytest alone uses what it finds there and
skips the rest with a reason. With DELTA_GATEWAY_NO_SKIPS, which run.py sets where no toolchain is missing, a
skip fails. The absence of others' golden tables, an option, stays a skip, and so do a test of `deploy` that
needs another machine, such as Debian and root, and tests of pages where no browser can be had.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import run

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

TESTS = Path(__file__).resolve().parent
SPARK_TEST_SECONDS = 900

# Tests that measure time or a share of the machine: none runs beside another one. In other files single tests
# have the mark `alone`. The memory of a process does not depend on the others.
ALONE = (
    "integration/faults/test_bounds.py",
    "integration/faults/test_hostile.py",
    "integration/faults/test_mount.py",
    "integration/faults/test_store.py",
    "unit/access/test_timing.py",
    "unit/protocol/test_linear_time.py",
)
# Their tests are of the part `stores`: programs that a toolchain of its own installs.
EMULATORS = {"azurite_program", "minio", "openid_provider"}
# Their tests are of the parts `spark` and `writers`, which need Java.
JVM = {"spark", "oauth_server"}
# Unit tests that run whole servers, most of them as processes: `quick` leaves them out.
SERVERS = ("unit/server/",)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: needs Java (set for every test with a fixture of JVM)")
    config.addinivalue_line(
        "markers",
        "stores: needs Azurite, MinIO or an OpenID provider (set for tests with such a fixture)",
    )
    config.addinivalue_line("markers", "clone: needs a clone of the project (set for all of tests/clone)")
    config.addinivalue_line("markers", "deploy: needs the tools of deployments (set for all of tests/deploy)")
    config.addinivalue_line("markers", "alone: runs beside no other test (set for what ALONE lists, too)")
    config.addinivalue_line("markers", "servers: runs whole servers (set for what SERVERS lists, too)")
    if missing := [name for name in (*ALONE, *SERVERS) if not (TESTS / name).exists()]:
        raise pytest.UsageError(f"ALONE or SERVERS lists {missing}, which are not there")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if JVM & {*getattr(item, "fixturenames", ())} or item.path.parent.name == "spark":
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(SPARK_TEST_SECONDS))
            # py4j leaves its sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
        if EMULATORS & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.stores)
        if "tests/clone/" in item.path.as_posix():
            item.add_marker(pytest.mark.clone)
        if "tests/deploy/" in item.path.as_posix():
            item.add_marker(pytest.mark.deploy)
        path = item.path.relative_to(TESTS).as_posix()
        if path.startswith(ALONE):
            item.add_marker(pytest.mark.alone)
        if path.startswith(SERVERS):
            item.add_marker(pytest.mark.servers)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    report = yield
    is_strict = os.environ.get("DELTA_GATEWAY_NO_SKIPS") and not hasattr(report, "wasxfail")
    options = (run.GOLDEN_ABSENT, run.OTHER_MACHINE, run.BROWSER_ABSENT)
    is_option = any(reason in str(call.excinfo) for reason in options)
    if report.skipped and is_strict and not is_option:
        report.outcome = "failed"
        report.longrepr = f"skipped although no toolchain is missing: {call.excinfo}"
    return report


@pytest.fixture(scope="session")
def client_python() -> Path:
    """The interpreter of the official client's own environment."""
    python = run.CACHE / "client" / "bin" / "python"
    if not python.exists():
        pytest.skip("the official client is not installed: tests/run.py does it")
    return python
