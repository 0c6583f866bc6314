"""Credentials of a storage as their renewal sees them, and the error where there are none."""

from __future__ import annotations

import logging
import traceback
from datetime import datetime
from pathlib import Path
from typing import Protocol

from gateway import _native
from gateway.encoding import is_header_token

log = logging.getLogger("gateway.storages")


class CredentialsUnavailable(Exception):
    """Raised when an identity gives no credentials. The text has nothing of an answer: it may be secret.

    `lasting`: the identity is missing or denied, so a retry cannot help.
    """

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


def check_header(text: str, name: str) -> str:
    """Return a text that a header can have. Raises CredentialsUnavailable, with its name, for another."""
    if not is_header_token(text):
        raise CredentialsUnavailable(
            f"{name} has a line break, a blank or another character that no header can have", lasting=True
        )
    return text


def without_credentials(error: Exception) -> CredentialsUnavailable:
    """Describe an error that no identity is known to raise: a service may answer anything.

    It may be a defect as well, so the log has where it was raised, without its text.
    """
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.warning("a request for credentials ended by %s:\n%s", type(error).__name__, frames.rstrip())
    return CredentialsUnavailable(f"no credentials in the answer ({type(error).__name__})")


class CredentialsFailed(_native.StorageUnavailable):
    """Raised where credentials cannot be renewed. The store itself was not called."""


class Credentials(Protocol):
    """Credentials with their end."""

    @property
    def expires(self) -> datetime | None:
        """The time at which they end; None for keys that do not."""

    @property
    def file(self) -> Path | None:
        """The file that they come from, if other programs may replace its content."""

    @property
    def source(self) -> str:
        """Where they were found, in words for the operator."""
