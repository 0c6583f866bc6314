"""Cases that the part `nightly` of the test command adds to those of each run."""

from collections.abc import Iterable
from typing import Any

import pytest


def at_night(*cases: Any) -> list[Any]:
    """Parameters of nightly tests; a tuple is a case of several."""
    marked = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*values, marks=pytest.mark.nightly) for values in marked]


def some_at_night(cases: Iterable[Any]) -> list[Any]:
    """The values of one parameter: the first one in each run, the rest at night."""
    first, *rest = cases
    return [first, *at_night(*((case,) for case in rest))]
