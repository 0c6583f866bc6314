"""Commands to copy are words of a shell, whatever names they hold."""

import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from support.documentation import blocks, page, section
from tools import ROOT

from gateway.protocol.snippets import SHORT, SPARK_PACKAGE, VERSIONS, curl, file_word, short_text, snippets

NAMES = ["acme.share", "-rf.share", "--help", "a;reboot.share", "$(reboot).share", "it's.share", "`x`.share"]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_file_is_one_word_and_no_option(name: str) -> None:
    (word,) = shlex.split(file_word(name))
    assert Path(word) == Path(name)
    assert not word.startswith("-")


@pytest.mark.parametrize("name", NAMES)
def test_the_command_of_curl_reads_that_file(name: str) -> None:
    assert file_word(name) in curl(Path(name), "https://share.example/shares/a'b/all-tables")


def test_the_versions_are_those_that_the_tests_run() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {f"{name}=={version}" for name, version in VERSIONS.items()} == {
        *project["dependency-groups"]["client"]
    }
    pom = (ROOT / "tests/support/pom.xml").read_text(encoding="utf-8")
    artefact, version = (re.findall(f"<{tag}>(.+)</{tag}>", pom)[-1] for tag in ("artifactId", "version"))
    assert f"io.delta:{artefact.replace('delta-spark', 'delta-sharing-spark')}:{version}" == SPARK_PACKAGE


def test_the_guide_has_the_same_commands() -> None:
    guide = blocks(section(page("getting-started"), "Read it"), "python")
    found = {one.client: one for one in snippets("alice.share", "https://e", "sales", "sales.public.orders")}
    assert guide[:2] == [f"{found['pandas'].whole}\n", f"{found['Spark'].text}\n"]
    assert f"`{found['Spark'].setup}`" in page("getting-started")


def test_the_short_text_can_be_copied_as_it_is() -> None:
    text = short_text(Path("a.share"), "https://e", "s", "s.d.t")
    found = dict(zip(*[iter(re.split(r"^(\w+):\n", text, flags=re.MULTILINE)[1:])] * 2, strict=True))
    assert (*found,) == SHORT
    ast.parse(found["pandas"])
    ast.parse(found["Spark"])
