"""`delta-gateway completion SHELL`: the script that completes commands, options and files in a shell.

In: the tree of parsers. Out: the script, made by shtab of the extra `completion`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from gateway.cli import command_line
from gateway.server.extras import check_completion_extra

SHELLS = ("bash", "zsh", "fish")
NAME, SECOND_NAME = "delta-gateway", "delta-sharing-gateway"
"""The names of the program."""
FILES, DIRECTORIES = ("FILE", "JAR"), ("DIR", "LOCATION")
"""The names of arguments that are files or directories."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"the shell: {', '.join(SHELLS)}")


def run(arguments: argparse.Namespace) -> int:
    check_completion_extra()
    import shtab  # noqa: PLC0415 - of an extra

    whole = command_line.parser(command_line.EVERY)
    for action in _actions(whole):
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in DIRECTORIES:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    sys.stdout.write(f"{_with_second_name(shtab.complete(whole, arguments.shell), arguments.shell)}\n")
    return 0


def _with_second_name(script: str, shell: str) -> str:
    """Return a script that completes both names of the program."""
    if shell == "zsh":
        # The first line for a file in `fpath`, the other for a script that is evaluated.
        for line in (f"#compdef {NAME}", f"-N {NAME}"):
            script = script.replace(f"{line}\n", f"{line} {SECOND_NAME}\n")
        return script
    if shell == "fish":
        return f"{script}\ncomplete -c {SECOND_NAME} -e\ncomplete -c {SECOND_NAME} -w {NAME}"
    registration = script.splitlines()[-1]
    return f"{script}\n{registration.removesuffix(NAME)}{SECOND_NAME}"


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse lists them nowhere else
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for command in action.choices.values():
                yield from _actions(command)
