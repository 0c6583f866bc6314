"""The reader features that released clients know, in lower case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

FIRST_PYTHON: Mapping[str, str] = {"deletionvectors": "1.1", "columnmapping": "1.1", "timestampntz": "1.3.2"}
"""The first version of the Python client that knows a feature."""
FEATURES_OF_CHANGES = frozenset({"deletionvectors", "columnmapping"})
"""All that the Python client announces for changes in the delta format, which it reads from 1.3."""
PYTHON_FEATURES = frozenset(FIRST_PYTHON)
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
LOG_FEATURES = frozenset(
    {"v2checkpoint", "vacuumprotocolcheck", "incommittimestamp", "catalogmanaged", "catalogowned-preview"}
)
"""Features of the log, which a recipient does not read."""


def readers(features: AbstractSet[str]) -> list[str]:
    """Return the clients that know all these features."""
    return [name for name, known in CLIENTS.items() if features <= known]


def reading_advice(features: Iterable[str]) -> str:
    """Return how users of clients read a table that needs the delta format."""
    needed = {feature.lower() for feature in features} - LOG_FEATURES
    python = ""
    if needed <= PYTHON_FEATURES:
        first = max((FIRST_PYTHON[feature] for feature in needed), default="1.1")
        changes = "but not its changes"
        if needed <= FEATURES_OF_CHANGES:
            changes = "its changes with use_delta_format=True from version 1.3"
        python = f"delta-sharing for Python from version {first} ({changes}), by "
    return f'{python}Spark with .option("responseFormat", "delta")'


def features_text(features: Iterable[str]) -> tuple[bool, str]:
    """Return whether a released client reads a table with these features, and a sentence about it."""
    needed = sorted(feature for feature in features if feature.lower() not in LOG_FEATURES)
    if unknown := [feature for feature in needed if feature.lower() not in KNOWN_FEATURES]:
        return False, f"the table needs {', '.join(unknown)}, which no client known to this version reads"
    if not needed:
        return True, "the table needs no reader feature"
    able = readers({feature.lower() for feature in needed})
    return True, f"the table needs {', '.join(needed)}: read by {', '.join(able) or 'no client'}"
