"""Deletion vectors of the native module against a reference in Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import deletion_vectors
from support.native import native

rows_of_a_file = st.one_of(
    st.lists(st.integers(0, 2**34), max_size=60),
    st.builds(
        lambda start, count: list(range(start, start + count)), st.integers(0, 2**17), st.integers(0, 9000)
    ),
)


@pytest.fixture(scope="module", autouse=True)
def needs_the_native_module() -> None:
    native()


@given(rows_of_a_file)
def test_a_vector_of_the_twin_is_read(rows: list[int]) -> None:
    vector = deletion_vectors.encode(rows)
    stored = deletion_vectors.file_of(vector)
    found = native().deletion_vector_rows(stored, offset=1, size_in_bytes=len(vector))
    assert found == sorted(set(rows))


@given(rows_of_a_file)
def test_the_reference_reader_reads_written_vectors(rows: list[int]) -> None:
    stored = native().encode_deletion_vector(rows)
    size = int.from_bytes(stored[1:5], "big")
    assert stored[0] == 1
    assert deletion_vectors.decode(stored[5 : 5 + size]) == sorted(set(rows))
    assert stored == deletion_vectors.file_of(stored[5 : 5 + size])


@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=30))
def test_an_inline_vector_is_read(rows: list[int]) -> None:
    vector = deletion_vectors.encode(rows)
    padded = vector + bytes(-len(vector) % 4)
    assert native().inline_deletion_vector_rows(deletion_vectors.to_z85(padded)) == sorted(set(rows))


@given(st.lists(st.integers(0, 2**20), max_size=30), st.data())
def test_a_damaged_vector_is_an_error(rows: list[int], data: st.DataObject) -> None:
    vector = deletion_vectors.encode(rows)
    stored = bytearray(deletion_vectors.file_of(vector))
    place = data.draw(st.integers(1, len(stored) - 1))
    stored[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(native().CorruptLog):
        native().deletion_vector_rows(bytes(stored), offset=1, size_in_bytes=len(vector))


@given(st.binary(max_size=200), st.integers(0, 300), st.integers(0, 300))
def test_noise_is_an_error(noise: bytes, offset: int, size: int) -> None:
    with pytest.raises(native().CorruptLog):
        native().deletion_vector_rows(noise, offset=offset, size_in_bytes=size)
