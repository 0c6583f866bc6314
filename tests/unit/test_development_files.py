"""The lock, the workflows and the contributing page fit the project and its one test command."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import run
import yaml

ROOT = Path(__file__).resolve().parents[2]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PUBLIC = ("https://pypi.org/simple", "https://files.pythonhosted.org/packages/")
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def steps(path: Path) -> list[dict[str, object]]:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


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


def test_the_lock_holds_the_versions_that_the_project_pins() -> None:
    lines = list(PROJECT["project"]["dependencies"])
    lines += [line for lines in PROJECT["project"]["optional-dependencies"].values() for line in lines]
    lines += [line for lines in PROJECT["dependency-groups"].values() for line in lines]
    locked = {(package["name"], package["version"]) for package in LOCK["package"]}
    for line in lines:
        name, version = line.split("==")
        assert (re.sub(r"[-_.]+", "-", name).lower(), version) in locked, line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_use_actions_by_commit_and_parts_that_there_are(path: Path) -> None:
    actions = [str(step["uses"]) for step in steps(path) if "uses" in step]
    assert actions
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in actions)
    named = [part for step in steps(path) for part in parts_named_in(str(step.get("run", "")))]
    assert [part for part in named if part not in run.PARTS] == []


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


def test_every_part_runs_by_default_or_is_described_for_contributors() -> None:
    described = re.findall(r"\w+", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert [part for part in run.PARTS if part not in described] == []
    lanes = [part for lane in run.SIDE_BY_SIDE for part in lane]
    assert {*lanes, "python"} == {*run.DEFAULT_PARTS}
