"""The lock, the workflows and the contributing page fit the project and its one test command."""

import os
import re
import shlex
import subprocess
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import run
import yaml
from support.documentation import CONTRIBUTING, console_lines

from gateway.cli.command_line import parser
from gateway.server.extras import SERVER_AIOHTTP, release

ROOT = Path(__file__).resolve().parents[2]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PUBLIC = ("https://pypi.org/simple", "https://files.pythonhosted.org/packages/")
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


def test_the_oldest_versions_are_the_lower_ends_of_the_ranges() -> None:
    own = run.oldest_versions(())
    server = run.oldest_versions(run.RANGED_EXTRAS)
    assert "aiohttp==3.13.4" in own
    assert "aiohttp==3.14.4" in server
    assert "aiohttp==3.13.4" not in server
    assert {"psycopg==3.2.11", "google-auth==2.45.0"} <= {*server} - {*own}
    assert {*run.RANGED_EXTRAS, "spark"} == PROJECT["project"]["optional-dependencies"].keys()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_use_actions_by_commit_and_parts_that_there_are(path: Path) -> None:
    actions = [str(step["uses"]) for step in steps(path) if "uses" in step]
    assert actions
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in actions)
    named = [part for step in steps(path) for part in parts_named_in(str(step.get("run", "")))]
    assert [part for part in named if part not in run.PARTS] == []


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
    assert [part for part in named if part not in run.PARTS] == []


