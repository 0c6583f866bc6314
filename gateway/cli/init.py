"""`delta-gateway init`: from a directory or bucket with Delta tables to a share that one recipient can read.

In: five answers, by arguments or on a terminal. Out: a configuration that `delta-gateway check` passes, a key
for tokens, the recipients' database and a profile, and the commands that read the share. Everything is
checked before the first file is written.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gateway.cli import first_share
from gateway.cli.check import Finding, check
from gateway.cli.first_share import NamedTable, S3Address, Server
from gateway.cli.serve import serve_file
from gateway.cli.share_files import KEY_BYTES, InitError, ShareFiles
from gateway.cli.storage_errors import explain_error
from gateway.config import Location, loads
from gateway.config.checks import check_url
from gateway.config.errors import Invalid
from gateway.encoding import is_utf_8
from gateway.governance.recipient_records import DEFAULT_LIFE_SECONDS, RecipientError
from gateway.protocol.snippets import file_word, short_text
from gateway.report.text import printable
from gateway.server.extras import check_server_extra
from gateway.server.listeners import bind
from gateway.state import GatewayState
from gateway.storage.aws.credentials import default_region
from gateway.storage.credentials import CredentialsUnavailable
from gateway.tables.native import LogError
from gateway.tables.search import MAX_DEPTH, Search, find_tables
from gateway.times import DAY_SECONDS

T = TypeVar("T")
DEFAULT_PORT, MAX_PORT = 8080, 65535
ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
HISTORY_QUESTION = "Share older versions, changes and streams of the tables too (yes or no)?"
SHOWN_FEEDS = 5
YES, NO = ("y", "yes"), ("n", "no")


@dataclass(frozen=True, slots=True)
class Answers:
    """The choices of the operator."""

    tables: list[NamedTable]
    feeds: list[str]
    """The tables that record their changes, by their names in the share."""
    share: str
    history_shared: bool
    recipient: str
    serve: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "location",
        nargs="?",
        metavar="LOCATION",
        help=f"a Delta table, or a directory, bucket or container with tables up to {MAX_DEPTH} levels below",
    )
    parser.add_argument("--share", metavar="NAME", help="the share; default: the name of the directory")
    parser.add_argument(
        "--history",
        action=argparse.BooleanOptionalAction,
        help="share older versions, changes and streams of the tables, or the latest version alone",
    )
    parser.add_argument("--recipient", metavar="NAME", help="the first recipient")
    parser.add_argument(
        "--serve", action=argparse.BooleanOptionalAction, help="serve the share until Ctrl-C, or do not"
    )
    parser.add_argument(
        "-c",
        "--config",
        type=Path,
        default=Path("share.yaml"),
        metavar="FILE",
        help="the configuration to write; default: share.yaml",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace an existing configuration, profile and token"
    )
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, metavar="N", help=f"the port; default: {DEFAULT_PORT}"
    )
    parser.add_argument(
        "--public-url",
        metavar="URL",
        help="scheme and host by which recipients on other machines reach the server",
    )
    parser.add_argument("--region", metavar="NAME", help="the bucket's region; default: of the environment")
    parser.add_argument("--endpoint", metavar="URL", help="the URL of an S3-compatible store; default: AWS")


def run(arguments: argparse.Namespace) -> int:
    if arguments.port == 0:
        raise InitError("--port 0 would be another port at each start; give the port that recipients use")
    if not 0 < arguments.port <= MAX_PORT:
        raise InitError(f"--port {arguments.port} is no port; give a number from 1 to {MAX_PORT}")
    files = ShareFiles(arguments.config, arguments.force)
    files.check_configuration()
    endpoint = arguments.endpoint or next(filter(None, map(os.environ.get, ENDPOINT_VARIABLES)), None)
    for option, url in (("--public-url", arguments.public_url), ("--endpoint", arguments.endpoint)):
        try:
            check_url(option, url)
        except Invalid as invalid:
            raise InitError(f"{option}: {invalid}") from None
    address = S3Address(arguments.region or default_region(os.environ), endpoint)
    server = Server(arguments.port, arguments.public_url, address)
    with quiet_logs():
        answers = ask(arguments, files, server)
        if answers.serve:
            check_server_extra()
            check_port(server)
        key = {"secretFile": files.token_key.name}
        text = server.configuration(answers.share, answers.tables, key, history_shared=answers.history_shared)
        config = files.write(text, answers.share, answers.recipient)
    profile = files.profile(answers.recipient)
    table = f"{answers.share}.{answers.tables[0].full_name}"
    sys.stdout.write(
        f"Wrote {files.configuration} with the share {answers.share}, its token key {files.token_key.name}, "
        f"{files.recipients_database.name}, and {profile.name} with the token of {answers.recipient}, "
        f"which ends after {DEFAULT_LIFE_SECONDS // DAY_SECONDS} days.\n"
        f"{history_text(answers)}\n\n"
        f"{short_text(profile, config.endpoint_url, answers.share, table)}"
    )
    if not answers.serve:
        sys.stdout.write(f"\nServe: delta-gateway serve -c {file_word(str(files.configuration))}\n")
        return 0
    sys.stdout.write(f"\nServing {config.endpoint_url} until Ctrl-C.\n")
    sys.stdout.flush()
    serve_file(files.configuration)
    return 0


def check_port(server: Server) -> None:
    """Raise OSError for an address that a server cannot listen on, before a file names it."""
    for listener in bind(server.host, server.port, 1):
        listener.close()


# Questions


def ask(arguments: argparse.Namespace, files: ShareFiles, server: Server) -> Answers:
    """Return the answers, of the command line or of the terminal. Raises InitError."""
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    given = (("LOCATION", arguments.location), ("--recipient NAME", arguments.recipient))
    missing = [name for name, value in given if value is None]
    if missing and not is_terminal:
        raise InitError(
            f"the standard input is no terminal to ask on: give {' and '.join(missing)} on the command line"
        )

    def recipient(name: str) -> str:
        files.check_profile(name)
        return name

    tables_found = answer(
        arguments.location,
        "Where are the tables (a directory, or s3://bucket/prefix)?",
        ".",
        lambda text: search(location_of(text), server),
    )
    tables, feeds = readable(first_share.named_tables(tables_found.tables), server)
    share = first_share.default_share(tables_found.location, tables_found.tables)
    return Answers(
        tables,
        feeds,
        answer(
            share if arguments.share is None and not is_terminal else arguments.share,
            "The name of the share?",
            share,
            first_share.check_share_name,
        ),
        history_shared=arguments.history
        if arguments.history is not None
        else is_terminal and answer(None, HISTORY_QUESTION, "no", yes_or_no),
        recipient=answer(arguments.recipient, "The name of the first recipient?", "me", recipient),
        serve=arguments.serve
        if arguments.serve is not None
        else is_terminal and answer(None, "Serve the share now (yes or no)?", "yes", yes_or_no),
    )


def history_text(answers: Answers) -> str:
    """Return what was decided about the history of the tables."""
    if answers.history_shared:
        return "The history is shared: recipients read older versions, changes and streams, too."
    text = (
        "The history is not shared: recipients read the latest version alone. For older versions, changes "
        "and streams, write `historyShared: true` beside the location of a table, or give --history."
    )
    if not answers.feeds:
        return text
    shown = ", ".join(answers.feeds[:SHOWN_FEEDS])
    more = f" and {len(answers.feeds) - SHOWN_FEEDS} more" if len(answers.feeds) > SHOWN_FEEDS else ""
    return f"{text}\nWith a change data feed, which is not shared: {shown}{more}."


def answer(given: str | None, question: str, default: str, parse: Callable[[str], T]) -> T:
    """Return the parsed argument or answer. An answer that cannot be parsed is asked for again."""
    if given is not None:
        try:
            return parse(given)
        except (RecipientError, ValueError) as error:
            raise InitError(str(error)) from None
    while True:
        try:
            text = input(f"{question} [{default}] ").strip() or default
        except EOFError:
            raise InitError("the input ended before the last answer; nothing was written") from None
        try:
            return parse(text)
        except (RecipientError, ValueError, OSError) as error:
            sys.stdout.write(f"  {error}\n")


def yes_or_no(text: str) -> bool:
    """Parse yes or no. Raises ValueError."""
    if text.lower() in YES + NO:
        return text.lower() in YES
    raise ValueError(f"'{text}' is neither yes nor no")


def location_of(text: str) -> Location:
    """Return the location of a URL, or of a directory relative to the current one. Raises ValueError."""
    if not text:
        raise ValueError("the location is empty; '.' is the current directory")
    if "://" in text or text.startswith("file:"):
        location = Location.parse(text)
        if location.lacks_account or location.is_in_unknown_cloud:
            raise ValueError(
                f"{location.bucket_url} is in no known account; give "
                f"abfss://{location.bucket}@account.dfs.core.windows.net/..."
            )
        return location
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"the home directory in '{text}' is not known; give the absolute path") from None
    # Links stay as they are, because they may point elsewhere tomorrow.
    path = path.resolve() if ".." in path.parts else path.absolute()
    if not is_utf_8(str(path)):
        raise ValueError(f"the path {str(path)!a} is not UTF-8; rename the directory")
    return Location.parse(str(path))


# Tables


def transient(server: Server, share: str, tables: list[NamedTable]) -> GatewayState:
    """Return the state of a configuration that is not written. Raises ConfigError."""
    text = server.configuration(share, tables, {"secret": secrets.token_urlsafe(KEY_BYTES)})
    return GatewayState.of(loads(text, needs_readers=False))


def search(location: Location, server: Server) -> Search:
    """Return the tables at or below a location. Raises InitError where there are none."""
    if location.kind == "file" and not Path(location.key).is_dir():
        raise InitError(f"{location.key} is no directory; give the directory of a Delta table, or one above")
    state = transient(server, "search", [NamedTable("search", "search", location)])
    try:
        store = state.tables.storages.store(location)
        store.renew()
        result = find_tables(store.native, location)
    except (CredentialsUnavailable, LogError) as error:
        text = explain_error(location.kind, error) if isinstance(error, LogError) else str(error)
        reason = " ".join(text.split())
        if reason.endswith("sets `region`"):
            reason += ", here by --region"
        raise InitError(f"{location.url} cannot be read: {reason}") from None
    finally:
        state.tables.close()
    if not result.tables:
        rest = "" if result.is_complete else ", as far as its first directories were searched"
        raise InitError(
            f"no Delta table (a directory with _delta_log) is at {location.url} or up to {MAX_DEPTH} levels "
            f"below{rest}; give the directory that holds the tables{unlisted(result)}"
        )
    sys.stdout.write(f"Found {count(len(result.tables), 'table')} at {location.url}.\n")
    if not result.is_complete:
        sys.stdout.write("There may be more: not every directory was searched.\n")
    if result.unlisted:
        sys.stdout.write(f"There may be more{unlisted(result)}.\n")
    return result


def unlisted(search: Search) -> str:
    """Return the end of a sentence that names the directories that were not listed; empty without any."""
    if not search.unlisted:
        return ""
    more = f" and {count(len(search.unlisted) - 1, 'other')}" if len(search.unlisted) > 1 else ""
    return f": the search cannot list {printable(search.unlisted[0].url)}{more}"


def readable(tables: list[NamedTable], server: Server) -> tuple[list[NamedTable], list[str]]:
    """Return the tables that recipients can read, and the names of those with a change data feed.

    Prints all tables. Raises InitError if none can be read.
    """
    findings = list(check(transient(server, "check", tables)))
    for finding in findings:
        sys.stdout.write(f"  {line(finding)}\n")
    readable_names = {finding.table for finding in findings if not finding.problem}
    readable_tables = [table for table in tables if f"check.{table.full_name}" in readable_names]
    if not readable_tables:
        raise InitError("no table can be read, so there is nothing to share")
    if len(readable_tables) < len(tables):
        sys.stdout.write(f"{len(readable_tables)} of {count(len(tables), 'table')} can be read and shared.\n")
    feeds = [finding.table.removeprefix("check.") for finding in findings if finding.has_unshared_feed]
    return readable_tables, feeds


def line(finding: Finding) -> str:
    name = finding.table.removeprefix("check.")
    if finding.problem:
        return f"{name}: left out, because it cannot be read: {printable(finding.problem)}"
    return f"{name}: version {finding.version}, {count(finding.files or 0, 'file')}, {finding.bytes} bytes"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Leave out log lines of configurations that are not written, and of what the command prints itself."""
    names = ("gateway.config", "gateway.serving", "gateway.storages")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
