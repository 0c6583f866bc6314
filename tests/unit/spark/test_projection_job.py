"""When the files of a projection are put together and cleaned, whatever a clock has said before."""

import pytest

from gateway.spark.project.job import Job

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("last_ms", "hours", "due"),
    [
        (NOW_MS - 23 * HOUR_MS, 24, False),
        (NOW_MS, 24, False),
        (NOW_MS - 24 * HOUR_MS, 24, True),
        # A clock that was ahead wrote it: it counts as never.
        (NOW_MS + 1, 24, True),
        (NOW_MS + 9000 * HOUR_MS, 24, True),
        (NOW_MS + 1, 0, False),
        (0, 0, False),
    ],
)
def test_work_is_due_after_its_hours_and_after_a_date_ahead_of_now(
    last_ms: int, hours: int, *, due: bool
) -> None:
    assert Job._is_due(last_ms, hours, NOW_MS) is due