def test_every_default_part_has_a_place() -> None:
    assert {*run.SIDE_BY_SIDE, "alone"} == {*run.DEFAULT_PARTS}


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
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The commands that the parts of tests/run.py would run; none of them runs."""
    shown: list[str] = []
    monkeypatch.setattr(run, "CACHE", tmp_path)
    monkeypatch.setattr(run, "run", lambda *words, **_: shown.append(" ".join(map(str, words))))
    monkeypatch.setattr(run, "which", lambda name: f"/bin/{name}" if name == "cargo" else None)
    for name in ("uv", "project_environment"):
        monkeypatch.setattr(run, name, lambda: tmp_path)
    monkeypatch.setattr(run, "install_gateway", lambda: shown.append("install"))
    return shown


def test_one_package_is_tested_without_lints_and_without_go(commands: list[str]) -> None:
    run.quick(["tests/unit/governance"])
    install, tests = commands
    assert install == "install"
    assert tests.split()[-1] == "tests/unit/governance"
    assert "tests/unit" not in tests.split()
    commands.clear()
    run.quick(["-k", "page"])
    assert commands[-1].endswith("tests/unit -k page")


def test_works_side_by_side_fail_together_and_print_what_each_has_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "CACHE", tmp_path)
    first_failed = threading.Event()

    def fails() -> None:
        first_failed.set()
        raise run.Failed("ruff ended with code 1")

    def passes() -> None:
        assert first_failed.wait(timeout=60)
        run.say("all tests passed")

    with pytest.raises(run.Failed, match="ruff"):
        run.beside({"lint": fails, "tests": passes})
    printed = capsys.readouterr().out
    assert "FAILED lint: ruff ended with code 1\n===== end of lint" in printed
    assert "all tests passed\n===== end of tests" in printed


def test_a_unit_test_without_the_mark_starts_no_process() -> None:
    with pytest.raises(pytest.fail.Exception, match="without the mark `processes`"):
        subprocess.run(["true"], check=True)
    subprocess.run(["uname"], check=True)  # which libraries run


def test_a_run_in_which_every_part_was_skipped_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.summarise(run.Outcome(skipped={"python": "go is not installed"}), 1.0) == 1
    assert "no test ran" in capsys.readouterr().out
    assert run.summarise(run.Outcome(passed=["lint"], skipped={"python": "go is not installed"}), 1.0) == 0


def test_the_audit_reads_every_environment_of_the_lock(
    commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run.urllib.request, "urlopen", lambda *_, **__: (ROOT / "uv.lock").open())
    run.audit([])
    audited = [Path(command.split()[-1]).name for command in commands if "pip-audit" in command]
    assert audited == [f"{name}-requirements.txt" for name in run.LOCKED_ENVIRONMENTS]
    selected = " ".join(command for command in commands if "export" in command)
    assert [group for group in PROJECT["dependency-groups"] if f"group {group}" not in selected] == []


def test_unreachable_advisories_of_crates_fail_where_nothing_may_be_skipped(
    commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(run, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(run.subprocess, "run", unreachable)
    monkeypatch.setenv("DELTA_GATEWAY_NO_SKIPS", "1")
    with pytest.raises(run.Missing, match="advisories"):
        run.deny([])
    monkeypatch.delenv("DELTA_GATEWAY_NO_SKIPS")
    run.deny([])
    assert "advisories" not in commands[-1].split()


def test_failing_tests_fail_the_coverage_before_rust_is_measured(
    commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*words: object, **_: object) -> None:
        commands.append(" ".join(map(str, words)))
        if "pytest -q" in commands[-1]:
            raise run.Failed("pytest ended with code 1")

    def measured(_: Path) -> None:
        raise run.Missing("llvm-tools are not installed")

    monkeypatch.setattr(run, "run", fails)
    monkeypatch.setattr(run, "rust_coverage", measured)
    for name in ("llvm_tools", "client_environment", "made_tables"):
        monkeypatch.setattr(run, name, lambda: None)
    with pytest.raises(run.Failed, match="pytest"):
        run.coverage([])
    assert any("coverage report" in command for command in commands)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """The LLVM tools on PATH with their versions; rustc uses LLVM 22 and has no tools of rustup."""
    found: dict[str, str] = {}

    def output(program: str, *arguments: str) -> str:
        if program == "rustc":
            return str(tmp_path) if "sysroot" in arguments else "release: 1.95.0\nLLVM version: 22.1.2\n"
        return f"LLVM (http://llvm.org/):\n  LLVM version {found[Path(program).name]}\n"

    for name in ("LLVM_COV", "LLVM_PROFDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(run, "output", output)
    monkeypatch.setattr(run, "which", lambda name: f"/bin/{name}" if name in found else None)
    return found


def test_the_coverage_of_rust_takes_llvm_tools_of_rustup_of_path_or_of_variables(
    installed: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed |= {"llvm-cov": "22.1.8", "llvm-profdata": "22.1.8"}
    assert run.llvm_tools() == run.LlvmTools("/bin/llvm-cov", "/bin/llvm-profdata")
    installed |= {"llvm-cov-22": "22.1.8", "llvm-profdata-22": "22.1.8"}
    assert run.llvm_tools() == run.LlvmTools("/bin/llvm-cov-22", "/bin/llvm-profdata-22")
    programs = tmp_path / "lib/rustlib/x86_64-unknown-linux-gnu/bin"
    programs.mkdir(parents=True)
    (programs / "llvm-cov").touch()
    assert run.llvm_tools() == run.LlvmTools(f"{programs}/llvm-cov", f"{programs}/llvm-profdata")
    monkeypatch.setenv("LLVM_COV", "/opt/cov")
    monkeypatch.setenv("LLVM_PROFDATA", "/opt/profdata")
    assert run.llvm_tools() == run.LlvmTools("/opt/cov", "/opt/profdata")


@pytest.mark.parametrize("version", [None, "14.0.6"])
def test_the_coverage_of_rust_is_skipped_without_tools_of_its_llvm(
    installed: dict[str, str], version: str | None
) -> None:
    if version:
        installed |= {"llvm-cov": version, "llvm-profdata": version}
    with pytest.raises(run.Missing, match=r"LLVM 22 .*rustup component add llvm-tools"):
        run.llvm_tools()


def test_parts_side_by_side_start_in_their_order_and_some_run_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "CACHE", tmp_path)
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
    parts = {name: short(name) for name in run.SIDE_BY_SIDE} | {"rust": long}
    monkeypatch.setattr(run, "PARTS", parts)
    chosen = ["clone", "spark", "docs", "rust"]
    outcome = run.Outcome()
    (stage,) = run.stages(chosen)
    run.run_stage(stage, [], run.Progress(chosen, outcome))
    assert outcome.failed == []
    # The first two threads may begin in either order.
    assert [name for name in started if name != "rust"] == ["docs", "spark", "clone"]
    assert outcome.passed[-1] == "rust"


@pytest.mark.processes
def test_a_command_that_does_not_end_fails_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LONGEST_COMMAND_SECONDS", 0.1)
    monkeypatch.setitem(run.PARTS, "docs", lambda _arguments: run.run("sleep", "60"))
    outcome = run.Outcome()
    run.run_part("docs", [], outcome)
    assert outcome.failed == ["docs"]


@pytest.mark.processes
def test_the_times_of_a_part_are_those_of_its_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "CACHE", tmp_path)

    def part(_arguments: list[str]) -> None:
        run.run("python3", "-m", "pip", "--version")
        run.run("sh", "-c", "echo '3.25s call     tests/unit/test_x.py::test_y'")

    monkeypatch.setattr(run, "PARTS", {"docs": part, "lint": part})
    outcome = run.Outcome()
    progress = run.Progress(["docs", "lint"], outcome)
    run.run_stage(["docs", "lint"], [], progress)
    assert (sorted(outcome.passed), outcome.failed) == (["docs", "lint"], [])
    capfd.readouterr()
    progress.say_times()
    *parts, first, second = capfd.readouterr().out.splitlines()
    assert sorted(line.split(" ")[0] for line in parts) == ["docs", "lint"]
    assert all("installing 0:0" in line and "tests 0:0" in line for line in parts)
    assert first == second == "    3.2 s tests/unit/test_x.py::test_y"


def test_tests_that_measure_time_run_after_all_others_though_those_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    *_, last = run.stages(run.DEFAULT_PARTS)
    assert last == ["alone"]
    selections: list[str] = []
    monkeypatch.setattr(run, "pytest", lambda marks, _arguments, needs: selections.append(marks))
    outcome = run.Outcome(failed=["python"])
    run.run_part("alone", [], outcome)
    run.python([])
    assert outcome.passed == ["alone"]
    alone, beside = (set(marks.split(" and ")) for marks in selections)
    assert alone - beside == {"alone"}
    assert beside - alone == {"not alone"}


def test_the_tests_of_the_oldest_packages_are_there() -> None:
    named = [*run.OLDEST_SERVER_TESTS, *run.OLDEST_CLIENT_TESTS]
    assert [name for name in named if not (ROOT / name.removeprefix("--ignore=")).exists()] == []
