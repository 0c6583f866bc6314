"""The modules of each Rust crate form layers: a module uses modules of lower layers only, in tests too."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import takewhile
from pathlib import Path

import pytest
from tools import ROOT

Name = tuple[str, ...]

# From the lowest layer to the highest. Modules of one layer do not use each other. A test module that checks
# its parent through higher modules has an entry of its own; every other test module is part of its parent.
CORE_LAYERS = [
    ["error", "civil_time", "hashing::block", "known_tables", "lock"],
    ["stop", "poller", "pool", "simd", "deletion_vector", "variant", "wakeup"],
    ["cpu", "escape", "hashing", "json_scanner", "percent"],
    ["actions", "file_id", "log_faults", "log_memory", "log_path"],
    ["features", "schema", "sign"],
    ["partition", "storage"],
    ["commit"],
    ["crc", "ndjson", "replay", "segment"],
    ["checkpoint"],
    ["history", "predicate"],
    ["column_cache"],
    ["snapshot"],
    ["changes", "scan", "checkpoint::tests::golden"],
    ["explain", "inventory", "stream", "table"],
    ["query", "scan::tests"],
]
LIMITS_LAYERS = [
    ["bucket", "key", "memory"],
    ["recent", "recipients"],
    ["shared"],
]
NATIVE_LAYERS = [
    ["build", "errors", "explain", "inventory", "limits", "row_group_filter", "rule", "stop"],
    ["deletion_vector", "signers", "storage", "stream", "variant"],
    ["options", "shared"],
    ["snapshot"],
    ["changes", "completions"],
    ["table"],
]

COMMENT_OR_TEXT = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\[^\']+|[^\\\'])\'', re.DOTALL
)
TOKEN = re.compile(r"\w+|::|\S")


@dataclass(frozen=True)
class Crate:
    """A crate's modules, the height of each entry of its layers, and the paths that its root re-exports."""

    source: Path
    modules: dict[Name, Path]
    heights: dict[Name, int]
    re_exports: dict[Name, Name]


def crate(source: Path, layers: list[list[str]], re_exports: dict[Name, Name]) -> Crate:
    modules = {
        path.relative_to(source).with_suffix("").parts: path
        for path in source.rglob("*.rs")
        if path != source / "lib.rs"
    }
    heights = {tuple(name.split("::")): height for height, layer in enumerate(layers) for name in layer}
    return Crate(source, modules, heights, re_exports)


CRATES = {
    "core": crate(
        ROOT / "rust/core/src",
        CORE_LAYERS,
        {("Error",): ("error", "Error"), ("Result",): ("error", "Result")},
    ),
    "limits": crate(
        ROOT / "rust/limits/src",
        LIMITS_LAYERS,
        {
            ("Bucket",): ("bucket", "Bucket"),
            ("Key",): ("key", "Key"),
            ("Kind",): ("recipients", "Kind"),
            ("SharedLimits",): ("shared", "SharedLimits"),
            ("Terms",): ("bucket", "Terms"),
        },
    ),
    "native": crate(ROOT / "rust/native/src", NATIVE_LAYERS, {}),
}
# Known answers are shared with the core's integration tests.
CRATES["core"].modules["known_tables",] = ROOT / "rust/core/tests/support/known_tables.rs"


def code_of(source: Path) -> str:
    """A file without its comments and texts."""
    return COMMENT_OR_TEXT.sub(" ", source.read_text(encoding="utf-8"))


def paths_of(tokens: list[str], at: int) -> tuple[list[Name], int]:
    """The paths of a use tree that starts at a token, and the position behind it."""
    if tokens[at] != "{":
        name, at = tokens[at], at + 1
        if tokens[at] != "::" or not re.match(r"[\w{*]", tokens[at + 1]):
            return [(name,)], at
        paths, at = paths_of(tokens, at + 1)
        return [(name, *path) for path in paths], at
    found, at = [], at + 1
    while tokens[at] != "}":
        paths, at = paths_of(tokens, at)
        found += paths
        while tokens[at] not in (",", "}"):
            at += 1
        at += tokens[at] == ","
    return found, at + 1


def absolute(path: Name, module: Name) -> Name:
    """A path that starts with `crate`, `self` or `super`, as seen in a module, from the crate's root."""
    if path[0] == "crate":
        return path[1:]
    supers = len(list(takewhile(lambda name: name in ("self", "super"), path)))
    levels = path[:supers].count("super")
    return module[: len(module) - levels] + path[supers:]


