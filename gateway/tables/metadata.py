"""Reads a table's version and metadata. The calls block."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.protocol.capabilities import Capabilities, ResponseFormat
from gateway.protocol.queries import TimeTravel
from gateway.tables.native import Stop
from gateway.tables.open_table import OpenTable


@dataclass(frozen=True, slots=True)
class Metadata:
    """The first two lines of every answer of a version; `stale` as in `Files`."""

    lines: bytes
    version: int
    response_format: ResponseFormat
    stale: bool


def read_version(opened: OpenTable, timestamp_ms: int | None) -> tuple[int, bool]:
    """Return the latest version, or the first one at or after a timestamp, and whether it is stale."""
    if timestamp_ms is None:
        return opened.snapshot().version, opened.stale
    return opened.version_at_or_after(timestamp_ms), opened.stale


def read_metadata(opened: OpenTable, at: TimeTravel, capabilities: Capabilities, stop: Stop) -> Metadata:
    """Return the protocol and metadata of the latest version, or of the version `at`."""
    snapshot = opened.snapshot(version=at.version, timestamp_ms=at.timestamp_ms)
    chosen = capabilities.negotiate(
        needs_delta_format=snapshot.needs_delta_format,
        client_reader_features=snapshot.client_reader_features,
    )
    opened.require_totals(snapshot)
    lines = snapshot.header(
        chosen,
        with_version=bool(at),
        history_shared=opened.shared.history_shared,
        access=opened.shared.access_members,
        rule=opened.rule,
        stop=stop,
    )
    return Metadata(lines, snapshot.version, chosen, opened.stale)
