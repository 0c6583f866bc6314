"""A gauge with one label whose values may end, for example when a reload removes a storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Gauge

NO_VALUE = float("nan")
"""Removes a value from the memory that workers share."""


class LatestValues:
    """Sets a gauge to the current values, and removes labels without a value."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._values: dict[str, float] = {}

    def set(self, values: Mapping[str, float]) -> None:
        """Replace all values, by label."""
        for label in self._values.keys() - values.keys():
            self._gauge.labels(label).set(NO_VALUE)
            self._gauge.remove(label)
        for label, value in values.items():
            # Setting a value costs much more than comparing it.
            if self._values.get(label) != value:
                self._gauge.labels(label).set(value)
        self._values = dict(values)
