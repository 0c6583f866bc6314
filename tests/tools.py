"""What the parts of `run.py` need, installed into a cache outside of the tree, and how they run commands.

`install("versitygw", "client")` installs what has these names in INSTALLERS, once: test commands, parts and
pytest's workers wait for each other. Only the standard library is used.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delta-sharing-gateway"
LOCK = ROOT / "uv.lock"

# The environments of packages in uv.lock, each with what it selects of the lock.
# `client` is the official one, `release` makes artefacts, `engines` read directories, `connect` is Spark's.
ENVIRONMENTS = {
    "project": ("--all-extras", "--group", "dev"),
    **{name: ("--only-group", name) for name in ("docs", "client", "release", "engines", "connect")},
}
# Module and version. MinIO, an S3 server with sessions, is of `nightly`, the last three are of `deploy`.
GO_PROGRAMS = {
    # The S3 server of the tests: it verifies signatures, regions and the seven-day ceiling.
    "versitygw": ("github.com/versity/versitygw/cmd/versitygw", "v1.8.0"),
    "minio": ("github.com/minio/minio", "v0.0.0-20260212201848-7aac2a2c5b7c"),
    "helm": ("helm.sh/helm/v3/cmd/helm", "v3.22.0"),
    "promtool": ("github.com/prometheus/prometheus/cmd/promtool", "v0.316.0"),
    "actionlint": ("github.com/rhysd/actionlint/cmd/actionlint", "v1.7.12"),
}
# What `node` runs of each directory in tests/support, whose package-lock.json has the hashes of packages.
NPM_PROGRAMS = {
    # The Azure Blob server of the tests: it verifies Shared Key, both kinds of SAS and their times.
    "azurite": "node_modules/azurite/dist/src/blob/main.js",
    # It issues and signs access tokens.
    "openid_provider": "server.mjs",
}
# The POMs of what Maven copies: Spark with Delta, Hadoop's client of S3, an OAuth server with any claims.
JARS = {
    "jars": "tests/support/pom.xml",
    "s3a_jars": "tests/support/s3a/pom.xml",
    "oauth2_server": "tests/support/oauth2_server/pom.xml",
}
# Lists files and rows with delta_kernel, and takes longer to compile than most parts run.
KERNEL_PROGRAMS = CACHE / "kernel/target/debug"
# What a server needs that reads tables on any cloud, with recipients in any database.
SERVER_EXTRAS = ("--extra=azure", "--extra=gcp", "--extra=postgresql")
SERVER_PACKAGES = ("--no-dev", *SERVER_EXTRAS, "--no-annotate", "--no-header")

# What cargo and maturin read of a checkout.
SOURCES = (
    *("Cargo.lock", "Cargo.toml", "LICENSE", "deploy/pypi.md", "gateway", "pyproject.toml"),
    *("rust-toolchain.toml", "rust/clippy.toml", "rust/core", "rust/limits", "rust/native"),
    *("rust/fuzz/corpus", "rust/fuzz/fuzz_targets"),
)

GOLDEN_ABSENT = "DELTA_GATEWAY_GOLDEN names no directory with ANSWERS.json"
WITH_MINIO = "DELTA_GATEWAY_WITH_MINIO"

# Where the installers of Rust and Go put their tools when nobody touched PATH.
USUAL_PLACES = [Path.home() / ".cargo/bin", Path("/usr/local/go/bin"), Path.home() / "go/bin"]
# pytest ends each test that hangs, cargo does not. The tests of `nightly` take over an hour on two cores.
LONGEST_COMMAND_SECONDS = 7200


class Missing(Exception):
    """A toolchain that is not on this machine."""


class Failed(Exception):
    """A command that ended with another code than 0."""


# Of each thread, that is of a part: what it prints to in place of the standard output, and its seconds.
LOGS: dict[int, TextIO] = {}
SECONDS: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))


def say(line: str) -> None:
    """Prints at once: a build server shows these lines among those of the commands."""
    print(line, flush=True, file=LOGS.get(get_ident(), sys.stdout))


def run(*command: object, variables: Mapping[str, str] | None = None, directory: Path = ROOT) -> None:
    """Shows and runs a command; raises when it fails."""
    words = [str(word) for word in command]
    say(f"$ {' '.join(words)}"[:400])
    need(words[0])
    started, log = time.monotonic(), LOGS.get(get_ident())
    how: dict[str, Any] = {"cwd": directory, "env": environ(variables), "timeout": LONGEST_COMMAND_SECONDS}
    how |= {"stdout": log, "stderr": log and subprocess.STDOUT}
    code = subprocess.run(words, check=False, **how).returncode
    seconds = time.monotonic() - started
    SECONDS[get_ident()][kind_of(words)] += seconds
    if code:
        raise Failed(f"{Path(words[0]).name} ended with code {code} after {seconds:.0f} s")
    say(f"  {seconds:.0f} s")


def output(*command: object) -> str:
    """The standard output of a command, which is not shown."""
    how: dict[str, Any] = {"cwd": ROOT, "env": environ(), "stdout": subprocess.PIPE, "text": True}
    return str(subprocess.run([*map(str, command)], check=True, **how).stdout)


def kind_of(words: Sequence[str]) -> str:
    """What the time of a command goes to: compiling, tests, or installing what they need."""
    name = Path(words[0]).name
    if name in {"maturin", "go"} or (name == "cargo" and (words[1] != "test" or "--no-run" in words)):
        return "compiling"
    installs = name in {"npm", "mvn", "apt-get", "git", "uv"} or "pip" in words or "venv" in words
    return "installing" if installs else "tests"


def environ(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of what is run here; all steps compile into one directory in the cache."""
    own = CACHE / "project/bin/python"
    ours = {
        "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, USUAL_PLACES)]),
        "CARGO_TARGET_DIR": str(CACHE / "target"),
        # Tables of characters and the constants of all modules, which each new clone would make anew.
        "HYPOTHESIS_STORAGE_DIRECTORY": str(CACHE / "hypothesis"),
        "PYO3_PYTHON": str(own) if own.exists() else sys.executable,
        "UV_CACHE_DIR": str(CACHE / "uv-cache"),
        "UV_PYTHON_DOWNLOADS": "never",
    }
    if golden := golden_tables():
        # Cargo runs tests in the directory of their crate, where a relative name leads elsewhere.
        ours["DELTA_GATEWAY_GOLDEN"] = str(golden)
    return {**os.environ, **ours, **(variables or {})}


