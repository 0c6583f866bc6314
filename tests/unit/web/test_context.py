"""The ids of requests."""

from gateway.web.context import next_id


def test_an_id_is_a_process_and_the_next_number() -> None:
    first, *others = (next_id() for _ in range(600))
    process, number = first[:8], int(first[8:], 16)
    assert others == [f"{process}{later:08x}" for later in range(number + 1, number + 600)]
