"""Errors of operations on stored shares. Imports no database."""

from __future__ import annotations


class ShareError(ValueError):
    """Base of errors of operations on shares, whose text may be shown to the operator.

    ShareError
    ├── ShareNotFound    also: no such schema, table or volume
    └── ShareExists      also: a share of the configuration, which no operation changes
    """


class ShareNotFound(ShareError):
    """Raised when the database has no share, schema, table or volume of the name."""


class ShareExists(ShareError):
    """Raised when the name is taken in the database or in the configuration file."""
