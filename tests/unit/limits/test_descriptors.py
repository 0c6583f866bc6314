"""The readers of local files: the more there are, the less each reads at once."""

from contextlib import ExitStack

from gateway.limits.descriptors import LEAST_PIECE_BYTES, MOST_PIECE_BYTES, PIECES_PART, FileReaders

MIB = 1024 * 1024
READERS = 100


def test_pieces_of_many_readers_take_little_memory_together() -> None:
    readers = FileReaders(PIECES_PART * MIB)
    assert readers.piece_bytes() == MOST_PIECE_BYTES
    pieces = []
    with ExitStack() as stack:
        for number in range(READERS):
            stack.enter_context(readers.reading(f"192.0.2.{number}", f"/{number}"))
            pieces.append(readers.piece_bytes())
    assert pieces[-1] == LEAST_PIECE_BYTES
    # Each holds its first piece, which it read beside fewer readers.
    assert sum(pieces) < 6 * MIB
    assert readers.piece_bytes() == MOST_PIECE_BYTES


def test_pieces_follow_the_memory_of_the_process() -> None:
    readers = FileReaders(PIECES_PART * MIB)
    with ExitStack() as stack:
        for number in range(8):
            stack.enter_context(readers.reading(f"192.0.2.{number}", f"/{number}"))
        assert readers.piece_bytes() == MIB // 8
        readers.memory_bytes *= 2
        assert readers.piece_bytes() == MOST_PIECE_BYTES
