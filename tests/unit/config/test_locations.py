"""Locations of tables and of prefixes."""

import pytest

from gateway.config import Location


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("s3://b", "s3a://b/t", True),
        ("s3://b/t", "s3://b/t", True),
        ("s3://b/t", "s3://b/table", False),
        ("s3://b", "s3://c", False),
        ("/a", "/a/b", True),
        ("/a", "file:///ab", False),
        ("/", "/a", True),
    ],
)
def test_a_prefix_holds_whole_segments(outer: str, inner: str, expected: bool) -> None:
    assert Location.parse(outer).contains(Location.parse(inner)) is expected
