"""The command line: `delta-gateway COMMAND`.

`gateway.cli.command_line` has the commands. Exit codes: 0 done, 1 refused or failed (the reason is on the
standard error), 2 a wrong command line, 130 interrupted, 141 nobody reads the output, 143 ended by SIGTERM as
process 1.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from types import FrameType
from typing import TextIO

SIGNAL_BASE = 128
"""Plus the number of a signal: the exit code that shells report for a command ended by it."""
INTERRUPTED = SIGNAL_BASE + signal.SIGINT

try:
    from gateway.cli.command_line import parser
    from gateway.errors import GatewayError, StartFailed
except KeyboardInterrupt:
    sys.exit(INTERRUPTED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    _open_standard_streams()
    code = 0
    raised: BaseException | None = None
    try:
        try:
            code = _run(arguments)
        finally:
            raised = sys.exc_info()[1]
            # Without this the interpreter writes the rest at its exit, where no error is caught.
            sys.stdout.flush()
    except OSError as error:
        output = sys.stdout.fileno()
        has_no_reader = _has_no_reader(output)
        if isinstance(error, BrokenPipeError) and not has_no_reader:
            raise
        # As with `| head`, or on a full disk. What is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
        if not isinstance(raised, OSError | SystemExit | None):
            raise raised from None
        if has_no_reader:
            return code or SIGNAL_BASE + signal.SIGPIPE
        sys.stderr.write(f"delta-gateway: the standard output cannot be written: {error.strerror}\n")
        return code or 1
    return code


def _run(arguments: Sequence[str] | None) -> int:
    _take_sigterm()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        parsed = parser(given[0] if given else None).parse_args(given)
        _log_to_standard_error()
        return int(parsed.run(parsed))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        text = None if isinstance(error, BrokenPipeError) and _has_no_reader(1) else _expected_error(error)
        if text is None:
            raise
        from gateway.report.text import printable  # noqa: PLC0415 - imported only after a failure

        # An error may quote the log of a table, or a server.
        sys.stderr.write(f"delta-gateway: {printable(text)}\n")
        return 1


def _has_no_reader(descriptor: int) -> bool:
    """Return whether a descriptor is a pipe that nobody reads; a lost connection is another error."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _take_sigterm() -> None:
    """Let SIGTERM end a command that is process 1, as in a container: the kernel would ignore the signal."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    # As the kernel ends any other process: an import that is under way may catch an exception and go on.
    os._exit(SIGNAL_BASE + number)


def _expected_error(error: Exception) -> str | None:
    """Return the text for an error that is not a defect."""
    from gateway.config.errors import ConfigError  # noqa: PLC0415 - as above
    from gateway.database.errors import DatabaseError  # noqa: PLC0415 - as above
    from gateway.governance.recipient_records import RecipientError  # noqa: PLC0415 - imported only after a failure
    from gateway.report.text import system_error_text  # noqa: PLC0415 - as above
    from gateway.tables.native import LogError  # noqa: PLC0415 - as above

    if isinstance(error, DatabaseError | RecipientError):
        return f"the recipients' database cannot be opened: {error}"
    if isinstance(error, OSError):
        return system_error_text(error)
    if isinstance(error, ConfigError | StartFailed | GatewayError | LogError):
        return str(error)
    return None


def _open_standard_streams() -> None:
    """Open the null device for each standard stream that is closed, and write UTF-8 in any locale.

    Otherwise the next file or socket gets its number, and log lines are written into that.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or _text_of(1)
    sys.stderr = sys.stderr or _text_of(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names may have any characters, and files of commands are read as UTF-8.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _text_of(descriptor: int) -> TextIO:
    return open(descriptor, "w", encoding="utf-8", closefd=False)


def _log_to_standard_error() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    # Steps of a new database's schema, and connections to Spark, which say nothing to who runs a command.
    for name in ("alembic", "py4j"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # No line says them, and finding them out costs more than the line ("Optimization" in Python's logging).
    logging._srcfile = None  # noqa: SLF001
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


if __name__ == "__main__":
    sys.exit(main())
