"""The layers of the Python package: one ordered list, compared with every import in every module."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from tools import ROOT

PACKAGE = ROOT / "gateway"


@dataclass(frozen=True)
class Layer:
    """A module or package directly under `gateway`, and which of the two large dependencies it may import.

    `lines`: the most lines that it may have, so that growth is a decision.
    """

    name: str
    lines: int
    aiohttp: bool = False
    native: bool = False


# From the top down. A module imports from its own layer and from layers below it.
LAYERS = (
    Layer("__main__", 200),
    Layer("cli", 4_610),
    Layer("doctor", 2_560),
    Layer("demo", 700),
    Layer("server", 3_000, aiohttp=True),
    Layer("app", 200, aiohttp=True),
    Layer("routes", 1_825, aiohttp=True),
    Layer("console", 2_820, aiohttp=True),
    Layer("admin", 2_000, aiohttp=True),
    Layer("discovery", 1_100, aiohttp=True, native=True),
    Layer("web", 3_644, aiohttp=True, native=True),
    Layer("oidc", 1_200, aiohttp=True),
    Layer("state", 100),
    Layer("tables", 2_000, native=True),
    Layer("storage", 4_660, native=True),
    Layer("governance", 4_210),
    Layer("authentication", 1_100),
    Layer("catalog", 1_110),
    Layer("outgoing", 100, aiohttp=True),
    Layer("limits", 1_200, native=True),
    Layer("database", 1_310),
    Layer("telemetry", 1_860),
    Layer("protocol", 1_610),
    Layer("spark", 12_060, native=True),
    Layer("config", 5_035),
    Layer("errors", 200),
    Layer("report", 1_020),
    Layer("client", 1_410, native=True),
    Layer("background", 100),
    Layer("times", 100),
    Layer("paths", 100),
    Layer("encoding", 100),
    Layer("__init__", 100),
)
ORDER = {layer.name: place for place, layer in enumerate(LAYERS)}

MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> set[str]:
    """Full names of all imports of a module, also those within functions and for type checkers alone."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_every_module_is_in_a_layer_and_every_layer_has_a_module() -> None:
    assert {layer_of(path) for path in MODULES} == ORDER.keys()


def test_a_module_imports_from_its_own_layer_or_from_below() -> None:
    wrong = {path: found for path in MODULES if (found := refused_imports(path))}
    assert not wrong


def refused_imports(path: Path) -> list[str]:
    """What a module imports from above its layer, or of a dependency that its layer may not import."""
    layer = LAYERS[ORDER[layer_of(path)]]
    names = imports(path)
    own = {name.split(".")[1] for name in names if name.startswith("gateway.")} - {"_native"}
    above = [name for name in own if ORDER[name] < ORDER[layer.name]]
    web = [name for name in names if name.split(".")[0] == "aiohttp"]
    native = [name for name in names if name.startswith("gateway._native")]
    return sorted([*above, *([] if layer.aiohttp else web), *([] if layer.native else native)])


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in MODULES}
    files = {name.removesuffix(".__init__"): path for name, path in names.items()}
    below = {name: modules_of(imports(path), files) - {name} for name, path in files.items()}
    while free := [name for name, others in below.items() if not others & below.keys()]:
        for name in free:
            del below[name]
    assert not below, sorted(below)


def modules_of(names: set[str], files: dict[str, Path]) -> set[str]:
    """The modules that imported names are, or are attributes of."""
    return {name if name in files else name.rpartition(".")[0] for name in names} & files.keys()


def top_level_imports(body: list[ast.stmt], *, for_types: bool) -> set[str]:
    """Names that a module imports at its top level: when it is loaded, or for type checkers alone."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            names |= top_level_imports(node.body, for_types=False) if for_types else set()
        elif isinstance(node, ast.ImportFrom) and not for_types:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import) and not for_types:
            names |= {alias.name for alias in node.names}
    return names


def test_an_import_for_type_checkers_alone_spares_the_module_a_load() -> None:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in MODULES}
    files = {name.removesuffix(".__init__"): path for name, path in names.items()}
    trees = {name: parsed(path).body for name, path in files.items()}
    direct = {name: top_level_imports(body, for_types=False) for name, body in trees.items()}
    spared = 0
    for module, body in trees.items():
        loaded, waiting = {module}, [module]
        while waiting:
            imported = {name.split(".")[0] for name in direct[waiting[-1]]} | modules_of(
                direct[waiting.pop()], files
            )
            waiting += sorted((imported & files.keys()) - loaded)
            loaded |= imported
        for name in top_level_imports(body, for_types=True):
            target = modules_of({name}, files) or {name.split(".")[0]}
            assert not target & loaded, (
                f"{module} loads {sorted(target)} in any case: import {name} at the top"
            )
            spared += 1
    assert spared


def test_no_handler_imports_another() -> None:
    handlers = {name for name in imports(PACKAGE / "app.py") if name.startswith("gateway.routes.")}
    assert handlers
    for handler in handlers:
        path = ROOT.joinpath(*handler.split(".")).with_suffix(".py")
        others = {".".join(name.split(".")[:3]) for name in imports(path)} & handlers
        assert not others - {handler}, path


def test_the_client_needs_nothing_of_the_rest_and_the_doctor_no_spark() -> None:
    for path in sorted((PACKAGE / "client").rglob("*.py")):
        others = {name for name in imports(path) if name.split(".")[0] == "gateway"}
        assert all(name.startswith(("gateway.client.", "gateway._native")) for name in others), path
    for path in sorted((PACKAGE / "doctor").rglob("*.py")):
        assert not any(name.startswith("gateway.spark") for name in imports(path)), path


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_a_package_grows_by_decision(layer: Layer) -> None:
    own = [path for path in MODULES if layer_of(path) == layer.name]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in own)
    assert layer.lines - 200 < lines <= layer.lines, "take away, or change the number in this commit"
