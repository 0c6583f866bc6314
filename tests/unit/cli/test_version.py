"""`delta-gateway --version`: what exactly is installed, for reports of defects."""

import re
import tomllib
from importlib.metadata import version

import pytest
from tools import ROOT

from gateway import _native
from gateway.__main__ import main


def test_the_version_names_commit_profile_and_vector_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    found = re.fullmatch(
        r"delta-gateway (\S+) \(commit ([0-9a-f]{7,40}(?:-dirty)?|unknown), (debug|release) build, "
        r"SIMD (AVX-512|AVX2\+SHA|AVX2|SHA|SSE2|portable)\)\n",
        printed,
    )
    assert found, printed
    assert found[1] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (found[3] == "debug") == _native.is_debug_build()


def test_python_package_and_native_module_have_one_version() -> None:
    try:
        installed = version("delta-sharing-gateway")
    except ModuleNotFoundError:
        pytest.skip("the package is not installed: tests/run.py does it")
    assert _native.build()[0] == installed


def test_both_commands_are_the_same_function() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == {"delta-gateway", "delta-sharing-gateway"}
    assert len(set(scripts.values())) == 1
