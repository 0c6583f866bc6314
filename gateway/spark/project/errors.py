"""Errors of a projection, and the names of others: their texts may quote values of rows."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

_MAX_CAUSES = 20
NAMED_ALONE = "a catalog manages the table, and Spark reads such a table only by its name in the catalog"
_SAID = {"DELTA_PATH_BASED_ACCESS_TO_CATALOG_MANAGED_TABLE_BLOCKED": NAMED_ALONE}
"""What conditions mean whose own text does not fit a command that reads locations."""


class InvalidRule(ValueError):
    """Raised for a rule that the source's columns do not fit, or that is no pure function of a row."""


class NotKept(Exception):
    """Raised for a source or a directory that the job cannot work on. The message has no value of a row."""


class NotProved(NotKept):
    """Raised when the projection is not what the rule makes of its source."""


def kind_of(error: BaseException) -> str:
    """Name an error without its text, which may quote values of the source."""
    if isinstance(error, PySparkException):
        return error.getCondition() or type(error).__name__
    if isinstance(error, Py4JJavaError):
        return _kind_of_first(error.java_exception)
    return type(error).__name__


def _kind_of_first(thrown: Any) -> str:
    """Name what was thrown first: what follows says that a task, and then its job, has failed."""
    for _ in range(_MAX_CAUSES):
        cause = thrown.getCause()
        if cause is None:
            break
        thrown = cause
    try:
        condition = thrown.getCondition()
    except Py4JError:
        # Not one of Spark's own.
        condition = None
    return _SAID.get(condition) or str(condition or thrown.getClass().getSimpleName())
