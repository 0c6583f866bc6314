"""Imports the gateway's native module in a task, which executors may lack."""

from typing import Any


def native_module(needing: str) -> Any:
    """Return `gateway._native`. Raises ImportError with the remedy; `needing` names what cannot be read."""
    try:
        from gateway import _native  # noqa: PLC0415 - most tables do without it
    except ImportError as error:
        raise ImportError(
            f"{needing} need the gateway's native module in the executors: install the delta-sharing-gateway "
            "wheel there"
        ) from error
    return _native
