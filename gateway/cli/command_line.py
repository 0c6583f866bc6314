"""The commands of `delta-gateway` and their parser.

Each command is a module of `gateway.cli` with `add_arguments` and `run`; only the module of the given command
is imported.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gateway.cli.operations import Parser
from gateway.spark import cli as spark_commands

EVERY = "*"
"""In place of a command's name: every command."""


class Command(NamedTuple):
    """The texts of a command's help; the example is its arguments."""

    help: str
    description: str
    example: str


COMMANDS: Mapping[str, Command] = {
    "init": Command(
        "share the Delta tables of a directory or bucket",
        "Find Delta tables, write a configuration that shares them, and add a first recipient.\n"
        "Asks for what is not given, on a terminal. Prints how to read the share by Python, Spark and curl.",
        "s3://my-bucket/warehouse --share sales --recipient alice",
    ),
    "serve": Command(
        "serve the shares of a configuration",
        "Serve the shares of a configuration until SIGTERM or SIGINT.\n"
        "Most changes of the file take effect while the server runs.",
        "-c share.yaml --workers 2",
    ),
    "recipient": Command(
        "manage the recipients in the database, while servers run",
        "Manage the recipients in the database. Running servers see a change within a second.",
        "add acme -c share.yaml --share sales --expires 90d --profile acme.share",
    ),
    "share": Command(
        "manage the shares in the database, while servers run",
        "Manage the shares in the database, and list those of the configuration, too.\n"
        "Running servers see a change within a second.",
        "add sales -c share.yaml --comment 'Orders of all shops'",
    ),
    "table": Command(
        "manage the tables of shares in the database, while servers run",
        "Manage the tables of shares in the database. Running servers see a change within a second.",
        "add sales.public.orders s3://bucket/orders -c share.yaml",
    ),
    "export": Command(
        "print the shares and recipients of the database as YAML",
        "Print the shares and recipients of the database as YAML, without tokens and secrets.\n"
        "`delta-gateway apply` brings another database to the same state. With --tables: print the list of\n"
        "all shared tables that verify and fleet take as their configuration.",
        "-c share.yaml -o shares.yaml",
    ),
    "apply": Command(
        "bring shares and recipients of the database to the state of a file",
        "Print how shares and recipients of the database differ from a file, and change them.\n"
        "A file that is applied again changes nothing. Nothing is removed without --remove.",
        "shares.yaml -c share.yaml --dry-run",
    ),
    "token": Command(
        "make a token, its profile file and the recipient's entry",
        "Make a token, write its profile file and print the recipient's entry for gateway.recipients.\n"
        "The entry holds the hash of the token.",
        "alice -c share.yaml --shares sales --expires 90d --profile alice.share",
    ),
    "check": Command(
        "open every table and fetch a first byte of each",
        "Validate a configuration, open every table and fetch the first byte of one file of each.\n"
        "Prints the files of each table and the memory of its answers.\n"
        "Exits with 1 if a table cannot be read or a server would not start.",
        "-c share.yaml",
    ),
    "doctor": Command(
        "find out why a recipient cannot read a share",
        "Read a profile, talk to its server as clients do, and open a data file.\n"
        "Prints a line for each step, the problem and who can fix it, without tokens and signed URLs.\n"
        "Exits with 1 if a step fails.",
        "acme.share#sales.default.orders",
    ),
    "explain": Command(
        "show what predicates prune of a table",
        "Show how many files of a table each predicate prunes, with examples of the files that remain.",
        "sales.default.orders -c share.yaml --predicate \"day >= '2026-01-01'\"",
    ),
    "completion": Command(
        "print the completion of a shell",
        "Print the script that completes commands, options and files. Needs the extra `completion`.\n"
        "Write it to ~/.local/share/bash-completion/completions/delta-gateway,\n"
        "to _delta-gateway in a directory of zsh's $fpath,\n"
        "or to ~/.config/fish/completions/delta-gateway.fish.",
        "bash",
    ),
    "demo": Command(
        "share three small tables and say how to read them",
        "Write three small tables, serve them on this machine and print how to read them.",
        "--port 8080",
    ),
}
"""The commands with their help; each is a module of `gateway.cli`."""


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of a command, or of all commands, by `EVERY` with the arguments of each."""
    top = Parser(
        prog="delta-gateway",
        description="A gateway for Delta Sharing.",
        epilog="examples:\n  delta-gateway demo\n  delta-gateway serve -c share.yaml",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument(
        "--version", action=_PrintVersion, help="show version, commit, build profile and SIMD level"
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # Parsers of the others would take a third of the CPU of a short command.
    is_ours = command in COMMANDS
    for name, texts in COMMANDS.items():
        if is_ours and name != command:
            continue
        subparser = commands.add_parser(
            name,
            help=texts.help,
            description=texts.description,
            epilog=f"example:\n  delta-gateway {name} {texts.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command in (name, EVERY):
            module = importlib.import_module(f"gateway.cli.{name}")
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    if not is_ours:
        spark_commands.add_commands(commands)
    return top


class _PrintVersion(argparse.Action):
    """Prints the version of the native build and exits. Imports the native module only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from gateway.tables.native import version_text  # noqa: PLC0415 - the others start without native code

        sys.stdout.write(f"{parser.prog} {version_text()}\n")
        parser.exit()
