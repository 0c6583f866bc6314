"""The house keeps its plan: who may import whom, and that README's rooms are there."""

import ast
import re
from pathlib import Path

import pytest
from run import ROOT

GATEWAY = ROOT / "gateway"
CORE = ROOT / "rust/core/src"

# Only these may touch the web server, and only these the native code.
AIOHTTP_ROOMS = {
    "__main__",
    "door",
    "exchange",
    "router",
    "response",
    "errors",
    "stream",
    "routes",
    "admin",
    "monitoring",
    "serving",
    "access_log",
    "watch",
}
NATIVE_ROOMS = {"tables", "storages", "spark", "errors", "demo"}

# Values go down: a room imports what is below it, never what is above.
FORBIDDEN = {
    "errors": {"app", "routes", "tables", "stream", "catalog", "auth", "tokens", "protocol"},
    "protocol": {"app", "routes", "tables", "stream", "catalog", "auth", "tokens"},
    "tokens": {"app", "routes", "tables", "stream", "catalog", "auth"},
    "catalog": {"app", "routes", "tables", "stream", "tokens"},
    "tables": {"app", "routes", "stream", "tokens", "protocol"},
    "storages": {"app", "routes", "stream", "tokens", "protocol", "tables", "catalog"},
    "stream": {"app", "routes", "catalog", "tokens"},
    "config": {"app", "routes", "tables", "stream", "catalog", "auth", "tokens", "protocol"},
    "auth": {"app", "routes", "tables", "stream", "tokens"},
    "spark": {"app", "routes", "stream", "tokens"},
    "door": {"app", "routes", "serving", "requests", "stream", "tables", "protocol"},
    "router": {"app", "routes", "serving", "requests", "stream", "tables", "protocol", "door"},
    "watch": {"app", "routes", "serving", "requests", "stream", "tables", "protocol", "door"},
    "guard": {"app", "routes", "serving", "requests", "stream", "protocol", "door", "exchange"},
    "exchange": {"app", "routes", "serving", "requests", "stream", "tables", "protocol", "door", "watch"},
    "response": {"app", "routes", "serving", "requests", "stream", "tables", "door", "exchange", "errors"},
}


def python_rooms() -> list[Path]:
    return sorted(GATEWAY.rglob("*.py"))


def room_of(path: Path) -> str:
    """The top-level room that a file belongs to."""
    return path.relative_to(GATEWAY).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Full names of imported modules and of what is taken from our own."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "gateway"}
    return found


def rooms_imported(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("gateway.")}


@pytest.mark.parametrize("path", python_rooms(), ids=lambda path: str(path.relative_to(GATEWAY)))
def test_a_room_imports_only_what_is_below_it(path: Path) -> None:
    room = room_of(path)
    assert not rooms_imported(path) & FORBIDDEN.get(room, set())
    if "aiohttp" in {name.split(".")[0] for name in imports(path)}:
        assert room in AIOHTTP_ROOMS
    if "_native" in rooms_imported(path):
        assert room in NATIVE_ROOMS


def test_no_files_import_each_other_in_a_circle() -> None:
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in python_rooms()}
    files = {name.removesuffix(".__init__"): path for path, name in names.items()}
    below = {name: imports(path) & files.keys() for name, path in files.items()}
    while free := [name for name, others in below.items() if not others & below.keys()]:
        for name in free:
            del below[name]
    assert not below


def test_no_route_imports_another() -> None:
    routes = {path.stem for path in (GATEWAY / "routes").glob("*.py")}
    for path in (GATEWAY / "routes").glob("[!_]*.py"):
        others = {name.split(".")[2] for name in imports(path) if name.startswith("gateway.routes.")}
        assert not others & routes - {"__init__"}, path


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
