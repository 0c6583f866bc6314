"""Paths of a log against a reference in Python: a URL opens the file of its path, or there is no URL."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.native import lines, native, object_key, table
from tables import random_logs

ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")

segments = st.one_of(
    st.sampled_from(
        ["a-b:c", "t=12:30", "%2e%2e", "..", "...", "%25", "100%", "%C3%A9", "%ff", "s3:", "é", "a+b"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=8),
)
paths = st.lists(segments, min_size=1, max_size=3).map("/".join)


@pytest.fixture(scope="module", autouse=True)
def needs_the_native_module() -> None:
    native()


def one_file(root: Path, action: dict[str, Any]) -> Any:
    """The line of a table's only file."""
    log = random_logs.Log(root, partitioned=False)
    log.commit([{"add": random_logs.addition(log, FILE, data_change=True) | action}])
    (_, _, line), _ = lines(root, table(root).snapshot(), "delta")
    return line["file"]["deltaSingleAction"]["add"]


FILE: dict[str, Any] = {"path": "a", "vector": None, "size": 1, "part": None, "stats": None, "tags": None}


@given(path=paths)
@example(path="a%00b")
@example(path="a\0b")
@example(path="file:c")
def test_a_url_opens_the_file_of_a_relative_path(path: str) -> None:
    if ABSOLUTE.match(path):
        return
    key = unquote_to_bytes(path)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "table"
        if ".." in key.decode(errors="replace").split("/"):
            refused_as = native().ForbiddenPath
        elif b"\0" in key or not is_utf8(key):
            refused_as = native().CorruptLog
        else:
            assert object_key(one_file(root, {"path": path})["path"]) == key.decode()
            return
        with pytest.raises(refused_as) as refused:
            one_file(root, {"path": path})
        assert path not in str(refused.value)


def is_utf8(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(
    "spelling", ["{}", "file:{}", "file://{}", "file:///{}", "file://localhost{}", "FILE:{}"]
)
def test_spellings_of_an_absolute_path_are_one_file(tmp_path: Path, spelling: str) -> None:
    root = tmp_path / "table"
    path = spelling.format(f"{root}/x%20y")
    vector = {"storageType": "p", "pathOrInlineDv": f"{path}.bin", "sizeInBytes": 1, "cardinality": 1}
    add = one_file(root, {"path": path, "deletionVector": vector})
    assert object_key(add["path"]) == "x y"
    assert object_key(add["deletionVector"]["pathOrInlineDv"]) == "x y.bin"
    log = (root / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    assert json.loads(log[-1])["add"]["path"] == path
