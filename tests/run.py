"""The one test command: installs what the tests need, caches it outside of the tree, runs everything.

    python3 tests/run.py                    all parts
    python3 tests/run.py rust lint          some of them
    python3 tests/run.py python -- -k pages pytest's own arguments after a double dash

Needs Python 3.11 or newer; a Rust toolchain for everything; Go for the S3 server; Java 17 and Maven for
Spark. A part whose toolchain is missing is skipped, and the last lines say which and why. Where no toolchain
is missing, a test that skips itself is a failure, so nothing is left out silently. Only the standard library
is used here.

DELTA_GATEWAY_GOLDEN=DIR names a directory with golden tables of other implementations and their ANSWERS.json,
an option: the tests that need them skip without it, in every part, and the last lines say so.

The cache is $XDG_CACHE_HOME/delta-sharing-gateway, without the variable ~/.cache/delta-sharing-gateway;
deleting it is always safe.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delta-sharing-gateway"

VERSITYGW = "v1.8.0"
# In an environment of its own: it pins older aiohttp and pyarrow than the gateway uses.
OFFICIAL_CLIENT = ["delta-sharing==1.4.2"]
JAVA = range(17, 22)
# Of each fuzz target. What hangs or takes more memory is a finding too.
FUZZ_LIMITS = ["-max_total_time=5", "-timeout=10", "-rss_limit_mb=1024", "-verbosity=0"]

# What a clone runs beside README's lines: tests that read what lies in the checkout, and one of each kind.
QUICK_TESTS = [
    f"tests/{name}.py"
    for name in (
        "unit/test_checkout",
        "unit/config/test_config",
        "unit/routes/test_error_rows",
        "unit/test_house",
        "unit/test_layers",
        "unit/test_documentation",
        "unit/routes/test_query",
        "integration/writers/test_golden",
        "properties/test_twin",
    )
]
QUICK_RUST_TESTS = ["checkpoint", "deletion_vector"]
GOLDEN_ABSENT = "DELTA_GATEWAY_GOLDEN names no directory with ANSWERS.json"

# Where the installers of Rust and Go put their tools when nobody touched PATH.
USUAL_PLACES = [Path.home() / ".cargo/bin", Path("/usr/local/go/bin"), Path.home() / "go/bin"]


class Missing(Exception):
    """A toolchain that is not on this machine."""


class Failed(Exception):
    """A command that ended with another code than 0."""


@dataclass
class Outcome:
    """What became of the parts that were asked for."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def main() -> int:
    """Runs the parts that were asked for; 0 when all that ran passed."""
    ours, pytest_arguments = split_at_double_dash(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all without any")
    chosen = parser.parse_args(ours).parts or list(PARTS)
    if unknown := [part for part in chosen if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    started = time.monotonic()
    CACHE.mkdir(parents=True, exist_ok=True)
    outcome = Outcome()
    for part in chosen:
        run_part(part, pytest_arguments, outcome)
    return summarise(outcome, time.monotonic() - started)


def split_at_double_dash(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before and after the first `--`."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


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


def summarise(outcome: Outcome, seconds: float) -> int:
    """Prints what ran, what did not and why."""
    for part, reason in outcome.skipped.items():
        say(f"skipped {part}: {reason}")
    if golden_tables() is None:
        say(f"skipped golden tables of other implementations: {GOLDEN_ABSENT}")
    words = [f"passed: {', '.join(outcome.passed) or 'nothing'}"]
    words.append(f"failed: {', '.join(outcome.failed) or 'nothing'}")
    words.append(f"skipped: {', '.join(outcome.skipped) or 'nothing'}")
    say(f"{'FAILED' if outcome.failed else 'OK'} in {seconds / 60:.1f} min; {'; '.join(words)}")
    return 1 if outcome.failed else 0


# The parts


def rust(_: list[str]) -> None:
    """Format, lints and tests of the crates, also on the tables that the project makes."""
    need_tool("cargo", "https://rustup.rs")
    variables = {"DELTA_GATEWAY_MADE": str(made_tables())}
    run("cargo", "fmt", "--all", "--check")
    run("cargo", "clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings")
    # Storage is tested against the real S3 server where one can be had.
    if which("go"):
        variables["DELTA_GATEWAY_VERSITYGW"] = str(versitygw())
    run("cargo", "test", "-p", "deltalog", "--locked", variables=variables)


def lint(_: list[str]) -> None:
    """Format, lints and types of the Python code, and whether `_native.pyi` tells the truth."""
    python = project_environment()
    run(python / "ruff", "format", "--check", ".")
    run(python / "ruff", "check", ".")
    run(python / "mypy")
    install_gateway()
    # Outside of the checkout: the installed package is compared, not the sources without their leaf.
    allow_list = ROOT / "tests/stubtest-allowlist.txt"
    run(python / "stubtest", "gateway._native", "--allowlist", allow_list, directory=CACHE)


def docs(_: list[str]) -> None:
    """The documentation site; a broken link or a page outside of the navigation is a failure."""
    variables = {"NO_MKDOCS_2_WARNING": "1"}
    build = [docs_environment() / "mkdocs", "build", "--strict", "--quiet", "--site-dir", CACHE / "site"]
    run(*build, variables=variables)


def fuzz(_: list[str]) -> None:
    """Each fuzz target for some seconds, from the kept seeds and what earlier runs found beside them."""
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
    """All of pytest but for Spark: a real S3 server, the official client, made tables, properties."""
    needs = (versitygw, client_environment, build_kernel_program, made_tables)
    pytest("not spark and not clone", pytest_arguments, needs=needs)


def spark(pytest_arguments: list[str]) -> None:
    """The tests that need a Spark session, in a process of their own: the JVM is as large as all others."""
    needs = (java, spark_jars, versitygw, client_environment, build_kernel_program, made_tables)
    pytest("spark", pytest_arguments, needs=needs)


def clone(_: list[str]) -> None:
    """README's console lines and the quick tests, in a clone with nothing beside it and a new environment."""
    need_tool("git", "https://git-scm.com")
    need_tool("cargo", "https://rustup.rs")
    project, checkout = project_environment(), fresh_clone()
    install_gateway()
    if which("go"):
        versitygw()
    own, target = checkout / ".venv", CACHE / "clone/target"
    if not target.exists() and (CACHE / "target/release").exists():
        # Of its own, since pyo3 compiles once more for each interpreter; the other crates are the same.
        shutil.copytree(CACHE / "target/release", target / "release", symlinks=True)
    nothing = dict.fromkeys(("DELTA_GATEWAY_GOLDEN", "DELTA_GATEWAY_MADE", "PYTHONPATH"), "")
    variables = {"DELTA_GATEWAY_CLONE": str(checkout), **nothing, **no_skips()}
    build = {"CARGO_TARGET_DIR": str(target), "PYO3_PYTHON": str(own / "bin/python")}
    run(sys.executable, "-m", "venv", own)
    lines = [project / "pytest", "-m", "clone", "--durations=5", "tests/clone"]
    run(*lines, directory=checkout, variables=variables | build)
    # The quick tests run on the package that the README's line has installed, by the tools of the project's
    # environment, which come after it.
    (tools,) = (CACHE / "project/lib").glob("python*/site-packages")
    (packages,) = (own / "lib").glob("python*/site-packages")
    (packages / "tools-of-the-tests.pth").write_text(f"{tools}\n")
    quick = [own / "bin/python", "-P", "-m", "pytest", "-q", "-m", "not spark and not clone", *QUICK_TESTS]
    run(*quick, directory=checkout, variables=variables)
    tests = ["cargo", "test", "-q", "-p", "deltalog", "--lib", "--locked", "--", *QUICK_RUST_TESTS]
    run(*tests, directory=checkout, variables=variables)


PARTS: Mapping[str, Callable[[list[str]], None]] = {
    "rust": rust,
    "fuzz": fuzz,
    "lint": lint,
    "docs": docs,
    "python": python,
    "spark": spark,
    "clone": clone,
}


def pytest(marks: str, arguments: list[str], needs: Iterable[Callable[[], object]]) -> None:
    """Runs pytest on the installed package, with the real parts that this machine can have."""
    environment = project_environment()
    for need in needs:
        need()
    install_gateway()
    variables = no_skips()
    # The script and not `-m pytest`, which would put the checkout before the installed package.
    run(environment / "pytest", "-m", marks, "--durations=15", *arguments, variables=variables)


# What they need


def project_environment() -> Path:
    """The scripts of an environment with the project's dependencies, its development group and its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [
        line for lines in project["project"].get("optional-dependencies", {}).values() for line in lines
    ]
    wanted = project["project"]["dependencies"] + extras + project["dependency-groups"]["dev"]
    return virtual_environment("project", wanted)


def docs_environment() -> Path:
    """The scripts of an environment with what builds the documentation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return virtual_environment("docs", project["dependency-groups"]["docs"])


def client_environment() -> Path:
    """The scripts of an environment with the official Python client."""
    return virtual_environment("client", OFFICIAL_CLIENT)


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


def virtual_environment(name: str, requirements: list[str]) -> Path:
    """Makes an environment, or updates it in place when its requirements changed."""
    directory = CACHE / name
    scripts = directory / "bin"
    key = digest([sys.version, *sorted(requirements)])
    if fresh(directory, key):
        return scripts
    made_by = CACHE / f"{name}-python"
    if not fresh(made_by, sys.version):
        run(sys.executable, "-m", "venv", "--clear", directory)
        remember(made_by, sys.version)
    run(scripts / "python", "-m", "pip", "install", "-q", *requirements)
    remember(directory, key)
    return scripts


def install_gateway() -> None:
    """Builds the wheel in release mode and installs it, when a source of it changed."""
    environment = project_environment()
    sources = ["pyproject.toml", "Cargo.toml", "Cargo.lock", "README.md"]
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


def is_source(path: Path) -> bool:
    """Whether a change of this file changes the wheel."""
    parts = path.relative_to(ROOT).parts
    return path.is_file() and path.suffix not in {".so", ".pyc"} and not {"target", "fuzz"} & {*parts}


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


def kernel_program() -> Path:
    """Where the program is that lists files with delta_kernel, once it was built."""
    return CACHE / "kernel/target/debug/kernel-files"


def build_kernel_program() -> None:
    """Builds it without optimisation: it is asked for small tables, and waited for when it is built."""
    need_tool("cargo", "https://rustup.rs")
    variables = {"CARGO_TARGET_DIR": str(CACHE / "kernel/target")}
    crate = ROOT / "bench/kernel"
    run("cargo", "build", "--locked", "--bin", "kernel-files", directory=crate, variables=variables)


def spark_jars() -> Path:
    """The jars that Spark needs to read and write Delta tables."""
    pom = ROOT / "tests/support/pom.xml"
    directory = CACHE / "jars"
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
    return [tool for tool in ("cargo", "go", "java", "mvn") if which(tool) is None]


def golden_tables() -> Path | None:
    """The golden tables of other implementations: $DELTA_GATEWAY_GOLDEN. None without them."""
    named = os.environ.get("DELTA_GATEWAY_GOLDEN")
    tables = Path(named).resolve() if named else None
    return tables if tables and (tables / "ANSWERS.json").is_file() else None


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
    code = subprocess.run(words, check=False, cwd=directory, env=environ(variables)).returncode
    if code:
        raise Failed(f"{Path(words[0]).name} ended with code {code} after {time.monotonic() - started:.0f} s")
    say(f"  {time.monotonic() - started:.0f} s")


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
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
