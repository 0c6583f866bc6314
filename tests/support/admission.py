"""Streams in a gate of the limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def admitted_stream(gate: Any) -> AsyncIterator[None]:
    """A stream from its admission to its end. Raises Exceeded when it does not fit in time."""
    await gate.enter_stream()
    try:
        yield
    finally:
        gate.leave_stream()
