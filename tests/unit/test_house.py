"""The crates keep their plan: who may name whom."""

import re
from pathlib import Path

import pytest
from run import ROOT

CORE = ROOT / "rust/core/src"

# In the core: who may not name whom. `error` and `actions` are the words that all share.
CORE_FORBIDDEN = {
    "sign": {"scan", "snapshot", "segment", "storage", "replay", "commit", "checkpoint", "ndjson", "changes"},
    "log_path": {
        "scan",
        "snapshot",
        "segment",
        "storage",
        "replay",
        "commit",
        "checkpoint",
        "sign",
        "ndjson",
    },
    "error": {"scan", "snapshot", "segment", "storage", "replay", "commit", "checkpoint", "sign", "ndjson"},
    "storage": {"scan", "snapshot", "segment", "replay", "commit", "checkpoint", "sign", "ndjson"},
    "commit": {"scan", "snapshot", "sign", "ndjson", "changes"},
    "checkpoint": {"scan", "snapshot", "sign", "ndjson", "changes"},
    "replay": {"scan", "snapshot", "sign", "ndjson", "changes"},
    "predicate": {"scan", "snapshot", "sign", "ndjson", "storage"},
    "snapshot": {"scan", "sign", "ndjson"},
    "scan": {"ndjson", "sign"},
}


@pytest.mark.parametrize("room", CORE_FORBIDDEN)
def test_a_room_of_the_core_names_only_what_is_below_it(room: str) -> None:
    sources = [CORE / f"{room}.rs", *(CORE / room).rglob("*.rs")]
    # Tests may look at a room from above.
    served = (source for source in sources if not {"tests", "tests.rs"} & {*source.parts})
    for source in filter(Path.exists, served):
        code = source.read_text(encoding="utf-8").split("#[cfg(test)]")[0]
        named = set(re.findall(r"\bcrate::(\w+)", code))
        named |= {
            name for group in re.findall(r"\bcrate::\{([^}]*)", code) for name in re.findall(r"\w+", group)
        }
        assert not named & CORE_FORBIDDEN[room], source


def test_only_the_storage_room_knows_tokio() -> None:
    for source in CORE.rglob("*.rs"):
        if "tokio" in source.read_text(encoding="utf-8").split("#[cfg(test)]")[0]:
            assert source.relative_to(CORE).parts[0].removesuffix(".rs") == "storage", source


def test_the_core_knows_no_python() -> None:
    manifest = (ROOT / "rust/core/Cargo.toml").read_text()
    assert "pyo3" not in manifest