def which(name: str) -> str | None:
    """Where a tool is, also in the places that its installer uses."""
    return shutil.which(name, path=environ()["PATH"])


def need(name: str) -> None:
    """Raises when a tool is not on this machine."""
    if which(name) is None:
        raise Missing(f"{name} is not installed")


def no_skips() -> dict[str, str]:
    """The variable that makes a skip a failure, where no toolchain is missing."""
    return {"DELTA_GATEWAY_NO_SKIPS": "1"} if all(map(which, ("cargo", "go", "java", "mvn", "npm"))) else {}


def golden_tables() -> Path | None:
    """The golden tables of other implementations: $DELTA_GATEWAY_GOLDEN. None without them."""
    named = os.environ.get("DELTA_GATEWAY_GOLDEN")
    tables = Path(named).resolve() if named else None
    return tables if tables and (tables / "ANSWERS.json").is_file() else None


def install(*names: str) -> None:
    """Installs some of INSTALLERS, where they are not there."""
    for name in names:
        INSTALLERS[name]()


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Lets one part, pytest worker or test command make what several need, while the others wait."""
    path = CACHE / "locks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made(path: Path, words: Iterable[str], make: Callable[[], object], *, anew: bool = True) -> Path:
    """What `make` puts at a path of the cache, unless it was made whole for the same words.

    It is a directory, emptied before; with `anew=False` what lies there is changed in its place.
    """
    stamp = path.with_name(f"{path.name}.stamp")
    key = hashlib.sha256("\n".join(words).encode()).hexdigest()
    with locked(path.name):
        if not stamp.exists() or stamp.read_text() != key:
            stamp.unlink(missing_ok=True)
            if anew:
                shutil.rmtree(path, ignore_errors=True)
                path.mkdir(parents=True)
            make()
            stamp.write_text(key)
    return path


def uv() -> Path:
    """uv, in the version of uv.lock and with its hashes, by pip."""
    packages = tomllib.loads(LOCK.read_text())["package"]
    (package,) = (package for package in packages if package["name"] == "uv")
    hashes = [f"--hash={file['hash']}" for file in package["wheels"]]
    pinned = " ".join([f"uv=={package['version']}", *hashes])
    directory = CACHE / "uv"

    def by_pip() -> None:
        requirements = directory / "requirements.txt"
        requirements.write_text(pinned)
        run(sys.executable, "-m", "venv", directory)
        run(directory / "bin/python", "-m", "pip", "install", "-q", "--require-hashes", "-r", requirements)

    return made(directory, [sys.version, pinned], by_pip) / "bin/uv"


def environment(name: str) -> Path:
    """The scripts of one of ENVIRONMENTS, made, or updated in its place when the lock changed."""
    selection = ENVIRONMENTS[name]
    options = ["--quiet", "--locked", "--no-install-project", "--inexact", "--compile-bytecode"]

    def sync() -> None:
        places = {"UV_PROJECT_ENVIRONMENT": str(CACHE / name)}
        run(uv(), "sync", *options, "--python", sys.executable, *selection, variables=places)

    return made(CACHE / name, [sys.version, LOCK.read_text(), *selection], sync, anew=False) / "bin"


def export_command() -> list[object]:
    """Writes packages of uv.lock as pip's requirements; asks no index."""
    options = ["--quiet", "--locked", "--offline", "--no-cache", "--no-emit-project"]
    return [uv(), "export", *options, "--python", sys.executable]


