"""The optional packages that a configuration or a command needs.

Out: nothing, or the error that names the extra to install. Imports no optional package.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.config import Config

TRACING_MODULES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


class ExtraMissing(OSError):
    """Raised when an extra is not installed."""

    def __init__(self, user: str, extra: str) -> None:
        super().__init__(
            f"{user} needs the extra `{extra}`, which is not installed: "
            f"pip install 'delta-sharing-gateway[{extra}]'"
        )


def check_extras(config: Config) -> None:
    """Check that the packages of the configured sections are installed. Raises ExtraMissing."""
    if config.gateway.tracing is not None and not all(map(_is_installed, TRACING_MODULES)):
        raise ExtraMissing("gateway.tracing", "tracing")


def has_demo_extra() -> bool:
    """Return whether the packages that show the demo's rows are installed."""
    return _is_installed("polars")


def check_completion_extra() -> None:
    """Check that the package that writes completions is installed. Raises ExtraMissing."""
    if not _is_installed("shtab"):
        raise ExtraMissing("the completion of shells", "completion")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # A package above the module is missing.
        return False
