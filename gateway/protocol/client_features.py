"""The reader features that released clients know, in lower case."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

PYTHON_FEATURES = frozenset({"deletionvectors", "columnmapping", "timestampntz"})
SPARK_FEATURES = PYTHON_FEATURES | {
    "typewidening",
    "typewidening-preview",
    "varianttype",
    "varianttype-preview",
    "variantshredding",
    "variantshredding-preview",
}
CLIENTS: Mapping[str, frozenset[str]] = {"Python 1.4": PYTHON_FEATURES, "Spark 4": SPARK_FEATURES}
KNOWN_FEATURES = frozenset().union(*CLIENTS.values())
LOG_FEATURES = frozenset({"v2checkpoint", "vacuumprotocolcheck", "incommittimestamp", "catalogowned-preview"})
"""Features of the log, which a recipient does not read."""


def readers(features: AbstractSet[str]) -> list[str]:
    """Return the clients that know all of these features."""
    return [name for name, known in CLIENTS.items() if features <= known]
