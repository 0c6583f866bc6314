"""Commits of the work table put together: the published version has the same files."""

import hashlib
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.spark.project.actions import file_key, fold, mark_of, moved
from gateway.spark.project.commit_range import CommitRange
from gateway.spark.project.errors import NotProved
from gateway.spark.project.evaluation import Evaluation
from gateway.spark.project.record import Record, Stamp
from gateway.spark.verify.digest import Digest

Files = dict[Any, dict[str, Any]]


def file(name: int, vector: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {"path": f"{name}.parquet", "size": 1}
    if vector is not None:
        text = f"{vector:020}"
        found["deletionVector"] = {"storageType": "u", "pathOrInlineDv": text, "offset": 1}
    return found


@st.composite
def histories(draw: st.DrawFn) -> tuple[Files, list[list[dict[str, Any]]], Files]:
    """A version's files, commits, and the files after them."""
    names = st.integers(0, 5)
    vectors = st.none() | st.integers(0, 2)

    def state() -> Files:
        chosen = draw(st.dictionaries(names, vectors, max_size=4))
        return {file_key(one): one for one in (file(*item) for item in chosen.items())}

    first = before = state()
    commits = []
    for _ in range(draw(st.integers(0, 5))):
        after = draw(st.sampled_from([first, state()]))
        commit = [{"remove": one} for key, one in before.items() if key not in after]
        commit += [{"add": one} for key, one in after.items() if key not in before]
        commits.append(draw(st.permutations(commit)))
        before = after
    return first, commits, before


@given(histories())
def test_commits_that_are_read_action_by_action_are_published_as_those_in_memory(history: Any) -> None:
    first, commits, last = history
    changes, head = fold(commits), {"commitInfo": {"name": "\u00fc"}}
    commit_range = CommitRange(commits.__getitem__, -1).read_to(len(commits) - 1)
    assert commit_range.keeps_files == (not changes.removed and not changes.added)
    assert commit_range.mark(mark_of(first)) == mark_of(last)
    with commit_range.published([head]) as file:
        text = file.read_text(encoding="ascii")
    assert not file.exists()
    lines = [json.loads(line) for line in text.splitlines()]
    kinds = [next(iter(line)) for line in lines]
    assert kinds == ["commitInfo", *["remove"] * len(changes.removed), *["add"] * len(changes.added)]
    assert sorted(map(json.dumps, lines)) == sorted(map(json.dumps, [head, *changes.lines()]))


def test_a_commit_that_was_replaced_since_it_was_read_is_not_published() -> None:
    commits = [[{"add": file(number, None)} for number in range(3)]]
    commit_range = CommitRange(commits.__getitem__, -1).read_to(0)
    commits[0][1] = {"add": file(9, None)}
    with pytest.raises(NotProved, match="another writer"), commit_range.published([]):
        raise AssertionError


def test_the_memory_of_a_published_commit_does_not_grow_with_its_files() -> None:
    def actions(_number: int) -> Iterator[dict[str, Any]]:
        return ({"add": file(number, None) | {"stats": "x" * 400}} for number in range(6000))

    commit_range = CommitRange(actions, -1).read_to(0)
    tracemalloc.start()
    try:
        with commit_range.published([]) as commit:
            assert commit.stat().st_size > 6000 * 400
        assert tracemalloc.get_traced_memory()[1] < 6000 * 400 * 2 // 3
    finally:
        tracemalloc.stop()


@given(histories())
def test_the_difference_leads_from_the_first_version_to_the_last(history: Any) -> None:
    first, commits, last = history
    changes = fold(commits)
    assert (not changes.removed and not changes.added) == (first.keys() == last.keys())
    assert changes.removed.keys() <= first.keys()
    assert not changes.added.keys() & first.keys()
    assert (first.keys() - changes.removed.keys()) | changes.added.keys() == last.keys()


def test_the_last_schema_protocol_and_domains_are_published_and_change_files_are_not() -> None:
    commits = [
        [{"protocol": {"minReaderVersion": 1}}, {"metaData": {"id": "a"}}, {"cdc": {"path": "c"}}],
        [
            {"metaData": {"id": "b", "configuration": {"k": "v", "delta.logRetentionDuration": "9"}}},
            {"domainMetadata": {"domain": "x", "configuration": "1"}},
        ],
        [{"domainMetadata": {"domain": "x", "configuration": "2"}}, {"txn": {}}, {"commitInfo": {}}],
    ]
    assert list(fold(commits).lines()) == [
        {"protocol": {"minReaderVersion": 1}},
        {"metaData": {"id": "b", "configuration": {"k": "v"}}},
        {"domainMetadata": {"domain": "x", "configuration": "2"}},
    ]


@pytest.mark.parametrize(
    ("vector", "published"),
    [
        ({"storageType": "u", "pathOrInlineDv": "a" * 20}, "data" + "a" * 20),
        ({"storageType": "u", "pathOrInlineDv": "pre" + "a" * 20}, "data/pre" + "a" * 20),
        ({"storageType": "i", "pathOrInlineDv": "a" * 20}, "a" * 20),
        ({"storageType": "p", "pathOrInlineDv": "s3://b/d.bin"}, "s3://b/d.bin"),
    ],
)
def test_paths_are_relative_to_the_directory_around_the_work_table(
    vector: dict[str, Any], published: str
) -> None:
    found = moved({"path": "k=1/f%20.parquet", "deletionVector": vector})
    assert found["path"] == "data/k=1/f%20.parquet"
    assert found["deletionVector"]["pathOrInlineDv"] == published


@pytest.mark.parametrize("path", ["s3://bucket/f", "file:/f", "/f"])
def test_a_file_elsewhere_is_not_published(path: str) -> None:
    with pytest.raises(ValueError, match="outside of its directory"):
        moved({"path": path})


WORDS = st.tuples(*[st.integers(0, 2**64 - 1)] * 2)
DIGESTS = st.builds(Digest, st.integers(0, 1000), WORDS, WORDS)


@given(DIGESTS, DIGESTS)
def test_a_difference_put_together_with_what_was_taken_away_is_the_whole(whole: Digest, part: Digest) -> None:
    assert (whole - part) + part == whole
    assert (whole + part) - part == whole


@given(DIGESTS)
def test_a_record_is_read_as_it_was_written(digest: Digest) -> None:
    evaluation = Evaluation("4.1.0", "17", {"spark.sql.ansi.enabled": "true"}, "c0")
    record = Record("id", 3, 4, digest, 5, 6, evaluation)
    assert Record.of([{"commitInfo": {"projection": record.as_json()}}, {"add": {}}]) == record
    assert Record.of([{"commitInfo": {}}, {"add": {}}]) is None


COMMITS = [[{"b": 1, "a": "\u00fc"}, {"c": [None, {}]}], [], [{"d": {"f": 1.5, "e": True}}]]


@pytest.mark.parametrize("number", range(4))
def test_a_stamp_is_that_of_the_commits_as_one_text(number: int) -> None:
    """Published records have such stamps."""
    text = json.dumps(COMMITS[:number], sort_keys=True)
    stamp = Stamp()
    assert [list(stamp.of_commit(iter(commit))) for commit in COMMITS[:number]] == COMMITS[:number]
    assert stamp.text == hashlib.sha256(text.encode()).hexdigest()
