"""The console lines of README, CONTRIBUTING and docs/, run in a clone and a new environment.

`tests/run.py clone` makes the clone and the environment. A line either runs here, under `@runs`, or is listed
in ELSEWHERE with the reason why it cannot run here and the test that runs the same command.
"""

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from support.documentation import EVERYTHING, README, console_lines, share_yaml
from support.processes import free_port, wait_for_port
from support.versitygw import VersityGw

NAMED = os.environ.get("DELTA_GATEWAY_CLONE")
ROOT = Path(__file__).resolve().parents[2]
INSTALL_SECONDS = 1800

PIPELINE = "test_every_command_runs_by_spark_submit"
FILTERS = "test_the_contributing_page_selects_tests_that_there_are"
DEVELOPMENT = "needs the development group, which `pip install .` leaves out; "
STORED = "changes the database that the lines of other pages use"
PARTS = "test_the_documented_lines_run_with_the_documented_configuration"
ELSEWHERE = {
    "python3 tests/run.py": ("is the command that runs this test", "test_every_line_runs_or_says_why_not"),
    "git clone REPOSITORY": (
        "names no repository; `tests/run.py clone` clones the checkout",
        "test_nothing_lies_beside_the_clone",
    ),
    "cargo test": (
        "compiles for minutes; `tests/run.py clone` checks the tests of the same crate",
        FILTERS,
    ),
    "pip install pre-commit": ("changes the hooks of the repository", FILTERS),
    "python3 -m venv": ("replaces the virtual environment of this test", FILTERS),
    "pip install -U": ("would change the pip of the lines before", FILTERS),
    "pip install -e .": (
        "replaces the installed package; installs the development group from an index",
        FILTERS,
    ),
    "pytest": (DEVELOPMENT + "`tests/run.py clone` runs pytest in the clone", FILTERS),
    "python loadtests/run.py": (
        DEVELOPMENT + "takes minutes",
        "test_a_mix_of_users_gets_no_wrong_answer",
    ),
    "python loadtests/run.py --shape spike": (
        DEVELOPMENT + "takes minutes",
        "test_a_mix_of_users_gets_no_wrong_answer",
    ),
    "python loadtests/run.py --short": (DEVELOPMENT, "test_a_mix_of_users_gets_no_wrong_answer"),
    "python loadtests/disks.py": (
        DEVELOPMENT + "takes minutes, and mounts file systems",
        "test_replicas_that_restart_in_turn_fail_no_request",
    ),
    "python bench/run.py --large 10000000 --report bench.html --markdown bench.md --json bench.json": (
        DEVELOPMENT + "takes ten minutes",
        "test_answers_with_a_hundred_thousand_files_are_complete_and_correct",
    ),
    'python bench/run.py --rounds 1 --logs logs --only ", delta" --only "hot answer beside a stream"': (
        DEVELOPMENT + "takes minutes, and Java",
        "test_answers_with_a_hundred_thousand_files_are_complete_and_correct",
    ),
    "python bench/run.py --short": (
        DEVELOPMENT,
        "test_answers_with_a_hundred_thousand_files_are_complete_and_correct",
    ),
    "python bench/spark_plan.py --files 2000000 --columns 1000 --statistics": (
        DEVELOPMENT + "takes half a minute",
        "test_the_plan_of_a_large_table_has_all_of_its_files_within_bounded_memory",
    ),
    "python bench/large_projection.py --files 2000": (
        DEVELOPMENT + "takes minutes, and Java",
        "test_the_bench_of_large_projections_publishes_every_file",
    ),
    "python bench/governance.py --changes 300": (
        DEVELOPMENT + "takes half an hour",
        "test_many_recipients_and_tables_change_no_answer_and_changes_are_seen_by_every_worker",
    ),
    "delta-gateway init": (
        "shares a directory of this machine",
        "test_directories_with_blanks_and_other_letters_are_shared",
    ),
    "delta-gateway doctor": (
        "needs the profile of a recipient",
        "test_each_step_is_a_line_and_each_problem_has_its_owner",
    ),
    "delta-gateway verify": (
        "needs the extra `spark` and Java",
        "test_every_generated_and_demo_table_is_equal",
    ),
    "spark-submit": ("needs a cluster and its buckets", PIPELINE),
    "delta-gateway generate": ("writes a million rows to /data", PIPELINE),
    "delta-gateway fleet": ("needs the extra `spark` and Java", PIPELINE),
    "delta-gateway usage": ("reads the audit log of a server in /var", PIPELINE),
    "delta-gateway project": (
        "needs the extra `spark` and Java",
        "test_recipients_read_each_version_and_its_changes",
    ),
    "delta-gateway recipient add initech": (
        STORED + "; its link is for a browser",
        "test_a_person_saves_the_profile_in_a_browser",
    ),
    "delta-gateway recipient link": (
        STORED + "; its link is for a browser",
        "test_a_person_saves_the_profile_in_a_browser",
    ),
    "delta-gateway recipient property": (STORED, PARTS),
    "delta-gateway recipient grant initech": (STORED, PARTS),
    "delta-gateway recipient revoke initech": (STORED, PARTS),
    "delta-gateway share": (STORED, "test_shares_and_tables_are_managed_while_servers_run"),
    "delta-gateway table": (STORED, "test_shares_and_tables_are_managed_while_servers_run"),
    "delta-gateway export": (STORED, "test_an_export_has_all_but_secrets_and_applies_to_another_database"),
    "delta-gateway apply": (STORED, "test_an_export_has_all_but_secrets_and_applies_to_another_database"),
    "curl -X PATCH": (STORED, "test_a_share_lives_from_its_addition_to_its_removal"),
}
"""Beginnings of lines; the longest one that fits is that of a line."""


