"""The lock, the workflows and the contributing page fit the project and its one test command."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import run
import tools
import yaml
from support.documentation import CONTRIBUTING, console_lines

from gateway.cli.command_line import parser
from gateway.server.extras import SERVER_AIOHTTP, release

ROOT = Path(__file__).resolve().parents[2]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PUBLIC = ("https://pypi.org/simple", "https://files.pythonhosted.org/packages/")
PARTS = {*run.PARTS, "quick"}
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def steps(path: Path) -> list[dict[str, object]]:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    # A job that calls another workflow has no steps of its own.
    return [step for job in jobs.values() for step in job.get("steps", [])]


def parts_named_in(text: str) -> list[str]:
    lines = re.findall(r"python3? tests/run\.py([^\n`|]*)", text)
    words = [word for line in lines for word in shlex.split(line.split(" -- ")[0], comments=True)]
    return [word for word in words if word not in {"PART", ".."}]


def test_the_lock_names_the_public_index_alone() -> None:
    text = (ROOT / "uv.lock").read_text()
    urls = re.findall(r'"(\w+://[^"]+)"', text)
    assert urls
    assert [url for url in urls if not url.startswith(PUBLIC)] == []


def test_each_file_of_the_lock_has_a_hash() -> None:
    for package in LOCK["package"]:
        if "registry" in package["source"]:
            files = [*package.get("wheels", []), *filter(None, [package.get("sdist")])]
            assert files, package["name"]
            assert all(file["hash"].startswith("sha256:") for file in files), package["name"]


def is_allowed(version: str, specifier: str) -> bool:
    """Whether `==A`, or `>=A,<B`, allows a version."""
    bounds = dict(re.findall(r"(==|>=|<)([\w.]+)", specifier))
    if "==" in bounds:
        return version == bounds["=="]
    return release(bounds[">="]) <= release(version) < release(bounds["<"])


def test_the_lock_holds_versions_that_the_project_allows() -> None:
    lines = list(PROJECT["project"]["dependencies"])
    lines += [line for lines in PROJECT["project"]["optional-dependencies"].values() for line in lines]
    lines += [line for lines in PROJECT["dependency-groups"].values() for line in lines]
    locked: dict[str, list[str]] = {}
    for package in LOCK["package"]:
        locked.setdefault(package["name"], []).append(package.get("version", ""))
    for line in lines:
        name, specifier = re.fullmatch(r"([\w.-]+)(?:\[.*\])?([=<>].*?)(?:;.*)?", line).groups()
        versions = locked[re.sub(r"[-_.]+", "-", name).lower()]
        assert any(is_allowed(version, specifier) for version in versions), line


def test_a_server_checks_the_aiohttp_that_its_extra_names() -> None:
    for extra in ("server", "demo"):
        line = PROJECT["project"]["optional-dependencies"][extra][0]
        assert line.startswith(f"aiohttp>={'.'.join(map(str, SERVER_AIOHTTP))},")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_use_actions_by_commit_and_parts_that_there_are(path: Path) -> None:
    actions = [str(step["uses"]) for step in steps(path) if "uses" in step]
    assert actions
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in actions)
    named = [part for step in steps(path) for part in parts_named_in(str(step.get("run", "")))]
    assert [part for part in named if part not in PARTS] == []


def test_workflows_run_scripts_commands_and_extras_that_there_are() -> None:
    lines = [str(step["run"]) for path in WORKFLOWS for step in steps(path) if "run" in step]
    scripts = [line for line in lines if line.startswith(".")]
    assert scripts
    assert all(os.access(ROOT / script, os.X_OK) for script in scripts)
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("delta-gateway ")]
    assert commands
    for command in commands:
        parser(command[0]).parse_args(command)
    extras = [extra for line in lines for extra in re.findall(r"\.whl\)\[(\w+)\]", line)]
    assert extras
    assert {*extras} <= PROJECT["project"]["optional-dependencies"].keys()


def test_the_workflow_runs_each_python_from_the_oldest_on() -> None:
    (job,) = [
        job
        for path in WORKFLOWS
        for job in yaml.safe_load(path.read_text())["jobs"].values()
        if "python" in job.get("strategy", {}).get("matrix", {})
    ]
    assert job["strategy"]["matrix"]["python"][0] == PROJECT["project"]["requires-python"].removeprefix(">=")


def test_the_workflow_checks_the_oldest_rust_that_the_crates_name() -> None:
    oldest = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    commands = [str(step.get("run", "")) for path in WORKFLOWS for step in steps(path)]
    assert any(f"cargo +{oldest}" in command for command in commands)


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_pages_for_contributors_name_parts_that_there_are(name: str) -> None:
    named = parts_named_in((ROOT / name).read_text(encoding="utf-8"))
    assert [part for part in named if part not in PARTS] == []


def test_the_parts_that_others_stand_for_are_there() -> None:
    assert {*run.DEFAULT_PARTS, *run.QUICK_PARTS} <= run.PARTS.keys()


def test_the_contributing_page_selects_tests_that_there_are() -> None:
    lines = console_lines(CONTRIBUTING)
    (crate, module), (folder,), (place, word) = (
        found.groups()
        for pattern in (
            r"cargo test -p (\w+) --lib (\w+)",
            r"tests/run\.py quick -- (\S+)",
            r"pytest (\S+) -k (\w+)",
        )
        for found in [re.fullmatch(rf".*?{pattern}", line) for line in lines]
        if found
    )
    manifests = [
        path for path in (ROOT / "rust").glob("*/Cargo.toml") if f'name = "{crate}"' in path.read_text()
    ]
    assert any((manifests[0].parent / "src").glob(f"{module}*"))
    assert any((ROOT / folder).glob("test_*.py"))
    assert any(word in path.name for path in (ROOT / place).glob("test_*.py"))


def test_the_contributing_page_installs_a_dependency_group_by_a_pip_that_knows_groups() -> None:
    lines = console_lines(CONTRIBUTING)
    (install,) = (line for line in lines if "--group" in line)
    assert install.split("--group ")[1] in PROJECT["dependency-groups"]
    assert lines.index("pip install -U 'pip>=25.1'") < lines.index(install)
    assert parts_named_in((ROOT / ".pre-commit-config.yaml").read_text()) == ["static"]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that the parts of tests/run.py would run; none of them runs, and all is installed."""
    shown: list[str] = []
    for module in (run, tools):
        monkeypatch.setattr(module, "run", lambda *words, **_: shown.append(" ".join(map(str, words))))
    for name in tools.INSTALLERS:
        monkeypatch.setitem(tools.INSTALLERS, name, partial(shown.append, name))
    for module in (run, tools):
        monkeypatch.setattr(module, "environment", Path)
    monkeypatch.setattr(tools, "uv", lambda: Path("uv"))
    return shown


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of the test's own."""
    for module in (run, tools):
        monkeypatch.setattr(module, "CACHE", tmp_path)
    return tmp_path


