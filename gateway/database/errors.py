"""Errors of the database. Their texts are for operators: none has a statement, a parameter or a password.

DatabaseError
├── DatabaseUnusable    it cannot be reached, read or written
│   └── DatabaseBusy    another program has locked it
├── DatabaseOutdated    its schema is of another release
│   └── DatabaseEarlier of an earlier one
└── DatabaseMissing     there is no database yet
"""

from __future__ import annotations


class DatabaseError(OSError):
    """Base of the errors of the database."""


class DatabaseMissing(DatabaseError):
    """Raised when the database does not exist yet."""

    def __init__(self) -> None:
        super().__init__(
            "there is no database of recipients. If there was one, put it back: "
            "adding a recipient or a share makes a new one"
        )


class DatabaseUnusable(DatabaseError):
    """Raised when the database cannot be reached, read or written."""


class DatabaseBusy(DatabaseUnusable):
    """Raised when another program holds the lock of the database for too long."""

    def __init__(self) -> None:
        super().__init__("it is locked by another program; try again")


class DatabaseOutdated(DatabaseError):
    """Raised for a schema of a newer gateway, or of an earlier one that may not be changed."""


class DatabaseEarlier(DatabaseOutdated):
    """Raised for a schema of an earlier gateway, which the next start of a server, or change, updates."""
