"""The one test command: installs what the tests need, caches it outside of the tree, runs everything.

    python3 tests/run.py                    all parts
    python3 tests/run.py quick              lints and unit tests: no Spark, no Go, no whole servers
    python3 tests/run.py quick -- tests/unit/governance
                                            the unit tests of one package, without the lints
    python3 tests/run.py coverage           lines that the tests run, in Python and Rust
    python3 tests/run.py rust lint          some parts
    python3 tests/run.py python -- -k pages pytest's own arguments after a double dash

Parts that measure no time run three at a time, and each prints its output whole when it ends. One part alone
prints as it goes. Python packages come from uv.lock, with their hashes.

A run fails when a part fails, and when no part passes because all of them were skipped.

Needs Python 3.11 or newer; a Rust toolchain for everything; Go for the S3 servers; npm for the Azure server;
Java 17 and Maven for Spark. A part whose toolchain is missing is skipped, and the last lines say which and
why. Where no toolchain is missing, a test that skips itself is a failure, so nothing is left out silently.
Only the standard library is used here.

DELTA_GATEWAY_GOLDEN=DIR names a directory with golden tables of other implementations and their ANSWERS.json,
an option: the tests that need them skip without it, in every part, and the last lines say so.

The cache is $XDG_CACHE_HOME/delta-sharing-gateway, without the variable ~/.cache/delta-sharing-gateway;
deleting it is always safe.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
import traceback
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TextIO, TypeVar

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delta-sharing-gateway"
LOCK = ROOT / "uv.lock"

VERSITYGW = "v1.8.0"
# Name, module and version. MinIO, an S3 server with sessions, is of `nightly`, the others are of `deploy`.
GO_PROGRAMS = {
    "helm": ("helm.sh/helm/v3/cmd/helm", "v3.22.0"),
    "promtool": ("github.com/prometheus/prometheus/cmd/promtool", "v0.316.0"),
    "actionlint": ("github.com/rhysd/actionlint/cmd/actionlint", "v1.7.12"),
    "minio": ("github.com/minio/minio", "v0.0.0-20260212201848-7aac2a2c5b7c"),
}
DEPLOYMENT_PROGRAMS = ("helm", "promtool", "actionlint")
# Programs of npm. Their packages are those of each directory's package-lock.json, with their hashes.
AZURITE = ROOT / "tests/support/azurite"
OPENID_PROVIDER = ROOT / "tests/support/openid_provider"
OAUTH_SERVER = ROOT / "tests/support/oauth2_server/pom.xml"
JAVA = range(17, 22)
ADVISORIES = "https://pypi.org/pypi/pip/25.0/json"
# The core under test, in profile.release: its dependencies are those of the wheel, compiled once.
# The core itself is compiled without optimisation, which takes a fifth of the time, more than its tests lose.
TESTED_CORE = ("opt-level=0", "debug-assertions=true", "overflow-checks=true", 'debug="line-tables-only"')
# The environments of packages in uv.lock, each with what it selects of the lock.
LOCKED_ENVIRONMENTS = {
    "project": ("--all-extras", "--group", "dev"),
    "docs": ("--only-group", "docs"),
    "client": ("--only-group", "client"),
    "release": ("--only-group", "release"),
    "engines": ("--only-group", "engines"),
    "connect": ("--only-group", "connect"),
}
# Of each fuzz target. What hangs or takes more memory is a finding too.
FUZZ_LIMITS = ["-max_total_time=5", "-timeout=10", "-rss_limit_mb=1024", "-verbosity=0"]
GATEWAY_API = ("sigs.k8s.io/gateway-api", "v1.6.1")
PROMETHEUS_OPERATOR = ("github.com/prometheus-operator/prometheus-operator", "v0.85.0")
OPERATOR_SCHEMAS = "example/prometheus-operator-crd/monitoring.coreos.com"
CUSTOM_RESOURCES = (
    (GATEWAY_API, "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"),
    (PROMETHEUS_OPERATOR, f"{OPERATOR_SCHEMAS}_servicemonitors.yaml"),
    (PROMETHEUS_OPERATOR, f"{OPERATOR_SCHEMAS}_prometheusrules.yaml"),
)

# pytest ends each test that hangs, cargo does not. The longest command takes half of this on two cores.
LONGEST_COMMAND_SECONDS = 3000

# What a clone runs beside README's lines: tests that read what lies in the checkout, and one of each kind.
QUICK_TESTS = [
    f"tests/{name}.py"
    for name in (
        "unit/test_checkout",
        "unit/config/test_loader",
        "unit/routes/test_error_rows",
        "unit/test_layers",
        "unit/test_documentation",
        "unit/test_rust_layers",
        "unit/routes/test_query",
        "integration/writers/test_golden",
        "properties/test_reference",
    )
]
QUICK_RUST_TESTS = ["commit", "deletion_vector"]
# The extras whose packages have ranges; those of `spark` fit each other alone.
RANGED_EXTRAS = ("azure", "completion", "demo", "gcp", "postgresql", "server", "tracing")
# What `oldest` runs: of a server, and of the doctor and the client.
OLDEST_SERVER_TESTS = [
    f"tests/unit/{name}"
    for name in (
        "web",
        "oidc",
        "routes/test_query.py",
        "storage",
        "database",
        "governance",
        "authentication",
        "catalog",
        "config/test_loader.py",
    )
]
# Of the doctor's tests one file runs a server.
OLDEST_CLIENT_TESTS = ["tests/unit/client", "tests/unit/doctor", "--ignore=tests/unit/doctor/test_gateway.py"]
# Set where the tests of sessions run on MinIO.
WITH_MINIO = "DELTA_GATEWAY_WITH_MINIO"
# Of the part `deploy`: reasons that begin so are no missing toolchain.
OTHER_MACHINE = "needs another machine:"
NOTHING_RELEASED = "no release is tagged"
UPGRADE_FROM = "DELTA_GATEWAY_UPGRADE_FROM"
# What pytest runs beside other parts and without further toolchains.
PLAIN = "not spark and not stores and not clone and not deploy and not nightly"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_ABSENT = f"there is no browser on PATH ({', '.join(BROWSERS)}); Debian: apt-get install chromium"
GOLDEN_ABSENT = "DELTA_GATEWAY_GOLDEN names no directory with ANSWERS.json"

# Where the installers of Rust and Go put their tools when nobody touched PATH.
USUAL_PLACES = [Path.home() / ".cargo/bin", Path("/usr/local/go/bin"), Path.home() / "go/bin"]


class Output(threading.local):
    """What the part of this thread prints to, a file or without one the standard output, and its times."""

    log: TextIO | None = None

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)


OUTPUT = Output()
PRINTING = threading.Lock()

P = ParamSpec("P")
R = TypeVar("R")


def one_at_a_time(make: Callable[P, R]) -> Callable[P, R]:
    """Lets one part, pytest worker or test command make what several need, while the others wait."""
    lock = threading.RLock()

    @wraps(make)
    def locked(*arguments: P.args, **options: P.kwargs) -> R:
        path = CACHE / "locks" / make.__name__
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock, path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return make(*arguments, **options)

    return locked


class Missing(Exception):
    """A toolchain that is not on this machine."""


class Failed(Exception):
    """A command that ended with another code than 0."""


@dataclass
class Outcome:
    """Which parts passed, failed and were skipped."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    slowest: list[tuple[float, str]] = field(default_factory=list)

    @property
    def ended(self) -> set[str]:
        """The parts that have run."""
        return {*self.passed, *self.skipped, *(part.split(" ")[0] for part in self.failed)}


