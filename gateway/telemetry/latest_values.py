"""A gauge with one label whose values may end, as those of a storage that a reload removes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import Gauge

NO_VALUE = float("nan")
"""A comparison with it is false, so what has ended raises no alert. Files of workers have no removal."""


class LatestValues:
    """Sets a gauge to the values that there are, and to none for the labels that had one before."""

    def __init__(self, gauge: Gauge, *, ended: float = NO_VALUE) -> None:
        """`ended` is the value of what has ended.

        Of a gauge that shows the maximum of all workers it is a number: nothing is greater than NO_VALUE, so
        that would hide the values of other workers.
        """
        self._gauge = gauge
        self._ended = ended
        self._labels: set[str] = set()

    def set(self, values: Mapping[str, float]) -> None:
        """Replace all values, by label."""
        for label in self._labels - values.keys():
            self._gauge.labels(label).set(self._ended)
        for label, value in values.items():
            self._gauge.labels(label).set(value)
        self._labels = set(values)
