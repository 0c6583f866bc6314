"""The numbers that a server states, compared with what it lists and with the rows of the table."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.client.actions import DataFile, DeletionVector, TableHead
from gateway.client.pages import Query
from gateway.spark.verify.counts import (
    Listed,
    count_differences,
    limit_differences,
    listed,
    row_differences,
)
from gateway.spark.verify.files import FileFacts, Part, facts_of, facts_of_action, file_differences

HEAD = TableHead("{}", (), {}, version=3, size_bytes=300, num_files=3)
LISTED = Listed(HEAD, files=3, bytes=300, rows=30)


def test_a_listing_is_counted_over_its_pages() -> None:
    file = DataFile("file", "f", "http://h/f", 100, {}, num_records=10)
    unknown = replace(file, num_records=None)

    def client(*pages: list[DataFile]) -> Any:
        found = [SimpleNamespace(head=HEAD, files=files) for files in pages]
        return SimpleNamespace(pages=lambda _query: iter(found))

    whole = Part(1, 0)
    facts = Counter({facts_of(file): 3})
    assert listed(client([file, file], [file]), Query(), whole) == replace(LISTED, facts=facts)
    found = listed(client([file], [unknown, file]), Query(), whole)
    assert found == replace(LISTED, rows=None, facts=facts)
    assert listed(client([]), Query(), whole) == Listed(HEAD, 0, 0, 0)
    # Of many files a part is compared, of which both sides say the same.
    assert not listed(client([file]), Query(), Part(3, 0)).facts
    assert {Part.drawn(25_000, seed).number for seed in range(9)} == {0, 1, 2}


def test_numbers_that_agree_are_no_difference() -> None:
    assert count_differences(HEAD, LISTED, 30) == []
    silent = replace(HEAD, size_bytes=None, num_files=None)
    assert count_differences(silent, replace(LISTED, head=silent, rows=None), 30) == []
    assert limit_differences(LISTED, 30, LISTED) == []


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
    fewer = replace(LISTED, files=2)
    assert limit_differences(fewer, 31, LISTED) == ["limitHint 31: files of 30 rows are listed"]
    (line,) = limit_differences(replace(fewer, rows=None), 31, LISTED)
    assert line == "limitHint 31: files of an unknown number of rows are listed"
    assert row_differences("version 2", LISTED, 40) == ["version 2 states 30 rows, the table has 40"]


ADD = {
    "path": "p=%2520/a%20b.parquet",
    "size": 100,
    "partitionValues": {"p": "%20", "q": None},
    "stats": '{"numRecords":10,"minValues":{"x":1.50,"y":null},"maxValues":{},"tightBounds":true}',
    "deletionVector": {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 34, "cardinality": 2},
}


def test_the_same_facts_in_other_words_are_equal() -> None:
    vector = DeletionVector(None, "http://h/v", 0, 34, 2, None)
    stats = '{"minValues": {"x": 15e-1}, "numRecords": 10}'
    file = DataFile(
        "file", "f", "http://h/a%20b.parquet?s=1", 100, {"q": "", "p": "%20"}, vector, stats=stats
    )
    assert facts_of(file) == facts_of_action(ADD)
    for other in (
        None,
        "",
        "{",
        '{"numRecords":11}',
        '{"numRecords":10,"minValues":{"x":1.5000000000000000001}}',
    ):
        assert facts_of(replace(file, stats=other)) != facts_of_action(ADD)


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ("2024-02-29 12:34:56.789", "2024-02-29T12:34:56.789000Z", True),
        ("1969-12-31 23:59:59", "1969-12-31T23:59:59.000000Z", True),
        ("2024-02-29 12:34:56.789", "2024-02-29T12:34:56.780000Z", False),
        ("", None, True),
    ],
)
def test_times_of_partitions_are_equal_in_both_formats(one: str, other: str | None, is_equal: bool) -> None:
    found = [facts_of_action(ADD | {"partitionValues": {"p": value}}) for value in (one, other)]
    assert (found[0] == found[1]) == is_equal


def test_a_file_is_compared_with_its_own_facts_in_the_log() -> None:
    one = facts_of_action(ADD)
    other = one._replace(name="other")
    own = Counter({one: 1, other: 1})

    def said(*served: FileFacts, has_all: bool = True) -> list[str]:
        return file_differences("now", Counter(served), own, has_all=has_all)

    assert said(one, other) == said(one, has_all=False) == []
    assert said(one) == ["now: file other is not listed"]
    assert said(one, other, other) == ["now: file other is listed 2 times, the log has it 1 times"]
    altered = one._replace(size=1, statistics="")
    assert said(altered, other) == ["now: file a b.parquet: its size, statistics in the log differ"]
    many = [one._replace(name=f"{number}") for number in range(9)]
    assert said(*many, has_all=False)[-1] == "now: and 4 more files"