LINES = console_lines(EVERYTHING)
RUN_HERE: set[str] = set()


def runs(*beginnings: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers lines, by their beginnings, that a test runs, and gives it the lines themselves."""
    found = [line for beginning in beginnings for line in LINES if line.startswith(beginning)]
    RUN_HERE.update(found)
    return pytest.mark.parametrize("lines", [pytest.param(found, id=", ".join(beginnings))])


needs_clone = pytest.mark.skipif(NAMED is None, reason="there is no clone: `tests/run.py clone` makes one")


@dataclass(frozen=True)
class Shell:
    """A shell at the top of the clone, with its virtual environment in force."""

    directory: Path
    environment: dict[str, str]

    def run(self, line: str) -> str:
        """Runs a line to its end, which must be a good one. Returns what it printed."""
        ended = self.start(line, stderr=subprocess.PIPE)
        said, errors = ended.communicate()
        assert ended.returncode == 0, f"{line}\n{said}\n{errors}"
        return said

    def start(self, line: str, **options: Any) -> subprocess.Popen[str]:
        """Starts a line; `exec` makes the process that of the command."""
        return subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )

    @contextmanager
    def running(self, line: str, port: int) -> Iterator[None]:
        """A server for the length of a block, ended as a terminal ends it."""
        with self.start(line) as process:
            try:
                wait_for_port(port, process)
                yield
            finally:
                process.send_signal(signal.SIGINT)
        assert process.returncode == 0


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Of a newcomer: nothing of this interpreter's, and the clone's virtual environment in force."""
    assert NAMED is not None
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AWS_"))}
    scripts = Path(NAMED) / ".venv/bin"
    return kept | {"PATH": f"{scripts}{os.pathsep}{kept['PATH']}", "VIRTUAL_ENV": str(scripts.parent)}


@pytest.fixture(scope="module")
def shell(environment: dict[str, str]) -> Shell:
    assert NAMED is not None
    return Shell(Path(NAMED), environment)


def test_every_line_runs_or_says_why_not() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    used = set()
    for line in LINES:
        listed = [beginning for beginning in ELSEWHERE if line.startswith(beginning)]
        assert (line in RUN_HERE) != bool(listed), line
        if listed:
            beginning = max(listed, key=len)
            used.add(beginning)
            assert f"def {ELSEWHERE[beginning][1]}(" in tests, line
    assert used == set(ELSEWHERE)


@needs_clone
def test_nothing_lies_beside_the_clone() -> None:
    assert NAMED is not None
    assert Path(NAMED) == ROOT
    assert [found.name for found in ROOT.parent.iterdir()] == [ROOT.name]


@needs_clone
@pytest.mark.timeout(INSTALL_SECONDS)
@runs("pip install '.[demo]'")
def test_the_package_installs(shell: Shell, lines: list[str]) -> None:
    install, and_demo = sorted(lines, key=len)
    # The next test runs its second half.
    assert and_demo == f"{install} && delta-gateway demo"
    shell.run(install)
    assert (shell.directory / ".venv/bin/delta-gateway").exists()


@needs_clone
@runs("delta-gateway demo")
def test_the_demo_runs_until_it_is_stopped(shell: Shell, lines: list[str]) -> None:
    (demo,) = lines
    with shell.start(demo) as process:
        assert process.stdout is not None
        output = "".join(iter(process.stdout.readline, "curl:\n"))
        curl = process.stdout.readline().strip()
        (endpoint,) = re.findall(r"at (http://\S+) until", output)
        wait_for_port(int(endpoint.split(":")[2].split("/")[0]), process)
        items = json.loads(shell.run(curl))["items"]
        process.send_signal(signal.SIGINT)
    assert [item["name"] for item in items] == ["cities", "readings", "orders"]
    assert process.returncode == 0


@needs_clone
def test_the_demo_reads_its_own_shares_once(shell: Shell) -> None:
    assert "`delta-gateway demo --once`" in README
    assert "demo.default.cities: 8 rows" in shell.run("delta-gateway demo --once")


@needs_clone
def test_the_module_reports_an_unbuilt_checkout_and_runs_with_a_safe_path(shell: Shell) -> None:
    with shell.start("python -m gateway --help", stderr=subprocess.PIPE) as process:
        _, errors = process.communicate()
    assert process.returncode != 0
    (line,) = errors.splitlines()
    assert "run `pip install -e .`" in line
    assert "delta-gateway" in shell.run("python -P -m gateway --help")


@needs_clone
def test_the_program_for_spark_submit_is_that_of_the_installed_package(shell: Shell) -> None:
    (line,) = (line for line in LINES if line.startswith("spark-submit"))
    (inner,) = re.findall(r"\$\((.*?\))\'\)", line)
    program = Path(shell.run(f"{inner}'").strip())
    assert program.is_relative_to(shell.directory / ".venv")
    assert program.name == "cli.py"


@pytest.fixture(scope="module")
def provider(shell: Shell, versitygw: VersityGw, demo_tables: Path) -> tuple[Shell, int]:
    """A shell beside the README's share.yaml, with the store's keys in its environment; the server's port."""
    yaml = share_yaml(README)
    # What a reader writes differently, too: the store and a free port.
    port = free_port()
    here = f"region: {versitygw.region}, endpoint: '{versitygw.endpoint}', pathStyle: true"
    yaml = yaml.replace("region: eu-central-1", here).replace("port: 8080", f"port: {port}")
    (shell.directory / "share.yaml").write_text(yaml)
    versitygw.upload(demo_tables / "orders", "my-bucket", "warehouse/orders")
    keys = {
        "AWS_ACCESS_KEY_ID": versitygw.access_key_id,
        "AWS_SECRET_ACCESS_KEY": versitygw.secret_access_key,
    }
    return Shell(shell.directory, shell.environment | keys), port


def tables_of(profile: Path) -> list[str]:
    """The tables that a profile opens."""
    credentials = json.loads(profile.read_text())
    url = f"{credentials['endpoint'].rstrip('/')}/shares/sales/all-tables"
    request = Request(url, headers={"Authorization": f"Bearer {credentials['bearerToken']}"})
    with urlopen(request, timeout=60) as answer:
        return [item["name"] for item in json.load(answer)["items"]]


@needs_clone
@runs("delta-gateway recipient add alice", "delta-gateway check", "delta-gateway serve")
def test_a_first_share_on_s3(provider: tuple[Shell, int], lines: list[str]) -> None:
    (shell, port), (add, check, serve) = provider, lines
    shell.run(add)
    assert "1 of 1 tables can be read" in shell.run(check)
    for line in (serve, f"{serve} --workers 2"):
        with shell.running(line, port):
            assert tables_of(shell.directory / "alice.share") == ["orders"]


@needs_clone
@runs(
    "delta-gateway recipient add acme",
    "delta-gateway recipient rotate acme",
    "delta-gateway recipient grant acme",
    "delta-gateway recipient revoke acme",
    "delta-gateway recipient show acme",
    "delta-gateway recipient list",
    "delta-gateway recipient history acme",
)
def test_recipients(provider: tuple[Shell, int], lines: list[str]) -> None:
    shell, _ = provider
    *changes, show, listing, history = lines
    for line in changes:
        shell.run(line)
    profiles = [shlex.split(line)[-1] for line in changes[:2]]
    tokens = {json.loads((shell.directory / name).read_text())["bearerToken"] for name in profiles}
    assert len(tokens) == 2
    shown = shell.run(show)
    assert all(action in shown for action in ("shares sales, sales.public.orders", "createRecipient"))
    assert "acme" in shell.run(listing)
    assert "createRecipient" in shell.run(history)


@needs_clone
@runs(
    "delta-gateway recipient add globex",
    "delta-gateway recipient client",
    "delta-gateway recipient bearer-tokens",
)
def test_oauth_clients(provider: tuple[Shell, int], lines: list[str]) -> None:
    shell, _ = provider
    shown = [shell.run(line) for line in lines]
    assert "forbidden" in shown[-1]
    profiles = [shlex.split(line)[-1] for line in lines if "--profile" in line]
    secrets = {json.loads((shell.directory / name).read_text())["clientSecret"] for name in profiles}
    assert len(secrets) == len(profiles) == 3
