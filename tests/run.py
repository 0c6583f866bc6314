"""The one test command: installs what the tests need, caches it outside of the tree, runs everything.

    python3 tests/run.py                    all parts
    python3 tests/run.py quick              lints and unit tests: no Spark, no Go, no whole servers
    python3 tests/run.py rust lint          some parts
    python3 tests/run.py python -- -k pages pytest's own arguments; `quick` then has no lints

Parts run four at a time, and each prints its output whole when it ends; one part alone prints as it goes. A
run fails when a part fails, and when all parts were skipped.

Needs Python 3.11 or newer; a Rust toolchain for everything; Go for the S3 servers; npm for the Azure server;
Java 17 and Maven for Spark. A part whose toolchain is missing is skipped, and the last lines say which and
why. Where no toolchain is missing, a test that skips itself is a failure, so nothing is left out silently.

DELTA_GATEWAY_GOLDEN=DIR names a directory with golden tables of other implementations and their ANSWERS.json,
an option: the tests that need them skip without it, in every part, and the last lines say so.

The cache is $XDG_CACHE_HOME/delta-sharing-gateway, without the variable ~/.cache/delta-sharing-gateway;
deleting it is always safe. What is installed there, and how, is in tools.py.
"""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import takewhile
from pathlib import Path
from threading import get_ident
from traceback import format_exc

import tools
from tools import CACHE, ROOT, Failed, Missing, environment, install, made_tables, run, say

# What pytest runs beside other parts and without further toolchains.
PLAIN = "not spark and not stores and not clone and not deploy and not nightly"
SPARK_NEEDS = ("java", "jars", "oauth2_server", "versitygw", "client", "connect", "tables")
NIGHT_NEEDS = ("minio", "engines", "kernel", "browser", "azurite", "openid_provider", "lintian", "release")
PIPELINE = "tests/integration/spark"
OF_JOBS = tuple(f"{PIPELINE}/{name}" for name in ("commands", "projections", "verify"))
WORDS_OF_MARKS = {"alone": ("mark.alone",), "spark": ("spark: ", "few_rows", "oauth_server")}
WORDS_OF_MARKS |= {"stores": ("azurite", "s3_with_sts", "openid_provider")}
# The core under test, in profile.release: its dependencies are those of the wheel, compiled once.
# The core itself is compiled without optimisation, which takes a fifth of the time, more than its tests lose.
TESTED_CORE = ("opt-level=0", "debug-assertions=true", "overflow-checks=true", 'debug="line-tables-only"')
SETTINGS = tuple(f"--config=profile.release.package.deltalog.{line}" for line in TESTED_CORE)
UNOPTIMISED_LEAF = "--config=profile.release.package.delta-gateway-native.opt-level=0"
CORE = ("-p", "deltalog", "-p", "shared-limits", "--locked", "--release", *SETTINGS)
# Lints what is compiled for the tests; `cargo clippy` takes all dependencies anew for it.
CLIPPY = {"RUSTC_WORKSPACE_WRAPPER": "clippy-driver", "CLIPPY_ARGS": "-Dwarnings"}
# Variables that conftest.py reads: of each test its first case alone, and how many examples a property has.
FIRST_CASES, EXAMPLES = "DELTA_GATEWAY_FIRST_CASES", "DELTA_GATEWAY_EXAMPLES"
# What a clone runs beside README's lines: tests that read what lies in the checkout, and one of each kind.
QUICK_TESTS = ["tests/unit", "--ignore-glob=tests/unit/*/*", "tests/integration/writers/test_golden.py"]
# What `oldest` runs: of a server what calls each package, and the rest at night; of the doctor and client.
OLDEST_SERVER_PACKAGES = ("authentication", "database", "oidc", "storage", "routes/test_query.py")
OLDEST_SERVER_FILES = [f"{name}.py" for name in ("governance/test_grant_operations", "web/test_tracing")]
OLDEST_SERVER_TESTS = [f"tests/unit/{name}" for name in (*OLDEST_SERVER_PACKAGES, *OLDEST_SERVER_FILES)]
OLDEST_AT_NIGHT = [f"tests/unit/{name}" for name in ("catalog", "config/test_loader.py", "governance", "web")]
OLDEST_CLIENT_TESTS = ["tests/unit/client", "tests/unit/doctor", "--ignore=tests/unit/doctor/test_gateway.py"]