def main() -> int:
    """Runs the chosen parts; 0 when some ran and all of those passed."""
    ours, pytest_arguments = split_at_double_dash(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    about = f"of {', '.join(PARTS)}; without any: {', '.join(DEFAULT_PARTS)}"
    parser.add_argument("parts", nargs="*", metavar="PART", help=about)
    chosen = parser.parse_args(ours).parts or list(DEFAULT_PARTS)
    if unknown := [part for part in chosen if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    started = time.monotonic()
    CACHE.mkdir(parents=True, exist_ok=True)
    outcome = Outcome()
    progress = Progress(chosen, outcome)
    for stage in stages(chosen):
        run_stage(progress.longest_first(stage), pytest_arguments, progress)
    progress.say_times()
    return summarise(outcome, time.monotonic() - started)


def split_at_double_dash(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments before and after the first `--`."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def stages(chosen: Sequence[str]) -> list[list[str]]:
    """The parts that run side by side, in the order in which they start, then each other part by itself."""
    side_by_side = [part for part in SIDE_BY_SIDE if part in chosen]
    single = [part for part in chosen if part not in side_by_side]
    return [*([side_by_side] if side_by_side else []), *([part] for part in single)]


class Progress:
    """Which parts run and which come next, with the times of the last run."""

    def __init__(self, chosen: Sequence[str], outcome: Outcome) -> None:
        self.outcome = outcome
        self._chosen = chosen
        self._started: dict[str, float] = {}
        self._lock = threading.Lock()
        self._file = CACHE / "seconds.json"
        self._before: dict[str, float] = json.loads(self._file.read_text()) if self._file.exists() else {}
        self._begin = time.monotonic()
        self._times: list[str] = []

    def longest_first(self, stage: Sequence[str]) -> list[str]:
        """The parts of a stage by the times of the last run; without the time of one as they are."""
        known = all(part in self._before for part in stage)
        return sorted(stage, key=self._before.__getitem__, reverse=True) if known else [*stage]

    @property
    def is_of_one(self) -> bool:
        """Whether one part alone was chosen."""
        return len(self._chosen) == 1

    def start(self, part: str) -> None:
        """Marks a part as running."""
        OUTPUT.seconds.clear()
        self._started[part] = time.monotonic()
        self.say()

    def finish(self, part: str) -> None:
        """Keeps how many seconds a part took, and what they went to."""
        seconds = time.monotonic() - self._started.pop(part)
        kinds = ", ".join(f"{kind} {clock(spent)}" for kind, spent in OUTPUT.seconds.items())
        self._times.append(f"{self._words(part, seconds)}: {kinds or 'nothing'}")
        if part in self.outcome.passed:
            with self._lock:
                self._before[part] = seconds
                self._file.write_text(json.dumps(self._before))

    def say(self) -> None:
        """Prints one line: the running parts and the parts that follow."""
        if self.is_of_one:
            return
        now = time.monotonic()
        running = dict(self._started)
        words = [self._words(part, now - started) for part, started in running.items()]
        ended = self.outcome.ended
        following = [self._words(part) for part in self._chosen if part not in ended and part not in running]
        print(
            f"[{clock(now - self._begin)}] running: {', '.join(words) or 'nothing'};"
            f" next: {', '.join(following) or 'nothing'}; done: {len(ended)} of {len(self._chosen)}",
            flush=True,
        )

    def say_times(self) -> None:
        """Prints where the time went: a line a part beside the last run, and the slowest tests."""
        for line in self._times:
            say(line)
        for seconds, test in sorted(self.outcome.slowest, reverse=True)[:10]:
            say(f"{seconds:7.1f} s {test}")

    def _words(self, part: str, seconds: float | None = None) -> str:
        """A part with its time and the time it took before, `spark (2:05 of 7:10)`."""
        before = f"{clock(self._before[part])}" if part in self._before else None
        if seconds is None:
            return f"{part} ({before})" if before else part
        return f"{part} ({clock(seconds)}{f' of {before}' if before else ''})"


def clock(seconds: float) -> str:
    """Minutes and seconds, `7:05`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def run_stage(stage: Sequence[str], pytest_arguments: list[str], progress: Progress) -> None:
    """Runs some parts at a time: each starts when one before has ended. One part alone prints as it goes."""
    if progress.is_of_one:
        (part,) = stage
        progress.start(part)
        run_part(part, pytest_arguments, progress.outcome)
        progress.finish(part)
        return
    following = iter(stage)
    taking = threading.Lock()

    def run_parts() -> None:
        while True:
            with taking:
                part = next(following, None)
            if part is None:
                return
            run_part_into_log(part, pytest_arguments, progress)

    threads = [threading.Thread(target=run_parts, daemon=True) for _ in range(PARTS_AT_A_TIME)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(timeout=60)
            if thread.is_alive():
                progress.say()


def run_part_into_log(part: str, pytest_arguments: list[str], progress: Progress) -> None:
    """Runs a part with its output in a file, which is printed whole when the part ends."""
    progress.start(part)
    with log_of(part) as log:
        run_part(part, pytest_arguments, progress.outcome)
        progress.finish(part)
        log.seek(0)
        progress.outcome.slowest += [(float(found[1]), found[2]) for found in DURATION.finditer(log.read())]


# A line of pytest's `--durations`.
DURATION = re.compile(r"^([0-9.]+)s (?:setup|call|teardown) +(\S.*)$", re.MULTILINE)


@contextmanager
def log_of(name: str) -> Iterator[TextIO]:
    """Keeps what this thread says in a file, and prints it whole at the end."""
    path = CACHE / "logs" / f"{name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with path.open("w+", encoding="utf-8", errors="replace") as log:
        OUTPUT.log = log
        try:
            yield log
        finally:
            OUTPUT.log = None
            log.seek(0)
            with PRINTING:
                print(f"===== {name}: {clock(time.monotonic() - started)} =====", flush=True)
                shutil.copyfileobj(log, sys.stdout)
                print(f"===== end of {name} =====", flush=True)


def run_part(part: str, pytest_arguments: list[str], outcome: Outcome) -> None:
    """Runs one part to its end or its first failure."""
    try:
        PARTS[part](pytest_arguments)
        outcome.passed.append(part)
    except Missing as reason:
        if os.environ.get("DELTA_GATEWAY_NO_SKIPS"):
            outcome.failed.append(f"{part} ({reason})")
        else:
            outcome.skipped[part] = str(reason)
    except Failed as failure:
        say(f"FAILED {part}: {failure}")
        outcome.failed.append(part)
    except Exception:  # noqa: BLE001 - the other parts run on
        say(traceback.format_exc())
        outcome.failed.append(part)


def summarise(outcome: Outcome, seconds: float) -> int:
    """Prints which parts passed, failed and were skipped, and why."""
    for part, reason in outcome.skipped.items():
        say(f"skipped {part}: {reason}")
    if golden_tables() is None:
        say(f"skipped golden tables of other implementations: {GOLDEN_ABSENT}")
    words = [f"passed: {', '.join(outcome.passed) or 'nothing'}"]
    words.append(f"failed: {', '.join(outcome.failed) or 'nothing'}")
    words.append(f"skipped: {', '.join(outcome.skipped) or 'nothing'}")
    nothing_ran = not outcome.passed and not outcome.failed
    if nothing_ran:
        say("no test ran: every part was skipped for the reasons above")
    failed = nothing_ran or bool(outcome.failed)
    say(f"{'FAILED' if failed else 'OK'} in {seconds / 60:.1f} min; {'; '.join(words)}")
    return 1 if failed else 0


# The parts


def rust(_: list[str]) -> None:
    """Format, lints and tests of the crates, also on the tables that the project makes."""
    need_tool("cargo", "https://rustup.rs")
    variables = {"DELTA_GATEWAY_MADE": str(made_tables())}
    run("cargo", "fmt", "--all", "--check")
    clippy()
    # Storage is tested against the real S3 server where one can be had.
    if which("go"):
        variables["DELTA_GATEWAY_VERSITYGW"] = str(versitygw())
    cargo_test("--lib", "--tests", variables=variables)
    cargo_test("--doc")


def clippy() -> None:
    """Lints of all crates; on the release profile, so that build scripts are compiled once for all parts."""
    run("cargo", "clippy", "--release", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings")


def cargo_test(*arguments: str, variables: Mapping[str, str] | None = None, directory: Path = ROOT) -> None:
    """Tests of the pure crates, the core with all assertions, on the dependencies of the wheel."""
    command: list[str | Path] = [*cargo_test_command(), *arguments]
    if "--doc" not in arguments:
        targets = command[: command.index("--")] if "--" in command else command
        run(*targets, "--no-run", variables=variables, directory=directory)
    run(*command, variables=variables, directory=directory)


def cargo_test_command() -> list[str]:
    """`cargo test` of the pure crates, the core with the settings of TESTED_CORE."""
    settings = [f"--config=profile.release.package.deltalog.{line}" for line in TESTED_CORE]
    return ["cargo", "test", "-p", "deltalog", "-p", "shared-limits", "--locked", "--release", *settings]


def static(_: list[str]) -> None:
    """Formats, lints, types and locks: what needs no build."""
    python = project_environment()
    run(python / "ruff", "format", "--check", ".")
    run(python / "ruff", "check", ".")
    run(python / "mypy")
    run(python / "uv", "lock", "--check", "--offline", "--no-cache", "--python", sys.executable)
    run("cargo", "fmt", "--all", "--check")
    for workspace in (ROOT, ROOT / "rust/fuzz"):
        # Fails where a lock file does not agree with the crates.
        run("cargo", "fetch", "--quiet", "--locked", directory=workspace)


def lint(arguments: list[str]) -> None:
    """The static checks, and whether `_native.pyi` matches the native module."""
    static(arguments)
    install_gateway()
    # Outside of the checkout: the installed package is compared, not the sources without their leaf.
    allow_list = ROOT / "tests/stubtest-allowlist.txt"
    stubtest = project_environment() / "stubtest"
    run(stubtest, "gateway._native", "--allowlist", allow_list, directory=CACHE)


def quick(arguments: list[str]) -> None:
    """Lints beside the unit tests of both languages that start no process.

    With pytest's arguments only pytest, and those unit tests that start processes too.
    """
    need_tool("cargo", "https://rustup.rs")
    if arguments:
        unit_tests(arguments, "")
        return
    beside(
        {
            "quick-unit": partial(unit_tests, [], " and not processes"),
            "quick-lint": partial(lint, []),
            "quick-rust": quick_rust,
        }
    )


def unit_tests(arguments: list[str], marks: str) -> None:
    """The unit tests of Python, or what the arguments select."""
    install_gateway()
    chosen = arguments if any(word.startswith("tests/") for word in arguments) else ["tests/unit", *arguments]
    selected = f"{PLAIN} and not alone{marks}"
    tests = [project_environment() / "pytest", "-q", "-n", "3", "-m", selected, *chosen]
    # Tests of the S3 server skip where it was not built.
    run(*tests, variables={"DELTA_GATEWAY_NO_SKIPS": ""})


def quick_rust() -> None:
    """The lints and unit tests of the crates, but for those that measure the memory of a process."""
    clippy()
    cargo_test("--lib", "--", "--skip", "memory_tests")


def beside(works: Mapping[str, Callable[[], None]]) -> None:
    """Runs works side by side, each with its output printed whole at its end. Raises when one has failed."""
    say(f"running: {', '.join(works)}")
    failures: list[Failed | Missing] = []

    def run_into_log(name: str, work: Callable[[], None]) -> None:
        with log_of(name):
            try:
                work()
            except (Failed, Missing) as failure:
                say(f"FAILED {name}: {failure}")
                failures.append(failure)

    with ThreadPoolExecutor(len(works)) as threads:
        # A fault of this file ends the part as it does anywhere else.
        for ended in [threads.submit(run_into_log, name, work) for name, work in works.items()]:
            ended.result()
    if failures:
        raise failures[0]


def audit(_: list[str]) -> None:
    """Known vulnerabilities of the Python packages in uv.lock, by the advisories of pypi.org."""
    python = project_environment()
    try:
        urllib.request.urlopen(ADVISORIES, timeout=20).close()
    except OSError as error:
        raise Missing(f"the advisories of {ADVISORIES} cannot be reached: {error}") from None
    options = ["--strict", "--disable-pip", "--require-hashes", "--progress-spinner=off"]
    for name in LOCKED_ENVIRONMENTS:
        run(python / "pip-audit", *options, "--requirement", locked_requirements(name))


def deny(_: list[str]) -> None:
    """Licences, sources and bans of the crates, and their advisories where the database can be reached."""
    need_tool("cargo-deny", "cargo install --locked cargo-deny")
    checks, unreachable = ["bans", "licenses", "sources"], None
    reach = ["git", "ls-remote", "--heads", "https://github.com/rustsec/advisory-db"]
    try:
        subprocess.run(reach, check=True, capture_output=True, timeout=20, env=environ())
        checks.append("advisories")
    except (subprocess.SubprocessError, OSError):
        unreachable = "the database at github.com/rustsec/advisory-db cannot be reached"
    run("cargo", "deny", "--locked", "check", *checks)
    if unreachable and os.environ.get("DELTA_GATEWAY_NO_SKIPS"):
        raise Missing(f"advisories: {unreachable}")
    if unreachable:
        say(f"skipped advisories: {unreachable}")


def coverage(arguments: list[str]) -> None:
    """The share of lines that the tests run: of the package by pytest, of the core by its own tests."""
    need_tool("cargo", "https://rustup.rs")
    llvm_tools()
    python = project_environment()
    directory = CACHE / "coverage"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if which("go"):
        versitygw()
    if which("npm"):
        azurite()
        openid_provider()
    for need in (client_environment, made_tables, install_gateway):
        need()
    variables = {"COVERAGE_FILE": str(directory / "python")}
    # Measured code is slower: what measures time is left out.
    marks = ["-m", "not spark and not clone and not deploy and not alone and not nightly"]
    settings = f"--rcfile={ROOT / 'pyproject.toml'}"
    measured = [python / "coverage", "run", settings, python / "pytest", "-q", "-n", "2", *marks, *arguments]
    failed = None
    try:
        run(*measured, variables=variables)
    except Failed as failure:
        failed = failure
    run(python / "coverage", "combine", "-q", settings, variables=variables)
    run(python / "coverage", "report", settings, variables=variables)
    if failed:
        raise failed
    rust_coverage(directory / "rust")


@dataclass(frozen=True)
class LlvmTools:
    """The LLVM programs that read the counters of instrumented Rust code."""

    cov: str
    profdata: str


def llvm_tools() -> LlvmTools:
    """LLVM_COV and LLVM_PROFDATA, else the tools of rustup, else those on PATH of the LLVM that rustc uses.

    An older LLVM does not read the profiles of this rustc.
    """
    if (cov := os.environ.get("LLVM_COV")) and (profdata := os.environ.get("LLVM_PROFDATA")):
        return LlvmTools(cov, profdata)
    sysroot = Path(output("rustc", "--print", "sysroot").strip())
    for cov in map(str, sysroot.glob("lib/rustlib/*/bin/llvm-cov")):
        return LlvmTools(cov, cov.replace("llvm-cov", "llvm-profdata"))
    major = first_number(r"LLVM version: (\d+)", output("rustc", "-vV"))
    for suffix in (f"-{major}", ""):
        cov, profdata = (which(f"llvm-{tool}{suffix}") for tool in ("cov", "profdata"))
        if cov and profdata and first_number(r"version (\d+)", output(cov, "--version")) >= major:
            return LlvmTools(cov, profdata)
    raise Missing(
        f"llvm-cov and llvm-profdata of LLVM {major} are not installed: `rustup component add llvm-tools`,"
        f" the package llvm-{major} of the system, or their paths in LLVM_COV and LLVM_PROFDATA"
    )


def first_number(pattern: str, text: str) -> int:
    """The number that the pattern finds; 0 without a match."""
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def output(*command: str | Path, variables: Mapping[str, str] | None = None) -> str:
    """The standard output of a command, which is not shown."""
    words = [str(word) for word in command]
    ended = subprocess.run(
        words, check=True, capture_output=True, cwd=ROOT, env=environ(variables), text=True
    )
    return ended.stdout


def rust_coverage(directory: Path) -> None:
    """Counts the lines of the core that its tests run. Dependencies and files of tests are not counted."""
    tools = llvm_tools()
    directory.mkdir()
    wrapper = directory / "rustc-with-counters"
    wrapper.write_text('#!/bin/sh\nexec "$@" -C instrument-coverage\n')
    wrapper.chmod(0o755)
    variables = {
        "RUSTC_WORKSPACE_WRAPPER": str(wrapper),
        "LLVM_PROFILE_FILE": str(directory / "%p-%m.profraw"),
        "DELTA_GATEWAY_MADE": str(made_tables()),
        "DELTA_GATEWAY_VERSITYGW": str(versitygw()) if which("go") else "",
    }
    cargo_test("--lib", "--tests", variables=variables)
    profile = directory / "profile"
    raw = sorted(directory.glob("*.profraw"))
    run(tools.profdata, "merge", "-sparse", *raw, "-o", profile)
    build = [*cargo_test_command(), "--lib", "--tests", "--no-run", "--message-format=json"]
    messages = map(json.loads, output(*build, variables=variables).splitlines())
    programs = [message["executable"] for message in messages if message.get("executable")]
    objects = [programs[0], *(f"--object={program}" for program in programs[1:])]
    # Tests in the file of the code that they test are counted with it.
    options = [
        "--ignore-filename-regex=rust/core/src/.*(/|_)tests?([.]rs|/)",
        "--show-region-summary=false",
        "--show-branch-summary=false",
        f"--instr-profile={profile}",
    ]
    run(tools.cov, "report", *options, *objects, ROOT / "rust/core/src")


def docs(_: list[str]) -> None:
    """The documentation site; a broken link or a page outside of the navigation is a failure."""
    variables = {"NO_MKDOCS_2_WARNING": "1"}
    build = [docs_environment() / "mkdocs", "build", "--strict", "--quiet", "--site-dir", CACHE / "site"]
    run(*build, variables=variables)


def fuzz(_: list[str]) -> None:
    """Each fuzz target for some seconds, from the kept seeds and what earlier runs found beside them.

    Its own build takes minutes, so it is not of all parts. The kept seeds are run by `rust`.
    """
    need_tool("cargo", "https://rustup.rs")
    need_tool("c++", "a C++ compiler, which libFuzzer is built by")
    crate = ROOT / "rust/fuzz"
    run("cargo", "fmt", "--check", directory=crate)
    # With coverage counters every crate is another, so nothing is shared with the other parts.
    scratch = CACHE / "fuzz/scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    variables = {"CARGO_TARGET_DIR": str(CACHE / "fuzz/target"), "TMPDIR": str(scratch)}
    run("cargo", "build", "--locked", directory=crate, variables=variables)
    for source in sorted((crate / "fuzz_targets").glob("*.rs")):
        target = source.stem
        found, findings = CACHE / "fuzz/corpus" / target, CACHE / "fuzz/findings" / target
        for directory in (found, findings):
            directory.mkdir(parents=True, exist_ok=True)
        try:
            fuzzer = ["cargo", "run", "-q", "--locked", "--bin", target, "--", *FUZZ_LIMITS]
            places = [f"-artifact_prefix={findings}/", found, crate / "corpus" / target]
            run(*fuzzer, *places, directory=crate, variables=variables)
        except Failed:
            say(f"see again: (cd rust/fuzz && cargo run --bin {target} -- FILE), with a FILE of {findings}:")
            for finding in sorted(findings.iterdir()):
                say(f"  {finding}")
            raise


def python(pytest_arguments: list[str]) -> None:
    """All of pytest but for Spark: a real S3 server, the official client, made tables, properties.

    With pytest's arguments also the tests of `alone`, of which each is then beside no other one.
    """
    needs = (versitygw, client_environment, made_tables, browser)
    if pytest_arguments:
        pytest(PLAIN, pytest_arguments, needs=needs)
        return
    pytest(f"{PLAIN} and not alone", ["-n", "3"], needs=needs)


def alone(pytest_arguments: list[str]) -> None:
    """The tests of pytest that measure time, one at a time."""
    needs = (versitygw, client_environment, made_tables)
    pytest(f"{PLAIN} and alone", pytest_arguments or files_of("alone"), needs=needs)


def stores(pytest_arguments: list[str]) -> None:
    """The tests on Azurite, on a store that verifies session tokens, and with an OpenID provider."""
    need_tool("go", "https://go.dev/dl")
    need_tool("npm", "Node.js")
    needs = (
        azurite,
        openid_provider,
        browser,
        versitygw,
        client_environment,
        engines_environment,
    )
    # The tests of one file share its tables.
    pytest(
        "stores and not nightly", pytest_arguments or ["-n", "2", "--dist", "loadfile", STORES], needs=needs
    )


def spark(pytest_arguments: list[str]) -> None:
    """The tests of the Spark pipeline, in a process of their own: the JVM is as large as all others.

    With pytest's arguments all tests that need a Spark session.
    """
    pytest("spark and not nightly", pytest_arguments or pipeline_tests("spark"), needs=SPARK_NEEDS)


def projections(pytest_arguments: list[str]) -> None:
    """The tests of projections and of `verify`, in a Spark session of their own."""
    pytest("spark and not nightly", [*pipeline_tests("projections"), *pytest_arguments], needs=SPARK_NEEDS)


def writers(pytest_arguments: list[str]) -> None:
    """The tests of tables that delta-spark writes, in a Spark session of their own, and others with a JVM."""
    files = [path for path in files_of("spark") if not path.startswith(SPARK_PIPELINE)]
    pytest(
        "spark and not nightly", [*files, *pipeline_tests("writers"), *pytest_arguments], needs=SPARK_NEEDS
    )


def files_of(mark: str) -> list[str]:
    """The files whose text says that they have tests with a mark: to read all of them takes half a minute."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    found = [path for path in files if any(word in path.read_text() for word in WORDS_OF_MARKS[mark])]
    return [path.relative_to(ROOT).as_posix() for path in found]


def pipeline_tests(part: str) -> list[str]:
    """The files of the pipeline's tests that a part runs."""
    paths = sorted((ROOT / SPARK_PIPELINE).glob("test_*.py"))
    parts = {
        path: next((name for name, files in PIPELINE_PARTS.items() if path.stem in files), "spark")
        for path in paths
    }
    return [str(path.relative_to(ROOT)) for path in paths if parts[path] == part]


def nightly(pytest_arguments: list[str]) -> None:
    """What takes long to compile or to run: comparisons with delta_kernel, sessions on MinIO, large tables.

    Other parts compare with deltalake, and have a token service of the tests.
    """
    needs = (*SPARK_NEEDS, partial(go_program, "minio"), engines_environment, build_kernel_program)
    pytest("nightly or sessions", pytest_arguments, needs=needs, variables={WITH_MINIO: "1"})


def deploy(pytest_arguments: list[str]) -> None:
    """The image, the unit, the packages and the chart, made and run as they are deployed."""
    need_tool("go", "https://go.dev/dl")
    programs = [partial(go_program, name) for name in DEPLOYMENT_PROGRAMS]
    linter = partial(debian_program, ("lintian",), "linter of Debian packages")
    needs = (*programs, linter, custom_resources, release_environment, made_tables)
    pytest("deploy", pytest_arguments or ["tests/deploy"], needs=needs)


def clone(_: list[str]) -> None:
    """README's console lines and the quick tests, in a clone with nothing beside it and a new environment."""
    need_tool("git", "https://git-scm.com")
    need_tool("cargo", "https://rustup.rs")
    project, checkout = project_environment(), fresh_clone()
    install_gateway()
    if which("go"):
        versitygw()
    own = checkout / ".venv"
    nothing = dict.fromkeys(("DELTA_GATEWAY_GOLDEN", "DELTA_GATEWAY_MADE", "PYTHONPATH"), "")
    # What the package needs comes in the versions of the lock, which a release of others does not change.
    versions = {"PIP_CONSTRAINT": str(constraints())}
    # Without optimisation of the core, of which the other parts have compiled one: minutes less.
    core = {"MATURIN_PEP517_ARGS": f"--config=profile.release.package.deltalog.{TESTED_CORE[0]}"}
    variables = {"DELTA_GATEWAY_CLONE": str(checkout), **versions, **core, **nothing, **no_skips()}
    run(sys.executable, "-m", "venv", own)
    lines = [project / "pytest", "-m", "clone", "--durations=5", "tests/clone"]
    run(*lines, directory=checkout, variables=variables)
    # The quick tests run on the package that the README's line has installed, by the tools of the project's
    # environment, which come after it.
    (tools,) = (CACHE / "project/lib").glob("python*/site-packages")
    (packages,) = (own / "lib").glob("python*/site-packages")
    (packages / "tools-of-the-tests.pth").write_text(f"{tools}\n")
    quick = [
        own / "bin/python",
        "-P",
        "-m",
        "pytest",
        "-q",
        "-m",
        PLAIN,
        *QUICK_TESTS,
    ]
    run(*quick, directory=checkout, variables=variables)
    cargo_test("-q", "--lib", "--", *QUICK_RUST_TESTS, directory=checkout, variables=variables)


def oldest(_: list[str]) -> None:
    """The server, and beside the official client the doctor, on the oldest versions that the metadata allows.

    pip resolves each environment from an index, with the wheel; the tools of the tests come after it.
    """
    install_gateway()
    beside = [line for line in dependency_group("client") if line.startswith("delta-sharing==")]
    run_on_oldest("oldest-client", (), beside, OLDEST_CLIENT_TESTS)
    run_on_oldest("oldest-server", RANGED_EXTRAS, [], OLDEST_SERVER_TESTS)


def run_on_oldest(name: str, extras: Sequence[str], beside: Sequence[str], tests: Sequence[str]) -> None:
    """Runs tests in an environment of the wheel with some extras, beside other packages."""
    versions = oldest_versions(extras)
    directory, limits = CACHE / name, CACHE / f"{name}-constraints.txt"
    limits.write_text("\n".join(versions))
    run(sys.executable, "-m", "venv", "--clear", directory)
    (wheel,) = (CACHE / "wheels").glob("*.whl")
    interpreter = directory / "bin/python"
    wanted = f"{wheel}[{','.join(extras)}]" if extras else wheel
    run(interpreter, "-m", "pip", "install", "-q", "--constraint", limits, wanted, *beside)
    for line in beside:
        module = line.split("==")[0].replace("-", "_")
        run(interpreter, "-P", "-c", f"import {module}, gateway")
    (tools,) = (CACHE / "project/lib").glob("python*/site-packages")
    (packages,) = (directory / "lib").glob("python*/site-packages")
    (packages / "tools-of-the-tests.pth").write_text(f"{tools}\n")
    selected = f"{PLAIN} and not alone and not processes"
    # Tests of the S3 server skip where it was not built.
    variables = {"DELTA_GATEWAY_NO_SKIPS": "", "PYTHONPATH": ""}
    run(interpreter, "-P", "-m", "pytest", "-q", "-m", selected, *tests, variables=variables)


def oldest_versions(extras: Sequence[str]) -> list[str]:
    """The lower ends of the ranges of pyproject.toml, as pip's constraints, with those of some extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for name in extras for line in project["optional-dependencies"][name]),
    ]
    oldest = dict(re.fullmatch(r"([\w.-]+)(?:\[.*\])?>=([\w.]+),<.*", line).groups() for line in lines)
    return [f"{name}=={version}" for name, version in oldest.items()]


def dependency_group(name: str) -> list[str]:
    """The lines of a dependency group of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"][name]


PARTS: Mapping[str, Callable[[list[str]], None]] = {
    "rust": rust,
    "fuzz": fuzz,
    "lint": lint,
    "docs": docs,
    "python": python,
    "alone": alone,
    "spark": spark,
    "projections": projections,
    "writers": writers,
    "stores": stores,
    "clone": clone,
    "oldest": oldest,
    "deploy": deploy,
    "static": static,
    "quick": quick,
    "audit": audit,
    "deny": deny,
    "coverage": coverage,
    "nightly": nightly,
}
# No part of these measures time. They start in this order: first what compiles beside what does not, then the
# longest ones, so that none of these runs alone in the end.
SIDE_BY_SIDE = (
    "rust",
    "docs",
    "spark",
    "clone",
    "python",
    "projections",
    "writers",
    "lint",
    "stores",
    "deploy",
    "oldest",
)
# One more than the processors of a small machine: parts wait for servers, stores and Spark.
PARTS_AT_A_TIME = 3
DEFAULT_PARTS = (*SIDE_BY_SIDE, "alone")


def pytest(
    marks: str,
    arguments: Sequence[str],
    needs: Iterable[Callable[[], object]],
    variables: Mapping[str, str] | None = None,
) -> None:
    """Runs pytest on the installed package, with the real parts that this machine can have."""
    environment = project_environment()
    for need in needs:
        need()
    install_gateway()
    # The script and not `-m pytest`, which would put the checkout before the installed package.
    run(
        environment / "pytest",
        "-m",
        marks,
        "--durations=15",
        *arguments,
        variables=no_skips() | (variables or {}),
    )


# What they need


@one_at_a_time
def project_environment() -> Path:
    """The scripts of an environment with the project's dependencies, its development group and its extras."""
    return locked_environment("project")


@one_at_a_time
def docs_environment() -> Path:
    """The scripts of an environment with the tools that build the documentation."""
    return locked_environment("docs")


@one_at_a_time
def client_environment() -> Path:
    """The scripts of an environment with the official Python client."""
    return locked_environment("client")


@one_at_a_time
def engines_environment() -> Path:
    """The scripts of an environment with an engine that reads directories."""
    return locked_environment("engines")


@one_at_a_time
def connect_environment() -> Path:
    """The scripts of an environment with what PySpark needs for Spark Connect: read beside the project's."""
    return locked_environment("connect")


@one_at_a_time
def release_environment() -> Path:
    """The scripts of an environment with the tools that make and check the artefacts of a release."""
    return locked_environment("release")


def fresh_clone() -> Path:
    """Clones what is committed, with the changes of tracked files, to a directory with nothing beside it.

    A file that is as it was in the clone before keeps its time, so that cargo compiles only what changed.
    """
    if not (ROOT / ".git").exists():
        raise Missing("the sources are no git repository")
    checkout, before = CACHE / "clone/alone/checkout", CACHE / "clone/before"
    shutil.rmtree(before, ignore_errors=True)
    if checkout.exists():
        checkout.rename(before)
    shutil.rmtree(checkout.parent, ignore_errors=True)
    checkout.parent.mkdir(parents=True)
    run("git", "clone", "-q", ROOT, checkout)
    changes = subprocess.run(["git", "diff", "--binary", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    if changes.stdout:
        say("  with the changes of tracked files that are not committed")
        subprocess.run(["git", "apply"], cwd=checkout, check=True, input=changes.stdout)
    left_out = ["git", "ls-files", "--others", "--exclude-standard"]
    for name in subprocess.run(left_out, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    ):
        if name:
            say(f"  without {name}, which is not tracked")
    for path in checkout.rglob("*"):
        old = before / path.relative_to(checkout)
        if path.is_file() and old.is_file() and path.read_bytes() == old.read_bytes():
            shutil.copystat(old, path)
    shutil.rmtree(before, ignore_errors=True)
    return checkout


def constraints() -> Path:
    """The versions of the project's own environment, as pip's constraints."""
    path = CACHE / "constraints.txt"
    selection = ["--all-extras", "--group", "dev", "--no-hashes", "--no-annotate"]
    run(*export_command(), *selection, "--output-file", path)
    return path


SERVER_EXTRAS = ("--extra", "azure", "--extra", "gcp", "--extra", "postgresql")
SERVER_PACKAGES = ("--no-dev", *SERVER_EXTRAS, "--no-annotate", "--no-header")
"""Selects the dependencies of a server that reads tables on any cloud, with recipients in any database."""


def export_command() -> list[str | Path]:
    """Writes packages of uv.lock as pip's requirements; asks no index."""
    options = [
        "--quiet",
        "--locked",
        "--offline",
        "--no-cache",
        "--no-emit-project",
        "--python",
        sys.executable,
    ]
    return [uv(), "export", *options]


def locked_environment(name: str) -> Path:
    """Makes an environment of packages in uv.lock, or updates it in place when the lock changed.

    pip installs them, so that its configuration (an index, a proxy, certificates) counts; each file must have
    a hash of the lock.
    """
    key = digest([sys.version, LOCK.read_text(), *LOCKED_ENVIRONMENTS[name]])
    if fresh(CACHE / name, key):
        return CACHE / name / "bin"
    return virtual_environment(name, locked_requirements(name), key)


def locked_requirements(name: str) -> Path:
    """The packages of an environment with their hashes, as pip's requirements."""
    path = CACHE / f"{name}-requirements.txt"
    run(*export_command(), *LOCKED_ENVIRONMENTS[name], "--output-file", path)
    return path


@one_at_a_time
def uv() -> Path:
    """uv, in the version of uv.lock: it reads the lock."""
    packages = tomllib.loads(LOCK.read_text())["package"]
    (package,) = (package for package in packages if package["name"] == "uv")
    hashes = [f"--hash={file['hash']}" for file in package["wheels"]]
    pinned = " ".join([f"uv=={package['version']}", *hashes])
    requirements = CACHE / "uv-requirements.txt"
    requirements.write_text(pinned)
    return virtual_environment("uv", requirements, digest([sys.version, pinned])) / "uv"


def virtual_environment(name: str, requirements: Path, key: str) -> Path:
    """Makes an environment, or updates it in place when `key` changed."""
    directory = CACHE / name
    scripts = directory / "bin"
    if fresh(directory, key):
        return scripts
    made_by = CACHE / f"{name}-python"
    if not fresh(made_by, sys.version):
        run(sys.executable, "-m", "venv", "--clear", directory)
        remember(made_by, sys.version)
    run(scripts / "python", "-m", "pip", "install", "-q", "--require-hashes", "-r", requirements)
    remember(directory, key)
    return scripts


@one_at_a_time
def install_gateway() -> None:
    """Builds the wheel in release mode and installs it, when a source of it changed."""
    environment = project_environment()
    sources = ["pyproject.toml", "Cargo.toml", "Cargo.lock", "deploy/pypi.md"]
    files = [ROOT / name for name in sources if (ROOT / name).exists()]
    files += [
        path for top in ("gateway", "rust") for path in sorted((ROOT / top).rglob("*")) if is_source(path)
    ]
    key = digest([str(ROOT), *(f"{path.relative_to(ROOT)}\0{path.read_bytes().hex()}" for path in files)])
    marker = CACHE / "project" / "gateway"
    if fresh(marker, key):
        return
    need_tool("cargo", "https://rustup.rs")
    wheels = CACHE / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    run(environment / "maturin", "build", "--release", "--locked", "--out", wheels)
    (wheel,) = wheels.glob("*.whl")
    run(environment / "python", "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", wheel)
    remember(marker, key)


def last_release() -> str | None:
    """The commit of the last tag `vX.Y.Z` before this one, or the one that is named; None without a tag."""
    named = os.environ.get(UPGRADE_FROM)
    if named is None:
        if output("git", "rev-parse", "--is-shallow-repository").strip() != "false":
            raise Missing(
                "a shallow clone does not tell which releases are tagged: git fetch --unshallow --tags"
            )
        tags = output("git", "tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname").split()
        if not tags:
            return None
        named = tags[0]
    return output("git", "rev-parse", "--verify", f"{named}^{{commit}}").strip()


@one_at_a_time
def built_release(commit: str) -> Path:
    """A directory with the `checkout` of a commit, by `git worktree`, and `packages`: what its wheel has."""
    directory = CACHE / "releases" / commit
    if not fresh(directory, commit):
        need_tool("cargo", "https://rustup.rs")
        environment = project_environment()
        shutil.rmtree(directory, ignore_errors=True)
        run("git", "worktree", "prune")
        run("git", "worktree", "add", "--quiet", "--detach", directory / "checkout", commit)
        build = [environment / "maturin", "build", "--release", "--locked", "--out", directory / "wheel"]
        run(*build, directory=directory / "checkout")
        (wheel,) = (directory / "wheel").glob("*.whl")
        install = ["-m", "pip", "install", "-q", "--no-deps", "--target", directory / "packages", wheel]
        run(environment / "python", *install)
        remember(directory, commit)
    return directory


def is_source(path: Path) -> bool:
    """Whether a change of this file changes the wheel."""
    parts = path.relative_to(ROOT).parts
    return path.is_file() and path.suffix not in {".so", ".pyc"} and not {"target", "fuzz"} & {*parts}


@one_at_a_time
def versitygw() -> Path:
    """The S3 server of the tests: it verifies signatures, regions and the seven-day ceiling."""
    binary = CACHE / "bin" / f"versitygw-{VERSITYGW}"
    if not binary.exists():
        need_tool("go", "https://go.dev/dl")
        run(
            "go",
            "install",
            f"github.com/versity/versitygw/cmd/versitygw@{VERSITYGW}",
            variables={"GOBIN": str(CACHE / "bin")},
        )
        (CACHE / "bin" / "versitygw").rename(binary)
    return binary


@one_at_a_time
def browser() -> None:
    """A browser for the tests of pages, which skip without one."""
    debian_program(BROWSERS, "browser")


def debian_program(names: Sequence[str], what: str) -> None:
    """Gets the first of some programs by apt, when this is Debian, we are root, and none of them is there."""
    if any(map(which, names)) or os.geteuid() != 0 or which("apt-get") is None:
        return
    variables = {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--no-install-recommends", names[0]]
    try:
        run("apt-get", "update", "--quiet", variables=variables)
        run(*install, variables=variables)
    except Failed as failure:
        say(f"  no {what}: {failure}")


@one_at_a_time
def azurite() -> Path:
    """The Azure Blob server of the tests: it verifies Shared Key, both kinds of SAS and their times."""
    npm_packages(AZURITE)
    return azurite_program()


@one_at_a_time
def openid_provider() -> Path:
    """The OpenID provider of the tests, which issues and signs access tokens."""
    npm_packages(OPENID_PROVIDER)
    return openid_provider_program()


def npm_packages(source: Path) -> None:
    """Installs the packages of a directory, and copies its programs beside them."""
    directory = CACHE / source.name
    files = sorted(source.iterdir())
    key = digest([path.read_text() for path in files])
    if not fresh(directory, key):
        need_tool("npm", "Node.js")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for path in files:
            shutil.copy(path, directory)
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        run("npm", "ci", *options, directory=directory)
        remember(directory, key)


def azurite_program() -> Path:
    """Where the program is that `node` runs, once it was installed."""
    return CACHE / "azurite/node_modules/azurite/dist/src/blob/main.js"


def openid_provider_program() -> Path:
    """Where the program is that `node` runs, once its packages were installed."""
    return CACHE / "openid_provider/server.mjs"


def go_program_path(name: str) -> Path:
    """Where a program of GO_PROGRAMS is, once it was built."""
    return CACHE / "bin" / f"{name}-{GO_PROGRAMS[name][1]}"


@one_at_a_time
def go_program(name: str) -> Path:
    """A program of GO_PROGRAMS, built once: without C and debug information, which takes half of the time."""
    binary = go_program_path(name)
    if not binary.exists():
        module, version = GO_PROGRAMS[name]
        scratch = CACHE / "bin" / "scratch"
        variables = {"GOBIN": str(scratch), "CGO_ENABLED": "0"}
        # Without the clients of clouds that promtool would ask for the targets of a configuration.
        options = ["-trimpath", "-ldflags=-s -w", "-tags=remove_all_sd"]
        run("go", "install", *options, f"{module}@{version}", variables=variables)
        (scratch / module.rpartition("/")[2]).rename(binary)
    return binary


@one_at_a_time
def custom_resources() -> Path:
    """The schemas of custom resources that the chart uses: of the Gateway API and the Prometheus operator."""
    directory = CACHE / "custom-resources"
    key = digest([f"{module}@{version}/{path}" for (module, version), path in CUSTOM_RESOURCES])
    if not fresh(directory, key):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for (module, version), path in CUSTOM_RESOURCES:
            downloaded = output("go", "mod", "download", "-json", f"{module}@{version}")
            source = Path(json.loads(downloaded)["Dir"]) / path
            (directory / source.name).write_bytes(source.read_bytes())
        remember(directory, key)
    return directory


def kernel_program() -> Path:
    """Where the program is that lists files with delta_kernel, once it was built."""
    return CACHE / "kernel/target/debug/kernel-files"


@one_at_a_time
def build_kernel_program() -> None:
    """Builds it and `kernel-rows` without optimisation: they read small tables, and tests wait for them."""
    need_tool("cargo", "https://rustup.rs")
    variables = {"CARGO_TARGET_DIR": str(CACHE / "kernel/target")}
    crate = ROOT / "bench/kernel"
    run(
        "cargo",
        "build",
        "--locked",
        "--bin",
        "kernel-files",
        "--bin",
        "kernel-rows",
        directory=crate,
        variables=variables,
    )


@one_at_a_time
def spark_jars() -> Path:
    """The jars that Spark needs to read and write Delta tables."""
    return maven_jars(ROOT / "tests/support/pom.xml", CACHE / "jars")


@one_at_a_time
def s3a_jars() -> None:
    """The jars of Hadoop's client of S3, for the long forms of tests of projections and directories."""
    if any(os.environ.get(f"DELTA_GATEWAY_LONG_{name}") for name in ("PROJECTIONS", "DIRECTORIES")):
        maven_jars(ROOT / "tests/support/s3a/pom.xml", CACHE / "s3a_jars")


@one_at_a_time
def oauth_server_jars() -> Path:
    """The jars of the OAuth server of the tests, which issues tokens with any claims."""
    return maven_jars(OAUTH_SERVER, oauth_server_directory())


def oauth_server_directory() -> Path:
    """Where the jars of the OAuth server are, once they were copied."""
    return CACHE / "oauth2_server"


def maven_jars(pom: Path, directory: Path) -> Path:
    """Copies the dependencies of a POM into a directory, when it has changed."""
    key = digest([pom.read_text()])
    if not fresh(directory, key):
        need_tool("mvn", "Maven")
        shutil.rmtree(directory, ignore_errors=True)
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={directory}"]
        run("mvn", "-B", "-q", "-f", pom, *copy)
        remember(directory, key)
    return directory


def java() -> None:
    """A Java that Spark runs on."""
    need_tool("java", "Java 17")
    said = subprocess.run(
        ["java", "-version"], check=False, capture_output=True, text=True, env=environ()
    ).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found.group(1)) not in JAVA:
        raise Missing(
            f"Java {JAVA.start} to {JAVA.stop - 1} is needed, there is {found.group(1) if found else 'none'}"
        )


def no_skips() -> dict[str, str]:
    """The variable that makes a skip a failure, where no toolchain is missing."""
    return {} if missing_toolchains() else {"DELTA_GATEWAY_NO_SKIPS": "1"}


def missing_toolchains() -> list[str]:
    """Why tests may skip themselves on this machine."""
    return [tool for tool in ("cargo", "go", "java", "mvn", "npm") if which(tool) is None]


def golden_tables() -> Path | None:
    """The golden tables of other implementations: $DELTA_GATEWAY_GOLDEN. None without them."""
    named = os.environ.get("DELTA_GATEWAY_GOLDEN")
    tables = Path(named).resolve() if named else None
    return tables if tables and (tables / "ANSWERS.json").is_file() else None


@one_at_a_time
@cache
def made_tables(python: Path | None = None) -> Path:
    """The project's own tables with their ANSWERS.json, made when their makers changed.

    `python` has the development group; without it the project's environment is used, and made if need be.
    """
    directory = CACHE / "tables"
    tests = ROOT / "tests"
    makers = [
        tests / "tables" / f"{name}.py"
        for name in ("make", "writer", "by_hand", "by_deltalake", "random_logs")
    ]
    makers += [tests / "support" / f"{name}.py" for name in ("reference", "deletion_vectors")]
    writers = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    key = digest([str(directory), *writers, *(path.read_text() for path in makers)])
    if not fresh(directory, key):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        python = python or project_environment() / "python"
        run(python, tests / "tables/make.py", directory, variables={"PYTHONPATH": str(tests)})
        remember(directory, key)
    return directory


SPARK_PIPELINE = "tests/integration/spark"
# What other parts than `spark` run of it, so that all take about as long. Those of `writers` start Java.
PIPELINE_PARTS = {
    "projections": (
        "test_nights",
        "test_projection_conditions",
        "test_projection_jobs",
        "test_projection_order",
        "test_projections",
        "test_projections_on_s3",
        "test_verify",
    ),
    "writers": ("test_connect", "test_submit"),
}
WORDS_OF_MARKS = {"alone": ("mark.alone",), "spark": ("spark: ", "few_rows", "oauth_server")}
STORES = "tests/integration"
SPARK_NEEDS = (
    java,
    spark_jars,
    s3a_jars,
    oauth_server_jars,
    versitygw,
    client_environment,
    connect_environment,
    made_tables,
)


def need_tool(name: str, where: str) -> None:
    """Raises when a tool is not on this machine."""
    if which(name) is None:
        raise Missing(f"{name} is not installed ({where})")


# Running


def run(*command: str | Path, variables: Mapping[str, str] | None = None, directory: Path = ROOT) -> None:
    """Shows and runs a command; raises when it fails."""
    words = [str(word) for word in command]
    say(f"$ {' '.join(words)}"[:400])
    started = time.monotonic()
    if which(words[0]) is None:
        raise Missing(f"{words[0]} is not installed")
    log = OUTPUT.log
    errors = subprocess.STDOUT if log else None
    how: dict[str, Any] = {"cwd": directory, "env": environ(variables), "stdout": log, "stderr": errors}
    try:
        code = subprocess.run(words, check=False, timeout=LONGEST_COMMAND_SECONDS, **how).returncode
    except subprocess.TimeoutExpired:
        name, minutes = Path(words[0]).name, LONGEST_COMMAND_SECONDS // 60
        raise Failed(f"{name} was ended after {minutes} min: it does not end by itself") from None
    seconds = time.monotonic() - started
    OUTPUT.seconds[kind_of(words)] += seconds
    if code:
        raise Failed(f"{Path(words[0]).name} ended with code {code} after {seconds:.0f} s")
    say(f"  {seconds:.0f} s")


def kind_of(words: Sequence[str]) -> str:
    """What the time of a command goes to: compiling, tests, or installing what they need."""
    name = Path(words[0]).name
    if name in {"maturin", "go"} or (name == "cargo" and (words[1] != "test" or "--no-run" in words)):
        return "compiling"
    installs = name in {"npm", "mvn", "apt-get", "git", "uv"} or "pip" in words or "venv" in words
    return "installing" if installs else "tests"


def environ(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of what is run here; all steps compile into one directory in the cache."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, USUAL_PLACES)])
    ours = {
        "PATH": path,
        "CARGO_TARGET_DIR": str(CACHE / "target"),
        "PYO3_PYTHON": str(CACHE / "project/bin/python")
        if (CACHE / "project/bin/python").exists()
        else sys.executable,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    if golden := golden_tables():
        # Cargo runs tests in the directory of their crate, where a relative name leads elsewhere.
        ours["DELTA_GATEWAY_GOLDEN"] = str(golden)
    return {**os.environ, **ours, **(variables or {})}


def which(name: str) -> str | None:
    """Where a tool is, also in the places that its installer uses."""
    return shutil.which(name, path=environ()["PATH"])


def digest(words: Iterable[str]) -> str:
    """One word for many."""
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def fresh(path: Path, key: str) -> bool:
    """Whether `path` was made for this key."""
    stamp = path.with_name(f"{path.name}.stamp")
    return stamp.exists() and stamp.read_text() == key


def remember(path: Path, key: str) -> None:
    """Says that `path` was made, whole, for this key."""
    path.with_name(f"{path.name}.stamp").write_text(key)


def say(line: str) -> None:
    """Prints at once: a build server shows these lines among those of the commands."""
    print(line, flush=True, file=OUTPUT.log or sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
