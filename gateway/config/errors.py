"""Errors of a configuration, each with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gateway.config.file_stamps import FileStamp

_PLAIN = re.compile(r"(?:[\w./ ,*\[\]-]|://|:[0-9]{1,5}(?!\w)){0,200}")


def shown(text: str) -> str:
    """Return a value for a message: quoted, or `the value` if it may have a password or a signature."""
    return f"'{text}'" if _PLAIN.fullmatch(text) else "the value"


_KEY = re.compile(r"[A-Za-z]+(?:[_-][A-Za-z]+){0,7}")
MAX_SHOWN_KEY_LENGTH = 40


def shown_key(name: str) -> str:
    """Return an unknown key for a message: a secret may stand in its place, so only words are shown."""
    is_plain = len(name) <= MAX_SHOWN_KEY_LENGTH and _KEY.fullmatch(name) is not None
    return name if is_plain else "(a key that is not shown)"


class ConfigError(ValueError):
    """Raised for a configuration that cannot be served.

    Attributes:
        place: `file:line` of the value, or the file alone.
        key: dotted path of the key, such as `gateway.storages[0].region`; empty for the file as a whole.
        secret_files: the files of secrets that were found until then, as they were before they were read.

    """

    def __init__(self, place: str, key: str, message: str) -> None:
        super().__init__(f"{place}: {key}: {message}" if key else f"{place}: {message}")
        self.place = place
        self.key = key
        self.secret_files: Mapping[Path, FileStamp | None] = {}


class Invalid(ValueError):
    """Raised by a section for one of its keys; the reader adds the place.

    `index`: the item of a list.
    """

    def __init__(self, field: str, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.index = index