# The parts. Each takes pytest's arguments.
def rust(_: list[str]) -> None:
    """Lints and tests of the crates, also on the tables that the project makes."""
    # By maturin, since pyo3 is compiled anew for other settings than those that it makes.
    leaf = ["build", "--release", "--locked", *SETTINGS, UNOPTIMISED_LEAF, "--out", CACHE / "linted"]
    with tools.copied_sources() as copy:
        run(environment("project") / "maturin", *leaf, variables=CLIPPY, directory=copy)
    test_crates()
    cargo_test("--doc")


def test_crates(*arguments: str, **variables: str) -> None:
    """All tests of the crates but those of `nightly`, which cargo calls ignored."""
    variables |= {"DELTA_GATEWAY_MADE": str(made_tables())}
    # Storage is tested against the real S3 server where one can be had.
    if tools.which("go"):
        install("versitygw")
        variables["DELTA_GATEWAY_VERSITYGW"] = str(tools.program("versitygw"))
    cargo_test("--lib", "--tests", *arguments, variables=variables)


def crates(_: list[str]) -> None:
    """Lints and unit tests of the crates, but for the tests that measure the memory of a process."""
    cargo_test("--lib", "--", "--skip", "memory_tests")


def cargo_test(*arguments: str, variables: Mapping[str, str] | None = None) -> None:
    """Lints and tests of the pure crates, the core with all assertions; compiling is a step of its own."""
    command, variables = ["cargo", "test", *CORE, *arguments], {**CLIPPY, **(variables or {})}
    with tools.copied_sources() as copy:
        if "--doc" not in arguments:
            run(*takewhile("--".__ne__, command), "--no-run", variables=variables, directory=copy)
        run(*command, variables=variables, directory=copy)


def static(_: list[str]) -> None:
    """Formats, lints, types and locks: what needs no build."""
    python = environment("project")
    run(python / "ruff", "format", "--check", ".")
    run(python / "ruff", "check", ".")
    # Two at once, each of its own sources, would find one what the other has written: an error stays unseen.
    with tools.locked("mypy"):
        run(python / "mypy", "--cache-dir", CACHE / "mypy")
    run(tools.uv(), "lock", "--check", "--offline", "--no-cache", "--python", sys.executable)
    run("cargo", "fmt", "--all", "--check")
    for workspace in (ROOT, ROOT / "rust/fuzz"):
        # Fails where a lock file does not agree with the crates.
        run("cargo", "fetch", "--quiet", "--locked", directory=workspace)


def lint(arguments: list[str]) -> None:
    """The static checks, and whether `_native.pyi` matches the native module."""
    static(arguments)
    install("gateway")
    # Outside of the checkout: the installed package is compared, not the sources without their leaf.
    stubtest = [environment("project") / "stubtest", "gateway._native", "--allowlist"]
    run(*stubtest, ROOT / "tests/stubtest-allowlist.txt", directory=CACHE)


def docs(_: list[str]) -> None:
    """The documentation site; a broken link or a page outside of the navigation is a failure."""
    build = [environment("docs") / "mkdocs", "build", "--strict", "--quiet", "--site-dir", CACHE / "site"]
    run(*build, variables={"NO_MKDOCS_2_WARNING": "1"})


def unit(arguments: list[str]) -> None:
    """The first cases of unit tests of Python that start no process; with pytest's arguments all of all."""
    install("gateway")
    marks = f"{PLAIN} and not alone{'' if arguments else ' and not processes'}"
    chosen = arguments if any(word.startswith("tests/") for word in arguments) else ["tests/unit", *arguments]
    tests = [environment("project") / "pytest", "-q", "-n", "3", "--dist", "worksteal", "-m", marks, *chosen]
    # Tests of the S3 server skip where it was not built.
    run(*tests, variables={"DELTA_GATEWAY_NO_SKIPS": "", **({} if arguments else {FIRST_CASES: "1"})})


def python(arguments: list[str]) -> None:
    """All of pytest but for Spark; with pytest's arguments also `alone`, each then beside no other one."""
    install("gateway", "versitygw", "client", "tables", "browser")
    chosen = ["-n", "3", "--dist", "worksteal", f"--ignore={PIPELINE}", "--ignore=tests/deploy"]
    pytest(PLAIN if arguments else f"{PLAIN} and not alone", arguments or chosen)


def alone(arguments: list[str]) -> None:
    """The tests of pytest that measure time or a share of the machine, one at a time; most of them wait."""
    install("versitygw", "client", "tables")
    pytest(f"{PLAIN} and alone", arguments or files_of("alone"))


