"""The modules of the Rust core form layers: a module uses modules of lower layers only, in tests too."""

import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from itertools import takewhile
from pathlib import Path

import pytest
from run import ROOT

CORE = ROOT / "rust/core/src"

# From the lowest layer to the highest. Modules of one layer do not use each other. A test module that checks
# its parent through higher modules has an entry of its own; every other test module is part of its parent.
LAYERS = [
    ["error", "civil_time", "hash_block", "known_tables"],
    ["stop", "pool", "simd", "deletion_vector"],
    ["escape", "hash", "percent"],
    ["actions", "file_id", "log_path"],
    ["features", "schema", "sign", "storage"],
    ["partition"],
    ["commit"],
    ["crc", "ndjson", "replay", "segment"],
    ["checkpoint", "history"],
    ["predicate"],
    ["column_cache"],
    ["snapshot"],
    ["changes", "scan", "checkpoint::tests::golden"],
    ["explain", "stream", "table"],
    ["query", "scan::tests"],
]
HEIGHTS = {tuple(name.split("::")): height for height, layer in enumerate(LAYERS) for name in layer}

COMMENT_OR_TEXT = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\[^\']+|[^\\\'])\'', re.DOTALL
)
TOKEN = re.compile(r"\w+|::|\S")

Name = tuple[str, ...]


def module_of(source: Path) -> Name:
    return source.relative_to(CORE).with_suffix("").parts if source.is_relative_to(CORE) else (source.stem,)


MODULES = {module_of(source): source for source in CORE.rglob("*.rs") if source.name != "lib.rs"}
# Known answers are shared with the crate's integration tests.
MODULES[("known_tables",)] = ROOT / "rust/core/tests/support/known_tables.rs"


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
    """All absolute paths of the crate in a module's code, from its nested modules as well."""
    tokens = TOKEN.findall(COMMENT_OR_TEXT.sub(" ", code))
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


def file_of(path: Name) -> Name:
    """The module file that a path leads into. The crate's root re-exports nothing but errors."""
    if path[0] in ("Error", "Result"):
        return ("error",)
    module = path
    while module and module not in MODULES:
        module = module[:-1]
    assert module, f"crate::{'::'.join(path)} is no module"
    return module


def layered(module: Name) -> Name:
    """The entry of the list that holds a module."""
    entry = module
    while entry and entry not in HEIGHTS:
        entry = entry[:-1]
    assert entry, f"no layer holds {'::'.join(module)}"
    return entry


def uses(module: Name) -> set[Name]:
    return {file_of(path) for path in used_paths(module, MODULES[module].read_text(encoding="utf-8"))}


def test_the_parser_reads_every_form_of_a_path() -> None:
    code = (
        "use crate::{Error, replay::{self, Order as Ordering}, sign::*};\n"
        '// crate::never\nfn f() -> super::Scan { crate::hash::hex("crate::no", \'"\') }\n'
        "#[cfg(test)]\nmod tests { use super::super::table::Table; use super::*; }\n"
        "fn g() { self::h::<u8>() }\n"
    )
    assert set(used_paths(("scan", "stages"), code)) == {
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


@pytest.mark.parametrize("module", sorted(MODULES), ids="::".join)
def test_a_module_uses_modules_of_lower_layers_only(module: Name) -> None:
    own = layered(module)
    others = {layered(used) for used in uses(module)} - {own}
    assert not [other for other in others if HEIGHTS[other] >= HEIGHTS[own]]


def test_every_entry_of_the_layers_is_a_module() -> None:
    assert not HEIGHTS.keys() - MODULES.keys()


def test_modules_of_one_folder_form_no_circle() -> None:
    graphs: dict[Name, dict[str, set[str]]] = {}
    for module in MODULES:
        for used in uses(module):
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
    for module, source in MODULES.items():
        if "tokio" in source.read_text(encoding="utf-8").split("#[cfg(test)]")[0]:
            assert module[0] == "storage", source


def test_the_core_knows_no_python() -> None:
    assert "pyo3" not in (ROOT / "rust/core/Cargo.toml").read_text(encoding="utf-8")
