"""Two replicas over a real PostgreSQL hold a recipient to one budget, and share it anew when one ends."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.gateway_directory import Gateway
from support.postgresql_server import PostgresqlServer

from gateway.governance.replicas import BEAT_SECONDS, LIVE_SECONDS

WORKERS, BURST = 2, 101


def divided(gateway: Any, replicas: int) -> bool:
    """Whether the last word of every worker is that it has a part of so many."""
    words = [line for line in gateway.log().splitlines() if "limits of recipients are divided" in line]
    return len(words) >= WORKERS and all(f"by {replicas} replicas" in line for line in words[-WORKERS:])


def admitted(gateway: Any, requests: int) -> int:
    def status(_: int) -> int:
        return int(gateway.get("/delta-sharing/shares")[0])

    with ThreadPoolExecutor(8) as threads:
        statuses = Counter(threads.map(status, range(requests)))
    assert set(statuses) <= {200, 429}
    return statuses[200]


@pytest.mark.alone
@pytest.mark.nightly
def test_replicas_admit_the_budget_of_a_recipient_together(
    postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    url = postgresql.url(postgresql.new_database())
    limits = {"recipient": {"requestsPerSecond": 0.01, "burstRequests": BURST, "queueSeconds": 0}}
    replicas = []
    for name in "ab":
        (tmp_path / name).mkdir()
        replicas.append(Gateway(tmp_path / name, database=url, limits=limits))
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(replicas[0].running(workers=WORKERS))
        second.enter_context(replicas[1].running(workers=WORKERS))
        for replica in replicas:
            replica.until(lambda replica=replica: divided(replica, 2))
        assert sorted(admitted(replica, 80) for replica in replicas) == [BURST // 2, BURST // 2 + 1]
        second.close()
        ended = time.monotonic()
        replicas[0].until(lambda: divided(replicas[0], 1))
        # The rest is the load of the machine that tests.
        assert LIVE_SECONDS - BEAT_SECONDS - 1 < time.monotonic() - ended < LIVE_SECONDS + 60
        # What the other one admitted is not given back: the balance stays.
        assert admitted(replicas[0], 20) <= 1