def stores(arguments: list[str]) -> None:
    """The tests on Azurite, on a store that verifies session tokens, and with an OpenID provider."""
    install("azurite", "openid_provider", "browser", "versitygw", "client", "engines")
    # The tests of one file share its tables.
    pytest("stores and not nightly", arguments or ["-n", "2", "--dist", "loadfile", *files_of("stores")])


def spark(arguments: list[str]) -> None:
    """The tests of Spark but for those of `jobs`; with pytest's arguments all that need a session."""
    install(*SPARK_NEEDS, *(["s3a_jars"] if "DELTA_GATEWAY_LONG_" in " ".join(os.environ) else []))
    files = [path for path in files_of("spark") if not path.startswith(PIPELINE)]
    pytest("spark and not nightly", arguments or [*files, PIPELINE, *(f"--ignore={one}" for one in OF_JOBS)])


def jobs(arguments: list[str]) -> None:
    """The tests of projections, commands and `verify`, in a Spark session of their own."""
    install(*SPARK_NEEDS)
    pytest("spark and not nightly", [*OF_JOBS, *arguments])


def nightly(arguments: list[str]) -> None:
    """What takes long to compile or to run: delta_kernel's comparisons, sessions on MinIO, large tables."""
    if not arguments:
        with tools.copied_sources() as copy:
            run("cargo", "build", *CORE, "--benches", "--examples", variables=CLIPPY, directory=copy)
        test_crates("--", "--include-ignored", PROPTEST_CASES="1024")
        oldest(OLDEST_AT_NIGHT)
    install(*SPARK_NEEDS, *NIGHT_NEEDS)
    pytest("nightly or sessions or hypothesis", arguments, {tools.WITH_MINIO: "1", EXAMPLES: "200"})


def deploy(arguments: list[str]) -> None:
    """The image, the unit, the packages and the chart, made and run as they are deployed."""
    install("helm", "promtool", "actionlint", "lintian", "release", "tables")
    pytest("deploy and not nightly", arguments or ["tests/deploy"])


def pytest(marks: str, arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
    """Runs pytest on the installed package, with the real parts that this machine can have."""
    install("gateway")
    # The script and not `-m pytest`, which would put the checkout before the installed package.
    command = [environment("project") / "pytest", "-m", marks, "--durations=15", *arguments]
    run(*command, variables=tools.no_skips() | dict(variables or {}))


def files_of(mark: str) -> list[str]:
    """The files whose text says that they have tests with a mark: to read all of them takes half a minute."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    marked = [path for path in files if any(word in path.read_text() for word in WORDS_OF_MARKS[mark])]
    return [path.relative_to(ROOT).as_posix() for path in marked]


def clone(_: list[str]) -> None:
    """README's console lines and the quick tests, in a clone with nothing beside it and a new environment."""
    install("gateway")
    checkout, limits = fresh_clone(), CACHE / "constraints.txt"
    if tools.which("go"):
        install("versitygw")
    selection = ["--all-extras", "--group", "dev", "--no-hashes", "--no-annotate"]
    run(*tools.export_command(), *selection, "--output-file", limits)
    variables = {
        "DELTA_GATEWAY_CLONE": str(checkout),
        # What the package needs comes in the versions of the lock, which a release of others does not change.
        "PIP_CONSTRAINT": str(limits),
        # Without optimisation of the core and its leaf, which other parts compile with it: minutes less.
        "MATURIN_PEP517_ARGS": f"{SETTINGS[0]} {UNOPTIMISED_LEAF}",
        **dict.fromkeys(("DELTA_GATEWAY_GOLDEN", "DELTA_GATEWAY_MADE", "PYTHONPATH"), ""),
        **tools.no_skips(),
    }
    run(sys.executable, "-m", "venv", checkout / ".venv")
    lines = [environment("project") / "pytest", "-m", "clone", "--durations=5", "tests/clone"]
    run(*lines, directory=checkout, variables=variables)
    # The quick tests run on the package that the README's line has installed.
    tests = [with_tools(checkout / ".venv"), "-P", "-m", "pytest", "-q", "-m", PLAIN, *QUICK_TESTS]
    run(*tests, directory=checkout, variables=variables | {FIRST_CASES: "1"})


def fresh_clone() -> Path:
    """What is committed, with the changes of tracked files; files that are as before keep their times."""
    if not (ROOT / ".git").exists():
        raise Missing("the sources are no git repository")
    checkout = CACHE / "clone/alone/checkout"
    if not (checkout / ".git").exists():
        run("git", "clone", "-q", ROOT, checkout)
    run("git", "fetch", "-q", "--tags", ROOT, "HEAD", directory=checkout)
    run("git", "checkout", "-q", "--force", "--detach", "FETCH_HEAD", directory=checkout)
    run("git", "clean", "-qffdx", directory=checkout)
    if changes := tools.output("git", "diff", "--binary", "HEAD"):
        say("  with the changes of tracked files that are not committed")
        subprocess.run(["git", "apply"], cwd=checkout, check=True, input=changes, text=True)
    say(f"  without: {tools.output('git', 'ls-files', '--others', '--exclude-standard')}")
    return checkout


def with_tools(directory: Path) -> Path:
    """The interpreter of an environment, with the tools of the tests after its own packages."""
    packages = f"lib/python3.{sys.version_info.minor}/site-packages"
    (directory / packages / "tools-of-the-tests.pth").write_text(f"{CACHE / 'project' / packages}\n")
    return directory / "bin/python"


def oldest(tests: list[str]) -> None:
    """On the oldest versions of the metadata the server, or some of its tests; the doctor and the client."""
    install("gateway")
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())
    # The versions of `spark` fit each other alone.
    extras = sorted(metadata["project"]["optional-dependencies"].keys() - {"spark"})
    client = [line for line in metadata["dependency-groups"]["client"] if line.startswith("delta-sharing==")]
    if not tests:
        on_oldest("oldest-client", client, OLDEST_CLIENT_TESTS)
    on_oldest("oldest-server", [f"--extra={name}" for name in extras], tests or OLDEST_SERVER_TESTS)


