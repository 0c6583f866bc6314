"""The numbers that a server states, compared with what it lists and with the rows of the table."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.client.actions import DataFile, TableHead
from gateway.spark.verify.counts import (
    Listed,
    count_differences,
    limit_differences,
    listed,
    row_differences,
)

HEAD = TableHead("{}", (), {}, version=3, size_bytes=300, num_files=3)
LISTED = Listed(HEAD, files=3, bytes=300, rows=30)


def test_a_listing_is_counted_over_its_pages() -> None:
    file = DataFile("file", "f", "http://h/f", 100, {}, num_records=10)
    unknown = replace(file, num_records=None)

    def client(*pages: list[DataFile]) -> Any:
        found = [SimpleNamespace(head=HEAD, files=files) for files in pages]
        return SimpleNamespace(pages=lambda _query: iter(found))

    assert listed(client([file, file], [file]), {}) == LISTED
    assert listed(client([file], [unknown, file]), {}) == replace(LISTED, rows=None)
    assert listed(client([]), {}) == Listed(HEAD, 0, 0, 0)


def test_numbers_that_agree_are_no_difference() -> None:
    assert count_differences(HEAD, LISTED, 30) == []
    silent = replace(HEAD, size_bytes=None, num_files=None)
    assert count_differences(silent, replace(LISTED, head=silent, rows=None), 30) == []
    assert limit_differences(LISTED, 30) == []


@pytest.mark.parametrize(
    ("stated", "found", "said"),
    [
        (replace(HEAD, num_files=4), LISTED, "the metadata states 4 files, 3 are listed"),
        (replace(HEAD, size_bytes=1), LISTED, "the metadata states 1 bytes, 300 are listed"),
        (
            HEAD,
            replace(LISTED, head=replace(HEAD, num_files=2)),
            "the listing states 2 files, 3 are listed",
        ),
        (replace(HEAD, num_files=None), LISTED, "do not both state the number of files"),
        (HEAD, replace(LISTED, head=replace(HEAD, size_bytes=None)), "do not both state the number of bytes"),
        (HEAD, replace(LISTED, rows=33), "the listing states 33 rows, the table has 30"),
    ],
)
def test_a_number_that_is_altered_or_left_out_is_found(stated: TableHead, found: Listed, said: str) -> None:
    (line,) = count_differences(stated, found, 30)
    assert said in line


def test_listings_that_are_cut_are_found() -> None:
    assert limit_differences(LISTED, 31) == ["limitHint 31: files of 30 rows are listed"]
    assert row_differences("version 2", LISTED, 40) == ["version 2 states 30 rows, the table has 40"]
