"""The connections without an authenticated request."""

import asyncio
from types import SimpleNamespace

import pytest

from gateway.web import strangers
from gateway.web.strangers import GRACE_SECONDS, MAX_OF_ADDRESS, SWEEP_STEPS, Strangers

MANY = 1000


class Connection:
    """A connection that waits for its client within a request head."""

    looks = 0

    def __init__(self) -> None:
        self.is_open = True

    def abort(self) -> None:
        self.is_open = False

    def is_waiting(self) -> bool:
        Connection.looks += 1
        return True

    def is_idle(self) -> bool:
        return False


def test_a_sweep_of_many_connections_leaves_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(strangers, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(strangers, "SWEEP_SECONDS", 0.001)
    monkeypatch.setattr(Connection, "looks", 0)

    async def sweep() -> int:
        """Return how many connections one turn of the loop looks at."""
        of_listener = Strangers()
        connections = [Connection() for _ in range(MANY)]
        for connection in connections:
            of_listener.made(connection, "192.0.2.1", is_reserved=False)
        now[0] = GRACE_SECONDS
        most, is_answered = 0, False
        async with asyncio.timeout(60):
            while len(of_listener) > MAX_OF_ADDRESS + 1:
                before = Connection.looks
                await asyncio.sleep(0)
                most = max(most, Connection.looks - before)
                # The second sweep has seen the first connection, and not yet all.
                if Connection.looks > MANY and not is_answered:
                    of_listener.answered(connections[0], 0)
                    is_answered = True
        # What is answered meanwhile is not among the oldest.
        assert [connection.is_open for connection in connections[:2]] == [True, False]
        return most

    assert 0 < asyncio.run(sweep()) <= SWEEP_STEPS + 1