def used_paths(module: Name, code: str) -> Iterator[Name]:
    """All absolute paths of the crate in a module's code without comments, nested modules included."""
    tokens = TOKEN.findall(code)
    depth = 0
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token == "{":
            if tokens[at - 2] == "mod":
                opened.append(depth)
                module = (*module, tokens[at - 1])
            depth += 1
        elif token == "}":
            depth -= 1
            if opened and opened[-1] == depth:
                opened.pop()
                module = module[:-1]
        elif token in ("crate", "self", "super") and tokens[at + 1] == "::" and tokens[at - 1] != "::":
            yield from (absolute(path, module) for path in paths_of(tokens, at)[0])


def file_of(path: Name, crate: Crate) -> Name:
    """The module file that a path leads into."""
    module = crate.re_exports.get(path[:1], path)
    while module and module not in crate.modules:
        module = module[:-1]
    assert module, f"crate::{'::'.join(path)} is no module"
    return module


def layered(module: Name, crate: Crate) -> Name:
    """The entry of the list that holds a module."""
    entry = module
    while entry and entry not in crate.heights:
        entry = entry[:-1]
    assert entry, f"no layer holds {'::'.join(module)}"
    return entry


def uses(module: Name, crate: Crate) -> set[Name]:
    return {file_of(path, crate) for path in used_paths(module, code_of(crate.modules[module]))}


def test_the_parser_reads_every_form_of_a_path() -> None:
    code = (
        "use crate::{Error, replay::{self, Order as Ordering}, sign::*};\n"
        '// crate::never\nfn f() -> super::Scan { crate::hash::hex("crate::no", \'"\') }\n'
        "#[cfg(test)]\nmod tests { use super::super::table::Table; use super::*; }\n"
        "fn g() { self::h::<u8>() }\n"
    )
    assert set(used_paths(("scan", "stages"), COMMENT_OR_TEXT.sub(" ", code))) == {
        ("Error",),
        ("replay", "self"),
        ("replay", "Order"),
        ("sign", "*"),
        ("scan", "Scan"),
        ("hash", "hex"),
        ("scan", "table", "Table"),
        ("scan", "stages", "*"),
        ("scan", "stages", "h"),
    }


@pytest.mark.parametrize("crate", CRATES.values(), ids=CRATES)
def test_a_module_uses_modules_of_lower_layers_only(crate: Crate) -> None:
    wrong = {"::".join(module): found for module in crate.modules if (found := not_lower(module, crate))}
    assert not wrong


def not_lower(module: Name, crate: Crate) -> list[Name]:
    """The layers that a module uses and that do not lie below its own."""
    own = layered(module, crate)
    others = {layered(used, crate) for used in uses(module, crate)} - {own}
    return [other for other in others if crate.heights[other] >= crate.heights[own]]


@pytest.mark.parametrize("crate", CRATES.values(), ids=CRATES)
def test_every_entry_of_the_layers_is_a_module(crate: Crate) -> None:
    assert not crate.heights.keys() - crate.modules.keys()


@pytest.mark.parametrize("crate", CRATES.values(), ids=CRATES)
def test_the_root_of_a_crate_declares_modules_and_re_exports_only_what_is_listed(crate: Crate) -> None:
    tokens = TOKEN.findall(code_of(crate.source / "lib.rs"))
    declared = {(tokens[at + 1],) for at, token in enumerate(tokens) if token == "mod"}
    assert declared == {module[:1] for module in crate.modules}
    imported = [
        path for at, token in enumerate(tokens) if token == "use" for path in paths_of(tokens, at + 1)[0]
    ]
    assert sorted(path for path in imported if path[0] != "pyo3") == sorted(crate.re_exports.values())


@pytest.mark.parametrize("crate", CRATES.values(), ids=CRATES)
def test_modules_of_one_folder_form_no_circle(crate: Crate) -> None:
    graphs: dict[Name, dict[str, set[str]]] = {}
    for module in crate.modules:
        for used in uses(module, crate):
            shared = len(
                [0 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(module, used, strict=False))]
            )
            # The crate's root is ordered by the layers.
            if 0 < shared < min(len(module), len(used)):
                graph = graphs.setdefault(module[:shared], {})
                graph.setdefault(module[shared], set()).add(used[shared])
    for graph in graphs.values():
        TopologicalSorter(graph).prepare()


def test_only_the_storage_knows_tokio() -> None:
    """Unit tests included: no test outside of the storage needs a runtime."""
    core = CRATES["core"]
    sources = [core.source / "lib.rs", *core.modules.values(), *CRATES["native"].source.rglob("*.rs")]
    knowing = {source for source in sources if re.search(r"\btokio\b", code_of(source))}
    assert knowing == {core.modules["storage", "runtime"]}


def test_the_core_knows_no_python() -> None:
    assert "pyo3" not in (ROOT / "rust/core/Cargo.toml").read_text(encoding="utf-8")