def on_oldest(name: str, packages: Sequence[str], tests: Sequence[str]) -> None:
    """Runs tests in an environment of the wheel with some extras, or beside other packages."""
    run(tools.uv(), "venv", "--quiet", "--clear", "--python", sys.executable, CACHE / name)
    interpreter = with_tools(CACHE / name)
    lowest = ["--resolution", "lowest-direct", "-r", ROOT / "pyproject.toml"]
    run(*tools.into(interpreter), *lowest, *packages)
    run(*tools.into(interpreter), "--no-deps", tools.built_wheel())
    marks = f"{PLAIN} and not alone and not processes"
    variables = {"DELTA_GATEWAY_NO_SKIPS": "", "PYTHONPATH": "", FIRST_CASES: "1"}
    run(interpreter, "-P", "-m", "pytest", "-q", "-m", marks, *tests, variables=variables)


def audit(_: list[str]) -> None:
    """Licences, sources and bans of the crates, and known vulnerabilities of them and of Python packages."""
    run("cargo", "deny", "--locked", "check")
    run(tools.uv(), "audit", "--locked")


_PARTS = (spark, python, deploy, stores, rust, jobs, clone, oldest, lint, docs, alone)
# In the order of the first run: `python` builds the wheel. Later the longest first, and `python` last.
DEFAULT_PARTS = [function.__name__ for function in _PARTS]
PARTS = {function.__name__: function for function in (*_PARTS, static, unit, crates, nightly, audit)}
QUICK_PARTS = ("unit", "lint", "crates")
# Two more than the processors of a small machine: parts wait for servers, stores and Spark.
PARTS_AT_A_TIME = 4
DURATION = re.compile(r"^([0-9.]+)s (?:setup|call|teardown) +(\S.*)$", re.MULTILINE)


def main() -> int:
    """Runs the chosen parts; 0 when some ran and all of those passed."""
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    arguments = words[at + 1 :]
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    about = f"quick, or of {', '.join(PARTS)}; without any: {', '.join(DEFAULT_PARTS)}"
    parser.add_argument("parts", nargs="*", metavar="PART", help=about)
    named = parser.parse_args(words[:at]).parts
    if unknown := [name for name in named if name not in {*PARTS, "quick"}]:
        parser.error(f"no such part: {', '.join(unknown)}; there are quick, {', '.join(PARTS)}")
    quick = QUICK_PARTS[:1] if arguments else QUICK_PARTS
    parts = [name for word in named or DEFAULT_PARTS for name in (quick if word == "quick" else (word,))]
    report = Report(list(dict.fromkeys(parts)))
    report.run_parts(arguments)
    return report.summarise()


