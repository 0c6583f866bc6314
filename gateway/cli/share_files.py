"""The files of a first share: configuration, key for tokens, recipients' database, profile: all or none.

In: the share's names and the text of the configuration. Out: the files. They are published in the transaction
that adds the recipient; on an error the files are as they were before. SIGINT and SIGTERM wait for the end.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.cli.new_file import NewFile
from gateway.cli.profile_file import profile_file
from gateway.config import Config, loads
from gateway.config.sections import RECIPIENTS_DATABASE
from gateway.governance.audited_database import open_database
from gateway.governance.credentials import NewToken
from gateway.governance.recipient_names import check_name
from gateway.governance.recipient_records import (
    DEFAULT_LIFE_SECONDS,
    IssuedToken,
    RecipientError,
    RecipientExists,
    profile_of,
)
from gateway.protocol.profile import profile_text
from gateway.server.deferred_signals import DeferredSignals
from gateway.times import epoch_ms

KEY_BYTES = 32


class InitError(OSError):
    """Raised when nothing can be shared; the text names what to do."""


@dataclass(frozen=True, slots=True)
class ShareFiles:
    """The files of one configuration; with `force` existing ones are replaced, except for the key."""

    configuration: Path
    force: bool

    @property
    def token_key(self) -> Path:
        return self.configuration.absolute().with_name(f"{self.configuration.stem}-token.key")

    @property
    def recipients_database(self) -> Path:
        return self.configuration.absolute().with_name(RECIPIENTS_DATABASE)

    def profile(self, recipient: str) -> Path:
        return self.configuration.absolute().with_name(f"{recipient}.share")

    def check_configuration(self) -> None:
        """Check that the configuration can be written. Raises OSError."""
        if self.configuration.absolute() == self.recipients_database:
            raise InitError(f"{RECIPIENTS_DATABASE} is the recipients' database: name another file")
        with self._new_configuration():
            pass

    def check_profile(self, recipient: str) -> None:
        """Check that a recipient's profile can be written. Raises RecipientError, OSError."""
        check_name(recipient)
        profile = self.profile(recipient)
        if profile in (self.configuration.absolute(), self.token_key, self.recipients_database):
            raise RecipientError(f"{profile.name} is another file of the share: name another recipient")
        with self._new_profile(recipient):
            pass

    def _new_configuration(self) -> NewFile:
        how = "--force replaces it, or -c names another file"
        return NewFile(self.configuration, "the configuration", if_exists=how, overwrite=self.force)

    def _new_profile(self, recipient: str) -> NewFile:
        return profile_file(self.profile(recipient), overwrite=self.force, option="--force")

    def write(self, text: str, share: str, recipient: str) -> Config:
        """Write all files or none, and return the configuration. Raises OSError."""
        signals = DeferredSignals()
        # A signal ends the wait for another command.
        with _alone(self.token_key.parent):
            signals.hold()
            try:
                with _new_key(self.token_key):
                    config = loads(
                        text,
                        file=str(self.configuration),
                        directory=self.token_key.parent,
                        needs_readers=False,
                    )
                    self._publish(config, text, share, recipient)
            finally:
                signals.release()
        return config

    def _publish(self, config: Config, text: str, share: str, recipient: str) -> None:
        with (
            _new_database(self.recipients_database),
            self._new_configuration() as file,
            self._new_profile(recipient) as profile,
        ):

            def keep() -> None:
                profile.keep()
                file.keep()

            try:
                with self._added(config, share, recipient, keep) as issued:
                    file.write_text(text)
                    profile.write_text(profile_text(profile_of(config.endpoint_url, issued)))
            except RecipientExists:
                raise InitError(
                    f"recipient {recipient} is in {RECIPIENTS_DATABASE} already: name another one, or give "
                    "--force for a new token"
                ) from None
            except RecipientError as error:
                raise InitError(str(error)) from None

    @contextmanager
    def _added(
        self, config: Config, share: str, name: str, committed: Callable[[], None]
    ) -> Iterator[IssuedToken]:
        """Add the recipient. With `force` an existing one gets the share, and a new token instead."""
        token = NewToken(DEFAULT_LIFE_SECONDS)
        with closing(open_database(config, "cli:init", now_ms=epoch_ms)) as database:
            existing = {record.name.lower(): record for record in database.list()}.get(name.lower())
            if existing is None or not self.force:
                with database.issued(lambda: database.add(name, token, shares=[share]), committed) as issued:
                    yield issued
                return
            # The earlier token, which ends, never reads the share.
            with database.together():
                database.grant(name, [share])
                with database.issued(lambda: database.issue(name, token), committed) as issued:
                    yield issued


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Wait for another command that writes files there: of two, the one that fails takes its own back."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        # Not every file system has locks.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _new_key(path: Path) -> Iterator[None]:
    """Write a key for tokens unless there is one; on an error it is removed again."""
    is_new = not path.exists()
    if is_new:
        with NewFile(path, "the file", if_exists="--force replaces it") as file:
            file.write_text(f"{secrets.token_urlsafe(KEY_BYTES)}\n")
            file.keep()
    try:
        yield
    except BaseException:
        if is_new:
            # Behind all links: the file is new, a link to it is not.
            Path(os.path.realpath(path)).unlink(missing_ok=True)
        raise


@contextmanager
def _new_database(path: Path) -> Iterator[None]:
    """Remove the recipients' database on an error, unless it was there before."""
    is_new = not path.exists()
    try:
        yield
    except BaseException:
        if is_new:
            for suffix in ("", "-journal", "-wal", "-shm"):
                path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
        raise
