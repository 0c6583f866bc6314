"""What the commands on the database have in common: the database, who changes it, and their errors."""

from __future__ import annotations

import os
import pwd
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from gateway.config import Config, load
from gateway.config.checks import name_warnings
from gateway.database.errors import DatabaseError, DatabaseMissing
from gateway.governance.recipient_records import RecipientError
from gateway.governance.share_records import ShareError
from gateway.report.text import escaped
from gateway.telemetry.audit import AuditLog, open_audit
from gateway.times import epoch_ms

if TYPE_CHECKING:
    from gateway.governance.recorded_database import RecordedDatabase

D = TypeVar("D", bound="RecordedDatabase")


def on_database(
    arguments: Namespace,
    command: str,
    open_it: Callable[..., D],
    operation: Callable[[D, Config, AuditLog | None], None],
    *,
    reads: bool,
    creates: bool = False,
    without: Callable[[Config, DatabaseMissing], None] | None = None,
) -> int:
    """Run an operation on the database of a configuration, and print its errors.

    It gets the open audit log, too. `reads`: it changes nothing. `creates`: it creates the database where
    there is none. `without` runs instead where there is no database.
    """
    config = load(arguments.config, needs_readers=False)
    audit = None if reads else open_audit(config)
    try:
        opened = open_it(config, actor(), now_ms=epoch_ms, audit=audit, create=creates, read_only=reads)
        with closing(opened) as database:
            operation(database, config, audit)
    except DatabaseMissing as missing:
        if without is None:
            return failed(command, missing)
        without(config, missing)
    except DatabaseError as error:
        return failed(command, f"the database cannot be used: {error}")
    except (ShareError, RecipientError, OSError) as error:
        if reads and isinstance(error, BrokenPipeError):
            # Nobody reads the output, and there was nothing else to do.
            raise
        return failed(command, error)
    finally:
        if audit is not None:
            audit.close()
    return 0


def actor() -> str:
    """Return who changes the database: the process's user; environment variables could name any user."""
    try:
        return f"cli:{escaped(pwd.getpwuid(os.getuid()).pw_name)}"
    except KeyError:
        return f"cli:{os.getuid()}"


def warn_of_names(command: str, names: Iterable[str]) -> None:
    """Warn of names of shares, schemas and tables that not all clients can address."""
    for warning in name_warnings(names):
        sys.stderr.write(f"delta-gateway {command}: warning: {warning}\n")


def failed(command: str, reason: object) -> int:
    """Print why a command failed, and return its status."""
    sys.stderr.write(f"delta-gateway {command}: {escaped(str(reason))}\n")
    return 1
