"""The optional packages that a configuration or a command needs.

Out: nothing, or the error that names the extra to install. Imports no optional package.
"""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from itertools import takewhile

from gateway.config import Config

IDENTITY_MODULES = {
    "azure": ("azure.identity", "azure.storage.blob"),
    "gcp": ("google.auth", "google.oauth2", "requests"),
}
"""The packages that request credentials, by their extras."""
POSTGRESQL_MODULES = ("psycopg",)
SERVER_AIOHTTP = (3, 14, 4)
"""Parses one request of a connection at a time. The doctor and the client run with older versions, too."""
BESIDE_CLIENT = " (beside the client delta-sharing up to 1.4.1; 1.4.2 allows no newer aiohttp)"
TRACING_MODULES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


class ExtraMissing(OSError):
    """Raised when an extra is not installed."""

    def __init__(self, user: str, extra: str, where: str = "") -> None:
        super().__init__(
            f"{user} needs the extra `{extra}`, which is not installed: "
            f"pip install 'delta-sharing-gateway[{extra}]'{where}"
        )


def check_server_extra() -> None:
    """Check what any server needs. Raises ExtraMissing."""
    installed = version("aiohttp")
    if release(installed) < SERVER_AIOHTTP:
        raise ExtraMissing(f"a server beside aiohttp {installed}", "server", BESIDE_CLIENT)


def check_extras(config: Config) -> None:
    """Check the packages of a server and of the configured sections. Raises ExtraMissing."""
    check_server_extra()
    if config.gateway.tracing is not None and not all(map(_is_installed, TRACING_MODULES)):
        raise ExtraMissing("gateway.tracing", "tracing")
    database = config.gateway.database
    if database is not None and not database.is_file and not all(map(_is_installed, POSTGRESQL_MODULES)):
        raise ExtraMissing("gateway.database", "postgresql")
    for location in config.locations:
        extra = config.gateway.storage(location).extra
        if extra and not all(map(_is_installed, IDENTITY_MODULES[extra])):
            raise ExtraMissing(f"the identity of {location.bucket_url}", extra)


def has_demo_extra() -> bool:
    """Return whether the packages that show the demo's rows are installed."""
    return _is_installed("polars")


def check_azure_extra(user: str) -> None:
    """Check that the libraries of Azure are installed. Raises ExtraMissing."""
    if not all(map(_is_installed, IDENTITY_MODULES["azure"])):
        raise ExtraMissing(user, "azure")


def check_completion_extra() -> None:
    """Check that the package that writes completions is installed. Raises ExtraMissing."""
    if not _is_installed("shtab"):
        raise ExtraMissing("the completion of shells", "completion")


def release(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, up to its first part that is none."""
    numbers = takewhile(str.isdecimal, text.split("."))
    return tuple(map(int, numbers))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # A package above the module is missing.
        return False
