"""Every version of a table against the independent replay: the same files, or the same refusal."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from support import reference
from support.native import lines, native, object_key, table


def hold(root: Path, last: int) -> None:
    """Fails where an answer of a version up to `last` has other files than plain Python finds."""
    subject = table(root)
    for version in range(last + 1):
        try:
            expected = reference.replay(root, version)
        except reference.BrokenLog:
            with pytest.raises(native().VersionNotFound):
                subject.snapshot(version=version)
            continue
        if "schemaString" not in (expected.metadata or {}):
            with pytest.raises(native().CorruptLog, match="no schema"):
                lines(root, subject.snapshot(version=version), "delta")
            continue
        answer, _ = lines(root, subject.snapshot(version=version), "delta")
        adds = [line["file"]["deltaSingleAction"]["add"] for line in answer[2:]]
        found = sorted((object_key(add["path"]), add["size"], deleted(add)) for add in adds)
        wanted = sorted((unquote(add["path"]), add["size"], deleted(add)) for add in expected.files())
        assert found == wanted, version


def deleted(add: dict[str, Any]) -> int:
    """Rows that the deletion vector of a file hides."""
    return add["deletionVector"]["cardinality"] if add.get("deletionVector") else 0