def texts_of(directory: Path, *names: str) -> dict[Path, bytes]:
    """The contents of files and of all files of directories, without what Python and builds add there."""
    found = (path for name in names for path in (directory / name, *(directory / name).rglob("*")))
    files = sorted(path for path in found if path.is_file() and path.suffix not in {".so", ".pyc"})
    return {path.relative_to(directory): path.read_bytes() for path in files}


@contextmanager
def copied_sources() -> Iterator[Path]:
    """The sources at a place that stays, for one block at a time: cargo compiles other places again."""
    copy, texts = CACHE / "sources", texts_of(ROOT, *SOURCES)
    with locked("sources"):
        there = texts_of(copy, "")
        # Files that are equal keep their times.
        changed = {name for name in there.keys() | texts.keys() if there.get(name) != texts.get(name)}
        for name in changed & there.keys():
            (copy / name).unlink()
        for name in changed & texts.keys():
            # A file may have been a directory.
            shutil.rmtree(copy / name, ignore_errors=True)
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(texts[name])
        try:
            yield copy
        finally:
            # The seeds of failed properties come into the checkout.
            for name, text in texts_of(copy, "").items():
                if "proptest-regressions" in name.parts and text != texts.get(name):
                    (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
                    (ROOT / name).write_bytes(text)


def install_gateway() -> None:
    """Builds the wheel in release mode and installs it, when a source of it changed, in any checkout."""
    scripts, wheels = environment("project"), CACHE / "wheels"

    def build() -> None:
        shutil.rmtree(wheels, ignore_errors=True)
        need("cargo")
        with copied_sources() as copy:
            run(scripts / "maturin", "build", "--release", "--locked", "--out", wheels, directory=copy)
        # Each process of a test would compile it where Python may write no bytecode.
        options = ["--no-deps", "--reinstall", "--compile-bytecode"]
        run(*into(scripts / "python"), *options, built_wheel())

    words = (f"{name}\0{text.hex()}" for name, text in texts_of(ROOT, *SOURCES).items())
    made(CACHE / "project/gateway", words, build, anew=False)


def built_wheel() -> Path:
    """The wheel that `install_gateway` has built."""
    (wheel,) = (CACHE / "wheels").glob("*.whl")
    return wheel


def into(python: Path) -> list[object]:
    """Installs packages into the environment of an interpreter."""
    return [uv(), "pip", "install", "--quiet", "--python", python]


def program(name: str) -> Path:
    """Where a program of GO_PROGRAMS or NPM_PROGRAMS is, once it was installed."""
    if name in NPM_PROGRAMS:
        return CACHE / name / NPM_PROGRAMS[name]
    return CACHE / "bin" / f"{name}-{GO_PROGRAMS[name][1]}"


def go_program(name: str) -> None:
    """Builds a program of GO_PROGRAMS: without C and debug information, which takes half of the time."""
    module, version = GO_PROGRAMS[name]
    scratch = CACHE / "bin" / f"scratch-{name}"
    variables = {"GOBIN": str(scratch), "CGO_ENABLED": "0"}
    # Without the clients of clouds that promtool would ask for the targets of a configuration.
    options = ["-trimpath", "-ldflags=-s -w", "-tags=remove_all_sd"]
    with locked(name):
        if not program(name).exists():
            run("go", "install", *options, f"{module}@{version}", variables=variables)
            (scratch / module.rpartition("/")[2]).rename(program(name))


def npm_program(name: str) -> None:
    """Installs the packages of a program of NPM_PROGRAMS, and copies its own files beside them."""
    directory, source = CACHE / name, ROOT / "tests/support" / name
    files = sorted(source.iterdir())

    def from_npm() -> None:
        shutil.copytree(source, directory, dirs_exist_ok=True)
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        run("npm", "ci", *options, directory=directory)

    made(directory, [path.read_text() for path in files], from_npm)


def jars(name: str) -> None:
    """Copies the dependencies of a POM of JARS."""
    pom = ROOT / JARS[name]
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={CACHE / name}"]
    made(CACHE / name, [pom.read_text()], lambda: run("mvn", "-B", "-q", "-f", pom, *copy))


def debian_program(*names: str) -> None:
    """Gets the first of some programs by apt, when this is Debian, we are root, and none of them is there."""
    if any(map(which, names)) or os.geteuid() != 0 or which("apt-get") is None:
        return
    variables = {"DEBIAN_FRONTEND": "noninteractive"}
    get = ["apt-get", "install", "--yes", "--no-install-recommends", names[0]]
    with locked("apt"):
        try:
            run("apt-get", "update", "--quiet", variables=variables)
            run(*get, variables=variables)
        except Failed as failure:
            say(f"  no {names[0]}: {failure}")


def kernel() -> None:
    """Builds KERNEL_PROGRAMS without optimisation: they read small tables, and tests wait for them."""
    variables = {"CARGO_TARGET_DIR": str(KERNEL_PROGRAMS.parent)}
    build = ["cargo", "build", "--locked", "--bin", "kernel-files", "--bin", "kernel-rows"]
    run(*build, directory=ROOT / "bench/kernel", variables=variables)


def made_tables(python: Path | None = None) -> Path:
    """The project's own tables with their ANSWERS.json, made by a Python that has the development group."""
    tests, directory = ROOT / "tests", CACHE / "tables"
    names = [f"tables/{name}" for name in ("make", "writer", "by_hand", "by_deltalake", "random_logs")]
    makers = [tests / f"{name}.py" for name in (*names, "support/reference", "support/deletion_vectors")]
    writers = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]

    def make() -> None:
        maker = python or environment("project") / "python"
        run(maker, tests / "tables/make.py", directory, variables={"PYTHONPATH": str(tests)})

    return made(directory, [str(directory), *writers, *(path.read_text() for path in makers)], make)


INSTALLERS: Mapping[str, Callable[[], object]] = {
    **{name: partial(environment, name) for name in ENVIRONMENTS},
    **{name: partial(go_program, name) for name in GO_PROGRAMS},
    **{name: partial(npm_program, name) for name in NPM_PROGRAMS},
    **{name: partial(jars, name) for name in JARS},
    "browser": partial(debian_program, "chromium", "chromium-browser", "google-chrome"),
    "lintian": partial(debian_program, "lintian"),
    "java": partial(need, "java"),
    "kernel": kernel,
    "tables": made_tables,
    "gateway": install_gateway,
}
