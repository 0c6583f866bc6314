"""`delta-gateway completion`: the script completes in bash, and has every command for the other shells."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.__main__ import main
from gateway.cli.command_line import COMMANDS
from gateway.cli.completion import NAME, SECOND_NAME, SHELLS
from gateway.spark import cli as spark_commands

BASH = """
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
function=$(complete -p "$1" | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function "$1" "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Path:
    """The script of a shell as a file."""
    assert main(["completion", request.param]) == 0
    path = tmp_path / f"completion.{request.param}"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.processes
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ser"], ["serve"]),
        (["recipient", "ro"], ["rotate"]),
        (["serve", "--w"], ["--workers"]),
        (["recipient", "add", "--prof"], ["--profile"]),
        (["init", "--pub"], ["--public-url"]),
        (["completion", ""], [*SHELLS]),
        (["verify", "--jun"], ["--junit"]),
        (["check", "-c", "share."], ["share.yaml"]),
        (["doctor", "--js"], ["--json"]),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", [NAME, SECOND_NAME])
@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_commands_options_and_files(
    script: Path, name: str, words: list[str], expected: list[str]
) -> None:
    (script.parent / "share.yaml").touch()
    ended = subprocess.run(
        ["bash", "-c", BASH, "bash", script, name, *words],
        cwd=script.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(expected) <= {word.strip() for word in ended.stdout.splitlines()}, ended


@pytest.mark.processes
@pytest.mark.parametrize("script", SHELLS, indirect=True)
def test_the_script_of_each_shell_has_every_command_and_no_error(script: Path) -> None:
    shell, text = script.suffix[1:], script.read_text()
    assert [name for name in (*COMMANDS, *spark_commands.COMMANDS) if name not in text] == []
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("script", "asked", "expected"),
    [
        # What zsh calls to complete a name, and what fish offers.
        (
            "zsh",
            """autoload -U compinit && compinit -D && eval "$(cat {0})" && print ${{_comps[{1}]}}""",
            "_shtab_delta_gateway",
        ),
        ("fish", "source {0}; complete -C '{1} ser'", "serve"),
    ],
    indirect=["script"],
)
@pytest.mark.parametrize("name", [NAME, SECOND_NAME])
def test_other_shells_complete_both_names(script: Path, asked: str, expected: str, name: str) -> None:
    shell = script.suffix[1:]
    assert name in script.read_text()
    if shutil.which(shell):
        ended = subprocess.run(
            [shell, "-c", asked.format(script, name)], capture_output=True, text=True, check=True
        )
        assert expected in ended.stdout, ended


def test_without_its_extra_it_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert capsys.readouterr().err == (
        "delta-gateway: the completion of shells needs the extra `completion`, which is not installed: "
        "pip install 'delta-sharing-gateway[completion]'\n"
    )