class Report:
    """Which parts run, passed, failed and were skipped, with their times beside those of the last run."""

    def __init__(self, chosen: Sequence[str]) -> None:
        self.chosen = chosen
        self.ended: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
        self._lines: list[str] = []
        self._slowest: list[tuple[float, str]] = []
        self._begin = time.monotonic()
        self._running: dict[str, float] = {}
        self._logs, self._file = CACHE / "logs", CACHE / "seconds.json"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._before: dict[str, float] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def run_parts(self, arguments: list[str]) -> None:
        """Runs some parts at a time, the longest of the last run first, and last what uses all processors."""
        names = self.chosen
        if all(name in self._before for name in names):
            names = sorted(names, key=lambda name: (name == "python", -self._before[name]))
        with ThreadPoolExecutor(PARTS_AT_A_TIME) as threads:
            unfinished = {threads.submit(self._run_part, name, arguments) for name in names}
            try:
                while unfinished:
                    ended, unfinished = wait(unfinished, timeout=60)
                    for each in ended:
                        each.result()
                    self._say_progress()
            except KeyboardInterrupt:
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def _run_part(self, name: str, arguments: list[str]) -> None:
        """Runs one part into a file that is printed whole at the end; a part alone prints as it goes."""
        self._running[name] = time.monotonic()
        tools.SECONDS[get_ident()].clear()
        self._say_progress()
        if len(self.chosen) == 1:
            self._judge(name, arguments)
            return
        with (self._logs / f"{name}.log").open("w+", encoding="utf-8", errors="replace") as log:
            tools.LOGS[get_ident()] = log
            self._judge(name, arguments)
            del tools.LOGS[get_ident()]
            log.seek(0)
            text = log.read()
        self._slowest += [(float(match[1]), match[2]) for match in DURATION.finditer(text)]
        print(f"===== {name} =====\n{text}===== end of {name} =====", flush=True)

    def _judge(self, name: str, arguments: list[str]) -> None:
        """Runs a part to its end or its first failure; keeps how it ended and what its time went to."""
        state = "passed"
        try:
            PARTS[name](arguments)
        except Exception as error:  # noqa: BLE001 - the other parts run on
            is_option = isinstance(error, Missing) and not os.environ.get("DELTA_GATEWAY_NO_SKIPS")
            state = "skipped" if is_option else "failed"
            say(f"FAILED {name}: {error}" if isinstance(error, Missing | Failed) else format_exc())
            self._lines.append(f"{state} {name}: {error}")
        self.ended[state].append(name)
        seconds = time.monotonic() - self._running.pop(name)
        kinds = ", ".join(f"{kind} {clock(spent)}" for kind, spent in tools.SECONDS[get_ident()].items())
        self._lines.append(f"{self._words(name, seconds)}: {kinds or 'nothing'}")
        # Some tests of a part say nothing of its length.
        if state == "passed" and not arguments:
            self._before[name] = seconds

    def _say_progress(self) -> None:
        """Prints one line: the running parts, and how many have ended."""
        if len(self.chosen) == 1:
            return
        now, running = time.monotonic(), dict(self._running)
        words = [self._words(name, now - started) for name, started in running.items()]
        done = f"done: {sum(map(len, self.ended.values()))} of {len(self.chosen)}"
        print(f"[{clock(now - self._begin)}] running: {', '.join(words) or 'nothing'}; {done}", flush=True)

    def _words(self, name: str, seconds: float | None = None) -> str:
        """A part with its time and the time it took before, `spark (2:05 of 7:10)`."""
        times = [clock(time) for time in (seconds, self._before.get(name)) if time is not None]
        return f"{name} ({' of '.join(times)})" if times else name

    def summarise(self) -> int:
        """Prints where the time went, and which parts passed, failed and were skipped, and why."""
        slowest = sorted(self._slowest, reverse=True)[:10]
        for line in [*self._lines, *(f"{seconds:7.1f} s {test}" for seconds, test in slowest)]:
            say(line)
        if tools.golden_tables() is None:
            say(f"skipped golden tables of other implementations: {tools.GOLDEN_ABSENT}")
        if not self.ended["passed"] and not self.ended["failed"]:
            say("no test ran: every part was skipped for the reasons above")
        is_failed = bool(self.ended["failed"]) or not self.ended["passed"]
        words = [f"{state}: {', '.join(names) or 'nothing'}" for state, names in self.ended.items()]
        self._file.write_text(json.dumps(self._before))
        minutes = (time.monotonic() - self._begin) / 60
        say(f"{'FAILED' if is_failed else 'OK'} in {minutes:.1f} min; {'; '.join(words)}")
        return 1 if is_failed else 0


def clock(seconds: float) -> str:
    """Minutes and seconds, `7:05`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


if __name__ == "__main__":
    sys.exit(main())
