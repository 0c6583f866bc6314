"""The trees of exceptions that docstrings draw name every class of their module, each below its base."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import ROOT

SOURCES = [path for kind in ("*.py", "*.pyi") for path in sorted((ROOT / "gateway").rglob(kind))]
DRAWN = [path for path in SOURCES if "├──" in path.read_text(encoding="utf-8")]
LINE = re.compile(r"^ *(?P<branches>(?:│   |    )*)[├└]── (?P<name>\w+)")


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_a_drawn_tree_is_that_of_the_classes(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    drawings = [text for node in ast.walk(tree) if (text := docstring_of(node)) and "├──" in text]
    (drawing,) = drawings
    root, drawn = drawn_bases(drawing)
    assert drawn == dict(bases_below(root, tree))


def docstring_of(node: ast.AST) -> str | None:
    return ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef) else None


def drawn_bases(drawing: str) -> tuple[str, dict[str, str]]:
    """Return the name above the tree, and the base of each name in it."""
    lines = drawing.splitlines()
    first = next(number for number, line in enumerate(lines) if LINE.match(line))
    root = lines[first - 1].split()[0]
    above, bases = [root], {}
    for match in filter(None, map(LINE.match, lines)):
        depth = len(match["branches"]) // 4 + 1
        bases[match["name"]] = above[depth - 1]
        above[depth:] = [match["name"]]
    return root, bases


def bases_below(root: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each class of a module that descends from the root, with its base."""
    known = {root}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                if isinstance(base, ast.Name) and base.id in known:
                    known.add(node.name)
                    yield node.name, base.id
