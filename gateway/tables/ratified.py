"""What the catalog of a table says of its commits, for the native table.

In: a catalog and a native table. Out: nothing; the native table reads by the last answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from gateway import _native
from gateway.config import Location
from gateway.storage.unity_catalog import OddAnswer, UnityCatalogTable
from gateway.times import MILLISECONDS


@dataclass(frozen=True, slots=True)
class ManagedTable:
    """A native table and the catalog that ratifies its commits."""

    table: _native.Table
    catalog: UnityCatalogTable
    location: Location

    def ask(self) -> None:
        """Ask the catalog, before the log is listed. Blocks. Raises LogError."""
        began = time.monotonic()
        answer = self.catalog.ratified(self.location)
        # Rounded up: an answer never counts as a later one.
        age_ms = int((time.monotonic() - began) * MILLISECONDS) + 1
        try:
            self.table.ratify(answer.latest, list(answer.staged), list(answer.inline), age_ms=age_ms)
        except _native.InvalidArgument as error:
            raise OddAnswer(str(error)) from None

    def ask_once(self) -> None:
        """Ask the catalog if it was never asked. Blocks. Raises LogError."""
        if not self.table.has_answer:
            self.ask()
