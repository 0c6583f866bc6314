"""The Spark page against the code. No Spark session is needed."""

import argparse
import re
import shlex

import pytest
from support.documentation import page

from gateway.spark import cli
from gateway.spark.read.options import NAMES

PAGE = page("spark")
LINES = re.findall(r"^\$ delta-gateway (.*?)(?: +#.*)?$", PAGE, re.MULTILINE)
COMMANDS = [line for line in LINES if not line.startswith("export ")]


def test_every_option_of_a_read_is_documented() -> None:
    listed = {
        name
        for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert listed == {*NAMES} - {"path"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command: str) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    cli.add_commands(parser.add_subparsers(required=True))
    parser.parse_args(shlex.split(command))


def test_all_commands_are_documented() -> None:
    assert {shlex.split(command)[0] for command in COMMANDS} == cli.COMMANDS.keys()
