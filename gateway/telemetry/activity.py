"""The recent requests of a process, its live streams, and the use by each recipient, in memory.

In: each request at its end, and each stream at its start. Out: values for the console. Nothing is written to
disk, so a restart starts empty. Every part is bounded: the queries by their number, the recipients by the
`MAX_RECIPIENTS` that were active last, the streams by the limits of the server.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from gateway.telemetry.rings import Rings

MAX_QUERIES = 200
"""Of a process; a query takes less than 2 KiB, since names have at most 255 characters."""
MAX_RECIPIENTS = 10_000


class RecentQuery(Struct, frozen=True):
    """A query of a table or of its changes, or a refused request, at its end."""

    at_ms: int
    recipient: str
    table: str
    kind: str
    """The name of the route."""
    status: int
    seconds: float
    considered: int | None = None
    pruned_by_partition: int | None = None
    pruned_by_stats: int | None = None
    pruned_by_limit: int | None = None
    returned: int | None = None
    file_bytes: int | None = None
    failure: str | None = None
    """Why the request was refused, or why the stream ended early."""
    names: tuple[str, ...] = ()
    """Of the share, the schema and the table, which may have dots; empty where the table is unknown."""


class LiveStream(Struct, frozen=True):
    """An answer that is being sent."""

    start_ms: int
    recipient: str
    table: str
    kind: str
    names: tuple[str, ...] = ()
    """As of a query."""


class Refused(Struct, frozen=True):
    """The requests that were refused for one reason."""

    requests: int
    last_ms: int
    address: str
    """Of the client of the last one."""


class RecipientUse(Struct):
    """What a recipient has used since the start of the process."""

    last_ms: int = 0
    requests: int = 0
    files: int = 0
    """Signed files."""
    refused: dict[str, Refused] = field(default_factory=dict)
    """The refused and failed requests by reason, one of `REFUSALS`."""

    @property
    def refusals(self) -> int:
        """Return the number of refused and failed requests."""
        return sum(count.requests for count in self.refused.values())


class Activity:
    """The recent and the running answers of a process. Only the event loop changes it."""

    def __init__(self) -> None:
        self._queries: deque[RecentQuery] = deque(maxlen=MAX_QUERIES)
        self._streams: dict[str, Callable[[], LiveStream]] = {}
        self._uses: OrderedDict[str, RecipientUse] = OrderedDict()
        self.rings = Rings()

    def stream_started(self, request_id: str, stream: Callable[[], LiveStream]) -> None:
        """Add a stream; `stream` returns its current state."""
        self._streams[request_id] = stream

    def stream_ended(self, request_id: str) -> None:
        self._streams.pop(request_id, None)

    def request_ended(
        self, recipient: str, *, at_ms: int, refusal: str | None, files: int, address: str
    ) -> None:
        use = self._uses.get(recipient)
        if use is None:
            use = self._uses[recipient] = RecipientUse()
            if len(self._uses) > MAX_RECIPIENTS:
                self._uses.popitem(last=False)
        else:
            self._uses.move_to_end(recipient)
        use.last_ms = at_ms
        use.requests += 1
        use.files += files
        if refusal is not None:
            use.refused[refusal] = _refused(use, refusal, Refused(1, at_ms, address))

    def query_ended(self, query: RecentQuery) -> None:
        """Add a query; the oldest one is forgotten."""
        self._queries.append(query)

    def queries(self, *, table: str | None = None, recipient: str | None = None) -> list[RecentQuery]:
        """Return the recent queries, of a table or a recipient or all, the last one first."""
        return [
            query
            for query in reversed(self._queries)
            if (table is None or query.table == table) and (recipient is None or query.recipient == recipient)
        ]

    @property
    def stream_count(self) -> int:
        """Return the number of live streams."""
        return len(self._streams)

    def streams(self) -> list[LiveStream]:
        """Return the live streams, the oldest first."""
        return [stream() for stream in self._streams.values()]

    def use(self, recipient: str) -> RecipientUse | None:
        """Return what a recipient has used; None for one without requests."""
        return self._uses.get(recipient)

    def figures(self, figure: str) -> dict[str, int]:
        """Return one figure of `FIGURES` of all recipients that have it."""
        figures = ((name, FIGURES[figure](use)) for name, use in self._uses.items())
        return {name: number for name, number in figures if number}


FIGURES: Mapping[str, Callable[[RecipientUse], int]] = {
    "used": lambda use: use.last_ms,
    "requests": lambda use: use.requests,
    "files": lambda use: use.files,
    "refusals": lambda use: use.refusals,
}
"""What recipients are ranked by."""


def add_uses(uses: list[RecipientUse]) -> RecipientUse:
    """Return the use of one recipient in several processes."""
    total = RecipientUse()
    for use in uses:
        total.last_ms = max(total.last_ms, use.last_ms)
        total.requests += use.requests
        total.files += use.files
        for reason, count in use.refused.items():
            total.refused[reason] = _refused(total, reason, count)
    return total


def _refused(use: RecipientUse, reason: str, more: Refused) -> Refused:
    """Add refused requests to the ones of a reason."""
    known = use.refused.get(reason, Refused(0, 0, ""))
    last = max(known, more, key=lambda refused: refused.last_ms)
    return Refused(known.requests + more.requests, last.last_ms, last.address)
