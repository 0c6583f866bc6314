"""The means of a run that its scenarios share: tables, the store, and how often each is measured."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logs import Logs, Table
from servers import Client, Server, default_gateway
from store import Store

LARGE = 5_000_000
"""A table of more files is measured once."""


@dataclass(frozen=True)
class Bench:
    """One run."""

    logs: Logs
    store: Store | None
    rounds: int
    requests: int
    """Small requests in one measurement of their rate."""
    kernel: Path | None = None
    slow_seconds: float = 8
    """The time for which slow clients read."""
    writer: str = ""
    """Who writes the checkpoints of tables in the store."""

    def rounds_of(self, table: Table) -> int:
        """Return how many times a table is measured."""
        return 1 if table.expected.files > LARGE else self.rounds

    @contextmanager
    def default_gateway(
        self, table: Table, *, workers: int = 1, section: Mapping[str, Any] | None = None
    ) -> Iterator[tuple[Server, Client]]:
        """Run the gateway over a table in the store, with the default configuration and keys added to it."""
        if self.store is None:
            raise RuntimeError("there is no store")
        location = self.logs.location(table)
        with default_gateway(self.store, table, location, workers=workers, section=section) as running:
            yield running
