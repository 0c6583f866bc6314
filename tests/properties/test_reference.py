"""The reference replay itself agrees with the writers of the logs."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import deletion_vectors, reference
from tables import random_logs


@given(drawn=random_logs.steps, partitioned=st.booleans())
def test_the_reference_reader_finds_the_writers_files(drawn: list[tuple], partitioned: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = random_logs.written(Path(directory) / "table", drawn, partitioned=partitioned)
        state = reference.replay(log.root)
        assert state.version == log.next_version - 1
        assert {reference.key(add): add for add in state.files()} == log.live
        assert state.protocol == log.protocol


def test_the_twin_finds_the_files_of_the_golden_tables(golden_tables: Path) -> None:
    for name, answer in json.loads((golden_tables / "ANSWERS.json").read_text()).items():
        if "error" in answer:
            with pytest.raises(reference.BrokenLog):
                reference.replay(golden_tables / name)
            continue
        state = reference.replay(golden_tables / name)
        found = (state.version, len(state.files()), sum(add["size"] for add in state.files()))
        assert found == (answer["version"], answer["numFiles"], answer["totalSize"]), name


@given(st.lists(st.integers(0, 2**33), max_size=50), st.integers(0, 6000))
def test_deletion_vectors_survive_a_round_trip_of_the_reference(rows: list[int], dense: int) -> None:
    expected = sorted({*rows, *range(dense)})
    assert deletion_vectors.decode(deletion_vectors.encode(expected)) == expected


def test_the_twin_decodes_the_inline_vector_of_the_protocol_document() -> None:
    inline = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    assert deletion_vectors.decode(deletion_vectors.from_z85(inline)) == [3, 4, 7, 11, 18, 29]
