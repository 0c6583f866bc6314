"""Reads of tables' logs outside of a server: the files of an answer, and the settings of S3."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.spark.native_logs import answered_files, s3_settings

FILE, OTHER = {"id": "a"}, {"id": "b"}
LINES = [b'{"protocol":{}}', *(json.dumps({"file": file}).encode() for file in (FILE, OTHER))]


class Chunks:
    """An answer whose second chunk is late: `waits` counts how often one has waited for it."""

    def __init__(self, readable: int) -> None:
        self._readable = readable
        self._chunks: Iterator[Any] = iter([b"\n".join(LINES[:2]), None, LINES[2]])
        self.done = False
        self.waits = 0

    def next_chunk(self) -> bytes | None:
        try:
            return next(self._chunks)
        except StopIteration:
            self.done = True
            return None

    def fileno(self) -> int:
        self.waits += 1
        return self._readable


def test_the_files_of_an_answer_are_waited_for() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"1")
    chunks = Chunks(reading)
    try:
        assert list(answered_files(chunks)) == [FILE, OTHER]
    finally:
        os.close(reading)
        os.close(writing)
    assert chunks.waits == 1


@pytest.mark.parametrize(
    ("environment", "region", "endpoint"),
    [
        ({}, "us-east-1", None),
        ({"AWS_REGION": "", "AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-1", None),
        ({"AWS_REGION": "a", "AWS_DEFAULT_REGION": "b", "AWS_ENDPOINT_URL": "http://s"}, "a", "http://s"),
    ],
)
def test_s3_is_found_by_the_environment(
    environment: dict[str, str], region: str, endpoint: str | None
) -> None:
    settings = {"region": region, "endpoint": endpoint, "path_style": endpoint is not None}
    assert s3_settings(environment) == settings
