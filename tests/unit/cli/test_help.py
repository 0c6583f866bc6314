"""Each command and operation describes itself, with a text for each argument and an example that parses."""

import argparse
import shlex
from collections.abc import Iterator

import pytest

from gateway.cli.command_line import COMMANDS, parser
from gateway.spark import cli as spark_commands


def subcommands(commands: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The subcommands of a parser."""
    for action in commands._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def every_command() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command and each operation of a command, by its words."""
    for name in (*COMMANDS, *spark_commands.COMMANDS):
        command = subcommands(parser(name))[name]
        yield name, command
        for operation, own in subcommands(command).items():
            yield f"{name} {operation}", own


@pytest.mark.parametrize(("name", "command"), [pytest.param(*one, id=one[0]) for one in every_command()])
def test_a_command_has_a_description_a_text_for_each_argument_and_an_example(
    name: str, command: argparse.ArgumentParser
) -> None:
    assert command.description is not None
    assert command.description.endswith(".")
    arguments = [one for one in command._actions if not isinstance(one, argparse._SubParsersAction)]
    assert [argument.dest for argument in arguments if not argument.help] == []
    assert command.epilog is not None
    first, *words = shlex.split(command.epilog.removeprefix("example:\n"))
    assert first == "delta-gateway"
    assert words[: len(name.split())] == name.split()
    assert parser(words[0]).parse_args(words).command == words[0]
    widths = [len(line) for line in (*command.description.splitlines(), *command.epilog.splitlines())]
    assert max(widths) <= 110
