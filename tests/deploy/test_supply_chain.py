"""The parts of a release: bill of materials, licences, equal builds, and the workflow that makes them."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
import tools
import yaml
from support.artefacts import EPOCH, needs_debian

DEPLOY = tools.ROOT / "deploy"
WORKFLOWS = tools.ROOT / ".github/workflows"

sys.path.insert(0, str(DEPLOY))
import build  # noqa: E402 - found by the line above
import components  # noqa: E402 - as above
import statements  # noqa: E402 - as above

sys.path.remove(str(DEPLOY))

OWN_CRATES = ("deltalog", "delta-gateway-native", "shared-limits")


@pytest.fixture
def dist(tmp_path, monkeypatch):
    """An empty directory in place of dist/, and a fixed time."""
    monkeypatch.setattr(build, "DIST", tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)
    return tmp_path


def made_twice(artefact, dist):
    """Make an artefact twice; return its file, whose two states are equal."""
    digests = set()
    for _ in range(2):
        build.ARTEFACTS[artefact]()
        (path,) = [path for path in dist.iterdir() if path.is_file()]
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(digests) == 1, artefact
    return path


def test_the_bill_of_materials_is_equal_twice_and_has_a_licence_and_hashes_for_each_package(dist):
    document = json.loads(made_twice("sbom", dist).read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    listed = {one["purl"]: one for one in document["components"]}
    for url, one in listed.items():
        assert one["licenses"][0]["expression"] != "unknown", url
        is_own = url.startswith(tuple(f"pkg:cargo/{name}@" for name in OWN_CRATES))
        assert is_own or one.get("hashes") or one.get("properties"), url
    references = {one["ref"] for one in document["dependencies"]}
    assert references == {*listed, document["metadata"]["component"]["bom-ref"]}


def test_the_bill_of_materials_has_what_a_server_installs_and_links_and_no_tool_of_its_tests(dist):
    build.sbom()
    (path,) = dist.iterdir()
    names = {one["purl"].partition("@")[0] for one in json.loads(path.read_text())["components"]}
    project = tomllib.loads((tools.ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"]:
        name = re.split(r"[=<>\[ ;]", requirement)[0].lower().replace("_", "-")
        assert f"pkg:pypi/{name}" in names
    assert {"pkg:cargo/deltalog", "pkg:cargo/ring", "pkg:cargo/parquet"} <= names
    assert not {"pkg:pypi/pytest", "pkg:pypi/pyspark", "pkg:cargo/proptest", "pkg:cargo/windows-sys"} & names


def test_every_licence_of_a_dependency_is_allowed(dist):
    build.licenses()
    assert "- MIT" in (dist / "LICENSES.md").read_text()


def test_the_wheel_has_the_licences_and_notices_of_the_crates_within(dist, monkeypatch):
    texts = []

    def run(*command, **_options):
        texts.extend(
            path.read_text() for path in tools.ROOT.glob("LICENSE-*") if "maturin" in str(command[0])
        )

    monkeypatch.setattr(tools, "run", run)
    build.wheel()
    (text,) = texts
    assert "Apache Arrow\nCopyright" in text
    named = {name for line in text.splitlines() for name in re.findall(r"([\w-]+) \d+\.\d+\.\d+", line)}
    crates = {one.name for one in components.rust_components(build.crates())}
    assert crates - named == set(OWN_CRATES)
    assert not list(tools.ROOT.glob("LICENSE-*"))


@pytest.mark.parametrize(
    ("expression", "is_allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("MIT OR Apache-2.0 AND GPL-3.0-only", True),
        ("(MIT OR GPL-3.0-only) AND ISC", True),
        ("(MIT OR ISC) AND GPL-3.0-only", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("MIT WITH LLVM-exception", False),
        ("MIT)", False),
        ("(MIT", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_an_expression_is_allowed_if_its_alternatives_can_be_met(expression, is_allowed):
    allowed = {"MIT", "ISC", "Apache-2.0 WITH LLVM-exception"}
    assert components.is_allowed(expression, allowed) is is_allowed


def test_no_text_of_the_wheel_names_a_directory_of_its_build():
    with zipfile.ZipFile(tools.built_wheel()) as wheel:
        texts = {name: wheel.read(name) for name in wheel.namelist() if not name.endswith(".so")}
    assert not [name for name, text in texts.items() if str(tools.CACHE).encode() in text]


def test_the_source_distribution_is_equal_twice_and_holds_every_source_of_the_wheel(dist):
    path = made_twice("sdist", dist)
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        (metadata,) = [name for name in archive.getnames() if name.endswith("/PKG-INFO")]
        described = archive.extractfile(metadata).read().decode().partition("\n\n")[2]
    assert described.strip() == statements.description().strip()
    tracked = tools.output("git", "ls-files", "gateway", "rust/core/src", "rust/native").split()
    assert set(tracked) - names == set()
    assert {"Cargo.lock", "Cargo.toml", "LICENSE", "deploy/pypi.md", "pyproject.toml"} <= names


def test_the_crate_packs_equal_twice_with_its_sources(dist):
    with tarfile.open(made_twice("crate", dist)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Cargo.toml", "src/lib.rs"} <= names


def test_the_chart_is_equal_twice(dist):
    if shutil.which("go") is None and not tools.program("helm").exists():
        pytest.skip("go is not installed")
    made_twice("chart", dist)


# Two builds take a minute; the other artefacts are made twice in each run.
@pytest.mark.nightly
def test_the_debian_package_is_equal_twice(requirements, tmp_path):
    needs_debian()
    # With one dependency: all of them take their time to compile.
    (attrs,) = re.findall(r"^attrs==(?:.*\\\n)*.*\n", requirements.read_text(), re.MULTILINE)
    (tmp_path / "requirements.txt").write_text(attrs)
    inputs = ["--wheel", tools.built_wheel(), "--requirements", tmp_path / "requirements.txt"]
    digests = set()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        make = [sys.executable, DEPLOY / "debian/package.py", *inputs, tmp_path / name]
        tools.run(*make, variables={"SOURCE_DATE_EPOCH": EPOCH})
        (package,) = (tmp_path / name).glob("*.deb")
        digests.add(hashlib.sha256(package.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_the_sums_are_those_that_sha256sum_checks(dist):
    (dist / "a").write_bytes(b"a")
    (dist / "b").write_bytes(b"b")
    build.sums()
    subprocess.run(["sha256sum", "--check", "--quiet", build.SUMS], cwd=dist, check=True)


PUBLISHED = ("release create", "imagetools create", "helm push", "uv==", "--draft=false")
"""What the last job of the release does, in order: what cannot be repeated comes late."""


def test_the_linter_of_workflows_finds_nothing():
    actionlint = [tools.program("actionlint"), "-shellcheck=", "-pyflakes="]
    checked = subprocess.run(
        [*actionlint, *WORKFLOWS.glob("*.yml")], check=False, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout


def test_every_action_is_pinned_by_its_commit():
    for path in WORKFLOWS.glob("*.yml"):
        for action in re.findall(r"uses: (\S+)", path.read_text()):
            assert action.startswith("./") or re.search(r"@[0-9a-f]{40}$", action), f"{path.name}: {action}"


def test_the_release_workflow_makes_every_artefact_by_the_same_commands():
    text = (WORKFLOWS / "release.yml").read_text()
    called = {word for line in re.findall(r"deploy/build\.py ([a-z ]+)", text) for word in line.split()}
    # The image's root file system is made in the Dockerfile.
    assert called == set(build.ARTEFACTS) - {"rootfs"}
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


def test_a_release_is_published_after_all_tests_and_artefacts_alone():
    jobs = yaml.safe_load((WORKFLOWS / "release.yml").read_text())["jobs"]
    assert {*jobs["publish"]["needs"]} == jobs.keys() - {"publish"}
    assert jobs["tests"] == {"uses": "./.github/workflows/ci.yml"}
    rights = {name for name, job in jobs.items() if "write" in job.get("permissions", {}).values()}
    assert rights == {"publish"}
    commands = [step.get("run", "") for step in jobs["publish"]["steps"]]
    order = [next(place for place, line in enumerate(commands) if word in line) for word in PUBLISHED]
    assert order == sorted(order)


def test_the_notes_are_the_dated_section_of_the_version(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "version", lambda: "1.2.0")
    monkeypatch.setenv("GITHUB_REF_NAME", "v1.2.0")
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(
        "# Changelog\n\n## 1.2.0 - 2026-12-01\n\n### A\n\n- New.\n\n## 1.1.0 - 2026-11-01\n\nOld.\n"
    )
    build.notes()
    assert capsys.readouterr().out == "### A\n\n- New.\n"
    monkeypatch.setenv("GITHUB_REF_NAME", "v1.1.0")
    with pytest.raises(SystemExit, match="another version"):
        build.notes()
    monkeypatch.setenv("GITHUB_REF_NAME", "v1.2.0")
    changelog.write_text("# Changelog\n\n## 1.2.0 - unreleased\n\nSoon.\n")
    with pytest.raises(SystemExit, match="no section"):
        build.notes()


OF_A_RELEASE = {"GITHUB_REPOSITORY": statements.repository(), "DEBEMAIL": "jo@delta-users.org"}


def test_what_the_release_says_of_itself_has_no_placeholder():
    assert list(statements.wrong(OF_A_RELEASE)) == []


@pytest.mark.parametrize(
    "address", ["", "jo", "noreply@delta-users.org", "jo@gateway.example", "jo@example.com"]
)
def test_a_release_needs_an_address_of_its_maintainer(address):
    (found,) = statements.wrong(OF_A_RELEASE | {"DEBEMAIL": address})
    assert "DEBEMAIL" in found


def test_a_release_of_another_repository_is_refused():
    found = [*statements.wrong(OF_A_RELEASE | {"GITHUB_REPOSITORY": "fork/gateway"})]
    assert {line.partition(":")[0] for line in found} == {*statements.NAMES_OF_REPOSITORY}


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("SECURITY.md", "> **Contact:** *not set: replace this line with an address.*", "not set:"),
        ("deploy/debian/control", "Maintainer: Some <noreply@gateway.example>", "noreply@"),
        ("pyproject.toml", 'authors = [{email = "team@gateway.invalid"}]', "@gateway.invalid"),
        ("README.md", "[a page](docs/other.md)", "statements.py"),
    ],
)
def test_what_has_to_be_replaced_before_a_release_is_found(name, text, what, tmp_path, monkeypatch):
    for path in {*statements.NAMES_OF_REPOSITORY, "README.md", statements.DESCRIPTION}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tools.ROOT / path, tmp_path / path)
    with (tmp_path / name).open("a") as file:
        file.write(f"\n{text}\n" if name != "pyproject.toml" else f"# {text}\n")
    monkeypatch.setattr(statements, "ROOT", tmp_path)
    found = [*statements.wrong(OF_A_RELEASE)]
    assert found
    assert any(what in line for line in found)


def test_a_check_tries_all_parts_and_names_those_that_fail(monkeypatch, capsys):
    tried = []
    parts = {"first": lambda: sys.exit("no date"), "second": lambda: tried.append("second")}
    monkeypatch.setattr(build, "CHECKED", parts)
    assert build.check() == 1
    assert tried == ["second"]
    assert "1 of 2 parts passed\n   refused: first" in capsys.readouterr().out


def test_the_versions_of_the_package_the_crates_and_the_chart_are_one():
    cargo = tomllib.loads((tools.ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    chart = yaml.safe_load((DEPLOY / "chart/Chart.yaml").read_text())
    assert {build.version(), cargo, chart["version"], chart["appVersion"]} == {build.version()}