def called_with(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["run.py", *words])
    return run.main()


@pytest.mark.usefixtures("cache")
def test_one_package_is_tested_without_lints_and_without_go(
    commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert called_with(monkeypatch, "quick", "--", "tests/unit/governance") == 0
    install, tests = commands
    assert install == "gateway"
    assert tests.split()[-1] == "tests/unit/governance"
    assert "tests/unit" not in tests.split()
    commands.clear()
    called_with(monkeypatch, "quick", "--", "-k", "page")
    assert commands[-1].endswith("tests/unit -k page")


def test_parts_side_by_side_run_on_when_one_fails_and_print_what_each_has_said(
    monkeypatch: pytest.MonkeyPatch, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first_failed = threading.Event()

    def fails(_arguments: list[str]) -> None:
        first_failed.set()
        raise run.Failed("ruff ended with code 1")

    def passes(_arguments: list[str]) -> None:
        assert first_failed.wait(timeout=60)
        run.say("all tests passed")

    def breaks(_arguments: list[str]) -> None:
        raise ValueError("a fault of this file")

    monkeypatch.setattr(run, "PARTS", {"lint": fails, "docs": passes, "rust": breaks})
    assert called_with(monkeypatch, "lint", "docs", "rust") == 1
    printed = capsys.readouterr().out
    assert "FAILED lint: ruff ended with code 1\n===== end of lint" in printed
    assert "all tests passed\n===== end of docs" in printed
    assert "ValueError: a fault of this file\n\n===== end of rust" in printed
    assert "passed: docs; failed: " in printed.splitlines()[-1]
    assert json.loads((cache / "seconds.json").read_text()).keys() == {"docs"}


def test_a_unit_test_without_the_mark_starts_no_process() -> None:
    with pytest.raises(pytest.fail.Exception, match="without the mark `processes`"):
        subprocess.run(["true"], check=True)
    subprocess.run(["uname"], check=True)  # which libraries run


@pytest.mark.usefixtures("cache")
def test_a_run_in_which_every_part_was_skipped_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def needs_go(_arguments: list[str]) -> None:
        raise run.Missing("go is not installed")

    monkeypatch.delenv("DELTA_GATEWAY_NO_SKIPS", raising=False)
    monkeypatch.setattr(run, "PARTS", {"python": needs_go, "lint": lambda _arguments: None})
    assert called_with(monkeypatch, "python") == 1
    assert "no test ran" in capsys.readouterr().out
    assert called_with(monkeypatch, "lint", "python") == 0
    assert "skipped python: go is not installed" in capsys.readouterr().out
    monkeypatch.setenv("DELTA_GATEWAY_NO_SKIPS", "1")
    assert called_with(monkeypatch, "lint", "python") == 1


def test_every_dependency_group_has_an_environment() -> None:
    selected = " ".join(word for words in tools.ENVIRONMENTS.values() for word in words)
    assert [group for group in PROJECT["dependency-groups"] if group not in selected.split()] == []


@pytest.mark.usefixtures("cache")
def test_what_a_part_installs_has_an_installer(commands: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "made_tables", Path)
    # `nightly` calls it, too.
    monkeypatch.setattr(run, "oldest", list)
    for name in {*run.PARTS} - {"clone", "oldest"}:
        run.PARTS[name]([])
    assert {*tools.ENVIRONMENTS, *tools.GO_PROGRAMS, *tools.NPM_PROGRAMS} - {*commands} == {"project", "docs"}


@pytest.mark.usefixtures("cache")
def test_each_directory_of_the_pipeline_is_of_one_part(commands: list[str]) -> None:
    run.PARTS["jobs"]([])
    assert {word for word in commands[-1].split() if word.startswith(run.PIPELINE)} == {*run.OF_JOBS}
    assert all([*(ROOT / path).glob("test_*.py")] for path in run.OF_JOBS)
    run.PARTS["spark"]([])
    words = commands[-1].split()
    assert run.PIPELINE in words
    assert [word for word in words if word.startswith("--ignore")] == [
        f"--ignore={path}" for path in run.OF_JOBS
    ]


def test_the_crates_are_tested_from_the_sources_that_were_compiled(
    commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def block() -> Iterator[Path]:
        commands.append("begin")
        yield Path()
        commands.append("end")

    monkeypatch.setattr(tools, "copied_sources", block)
    run.PARTS["crates"]([])
    assert [words.split()[0] for words in commands] == ["begin", "cargo", "cargo", "end"]


@pytest.mark.usefixtures("cache")
def test_what_is_made_is_made_again_for_other_words_and_after_a_failure(tmp_path: Path) -> None:
    makings: list[str] = []

    def make(word: str, error: Exception | None = None) -> None:
        makings.append(word)
        assert [*(tmp_path / "tables").iterdir()] == []
        (tmp_path / "tables/file").touch()
        if error:
            raise error

    tools.made(tmp_path / "tables", ["a"], partial(make, "a"))
    tools.made(tmp_path / "tables", ["a"], partial(make, "a"))
    with pytest.raises(run.Failed):
        tools.made(tmp_path / "tables", ["b"], partial(make, "b", run.Failed("make ended with code 1")))
    tools.made(tmp_path / "tables", ["a"], partial(make, "a again"))
    assert makings == ["a", "b", "a again"]


def test_parts_side_by_side_start_in_their_order_or_the_longest_first_and_some_run_at_a_time(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    started: list[str] = []
    others_ended = threading.Event()

    def short(name: str) -> Callable[[list[str]], None]:
        def part(_arguments: list[str]) -> None:
            started.append(name)
            if name == "clone":
                others_ended.set()

        return part

    def long(_arguments: list[str]) -> None:
        started.append("rust")
        assert others_ended.wait(timeout=60)

    monkeypatch.setattr(run, "PARTS_AT_A_TIME", 2)
    chosen = ["rust", "docs", "spark", "clone"]
    monkeypatch.setattr(run, "PARTS", {name: short(name) for name in chosen} | {"rust": long})
    report = run.Report(chosen)
    report.run_parts([])
    # The first two threads may begin in either order.
    assert [name for name in started if name != "rust"] == ["docs", "spark", "clone"]
    assert report.ended == {"passed": ["docs", "spark", "clone", "rust"], "failed": [], "skipped": []}
    started.clear()
    (cache / "seconds.json").write_text(json.dumps({"docs": 1, "spark": 3, "clone": 2}))
    monkeypatch.setattr(run, "PARTS_AT_A_TIME", 1)
    run.Report(chosen[1:]).run_parts([])
    assert started == ["spark", "clone", "docs"]


@pytest.mark.processes
@pytest.mark.usefixtures("cache")
def test_a_command_that_does_not_end_fails_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "LONGEST_COMMAND_SECONDS", 0.1)
    monkeypatch.setitem(run.PARTS, "docs", lambda _arguments: run.run("sleep", "60"))
    assert called_with(monkeypatch, "docs") == 1


@pytest.mark.processes
@pytest.mark.usefixtures("cache")
def test_the_times_of_a_part_are_those_of_its_commands(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def part(_arguments: list[str]) -> None:
        run.run("python3", "-m", "pip", "--version")
        run.run("sh", "-c", "echo '3.25s call     tests/unit/test_x.py::test_y'")

    monkeypatch.setattr(run, "PARTS", {"docs": part, "lint": part})
    report = run.Report(["docs", "lint"])
    report.run_parts([])
    capfd.readouterr()
    assert report.summarise() == 0
    first_part, second_part, first, second, *_ = capfd.readouterr().out.splitlines()
    assert sorted(line.split(" ")[0] for line in (first_part, second_part)) == ["docs", "lint"]
    times = r"\w+ \(\d+:\d\d\): installing \d+:\d\d, tests \d+:\d\d"
    assert all(re.fullmatch(times, line) for line in (first_part, second_part))
    assert first == second == "    3.2 s tests/unit/test_x.py::test_y"


def test_tests_that_measure_time_run_in_a_part_of_their_own(
    monkeypatch: pytest.MonkeyPatch, commands: list[str], cache: Path
) -> None:
    def fails(_arguments: list[str]) -> None:
        raise run.Failed("pytest ended with code 1")

    monkeypatch.setitem(run.PARTS, "spark", fails)
    assert called_with(monkeypatch, "alone", "spark", "python") == 1
    marks = [{*line.split(" -m ")[1].split(" --")[0].split(" and ")} for line in commands if " -m " in line]
    alone, beside = sorted(marks, key=lambda words: "alone" not in words)
    assert alone - beside == {"alone"}
    assert beside - alone == {"not alone"}
    assert json.loads((cache / "seconds.json").read_text()).keys() == {"alone", "python"}
    assert called_with(monkeypatch, "docs", "--", "-k", "page") == 0
    assert json.loads((cache / "seconds.json").read_text()).keys() == {"alone", "python"}


def test_the_tests_of_the_oldest_packages_are_there() -> None:
    named = [*run.OLDEST_SERVER_TESTS, *run.OLDEST_AT_NIGHT, *run.OLDEST_CLIENT_TESTS]
    assert [name for name in named if not (ROOT / name.removeprefix("--ignore=")).exists()] == []
