"""The reader of YAML: what PyYAML reads, with libyaml and without."""

import runpy
from collections.abc import Callable

import pytest
import yaml

from gateway.config import yaml_loader

TEXTS = [
    "a: {b: [c, 'd'], ? e : f}\ng:\n- |\n  h\n- &i null\n- *i\n",
    "a: b\n\tc",
    "a: b\t# c",
    "\ufeffa: b",
    "a:\n  \ufeffb",
    "!",
    "a: ! ",
    "a: {!, []}",
    "- !<tag:x> 1\n- password!",
    "a: '\ud800'",
    r'a: "\ud800"',
]
# PyYAML raises other errors than its own for them.
NO_VALUES = [
    *("2026-02-30", "2026-01-01 00:00:00 +25:00", "1" * 5000, r'"\U00110000"', "0x_"),
    *("!!float x", "!!bool x", "!!int ''", "!!timestamp x", "{2026-02-30: a}", "!!set {!!bool x}"),
]


def read(text: str, compose: Callable[[str], yaml.Node | None]) -> list[str]:
    """Nodes with their tags and lines, or the error."""
    try:
        return nodes(compose(text))
    except yaml.YAMLError as error:
        return [str(error)]


def value(text: str, load: Callable[[str], object]) -> object:
    """What a text holds, or the error."""
    try:
        return load(text)
    except (yaml.YAMLError, ValueError) as error:
        return str(error)


def nodes(node: yaml.Node | None) -> list[str]:
    if node is None:
        return []
    if isinstance(node, yaml.ScalarNode):
        return [f"{node.start_mark.line} {node.tag} {node.value!a}"]
    inner = sum(node.value, ()) if isinstance(node, yaml.MappingNode) else node.value
    return [f"{node.start_mark.line} {node.tag}", *(line for one in inner for line in nodes(one))]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_text_is_read_as_by_pyyaml(text: str) -> None:
    assert read(text, yaml_loader.compose) == read(text, yaml.compose)
    assert value(text, yaml_loader.loaded) == value(text, yaml.safe_load)


@pytest.mark.parametrize("text", NO_VALUES, ids=ascii)
def test_a_value_that_is_none_of_its_kind_is_an_error_of_yaml_in_its_line(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as raised:
        yaml_loader.loaded(f"a: b\nc:\n- {text}\n")
    line, said = yaml_loader.fault(raised.value)
    assert (line, said[:11]) == (3 if "\\U" not in text else None, "is not YAML")


@pytest.mark.parametrize("text", ["a: {b: [{c: 1,\n 'c': 2}]}", "a: &i {b: c,\n b: d}\ne: *i"])
def test_a_key_that_a_map_has_twice_is_an_error_of_yaml_in_its_line(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as raised:
        yaml_loader.loaded(text)
    assert yaml_loader.fault(raised.value) == (2, "is not YAML: found a key twice")


def test_a_merged_key_is_no_key_twice() -> None:
    text = "- &a {x: 1, y: 2}\n- &b {<<: *a, x: 3}\n- {<<: *b, y: 4, n: {<<: *b}}\n- &r [*r]\n"
    assert yaml_loader.loaded(text)[2] == {"x": 3, "y": 4, "n": {"x": 3, "y": 2}}


def test_pyyaml_alone_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    alone = runpy.run_path(yaml_loader.__file__)
    assert nodes(alone["compose"]("a: b")) == nodes(yaml_loader.compose("a: b"))
    assert alone["loaded"]("a: b") == {"a": "b"}
