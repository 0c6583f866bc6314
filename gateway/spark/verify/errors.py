"""Errors of verify, and those of Spark in one line, with or without the values that messages quote."""

import re

from pyspark.errors import PySparkException

from gateway.spark.project.errors import NAMED_ALONE, kind_of

_EXCEPTION_LINE = re.compile(r"[\w.]*[A-Z]\w+: ")
# Beginnings of lines without the cause: stack frames, and lines that Py4J and Spark add.
_FRAMES = ("at ", "File ", "^", "Traceback", "Suppressed: ", "An error occurred while calling ")


class NotCompared(Exception):
    """Raised for what cannot be compared for a reason that is not the server's; the text says it."""


def is_lasting(error: BaseException) -> bool:
    """Return whether Spark fails so in every run: by a condition of Delta, or for a file that is gone."""
    kind = kind_of(error)
    return kind.startswith("DELTA_") or kind.endswith(("FileNotFoundException", "FILE_NOT_EXIST"))


def described(error: BaseException, *, has_values: bool) -> str:
    """Describe an error. Without values only by its kind, because messages quote values."""
    if kind_of(error) == NAMED_ALONE:
        return NAMED_ALONE
    if has_values:
        return _first_lines(error)
    # The brackets in the message are not used: a value may look the same.
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return " ".join([type(error).__name__, *([condition] if condition else [])])


def _first_lines(error: BaseException) -> str:
    """Return the relevant lines of an error: Spark's messages contain stack traces of other processes."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(_FRAMES)]
    causes = [line for line in telling if _EXCEPTION_LINE.match(line)]
    return " | ".join(dict.fromkeys([*telling[:1], *causes[-2:]])) or type(error).__name__
