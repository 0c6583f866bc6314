"""Caches small answers for the second in which they were signed.

In: a key that holds everything the answer depends on, and the answer. Out: the same bytes for an equal key
within the same second: signed URLs contain that second, so signing again would give the same bytes. Many
clients of one table are then answered by one signing. The cache is bounded in entries and bytes per entry
and is cleared each second. Its answers are the same for every recipient who may read the table; that is
checked before the lookup.
"""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

from gateway.telemetry.request_record import RequestRecord

MAX_ANSWERS = 64
MAX_ANSWER_BYTES = 64 * 1024


class CachedAnswer(Struct, frozen=True):
    """The body of an answer, its headers as they are sent, and the facts for the log."""

    body: bytes
    field_lines: str
    record: RequestRecord


class AnswerCache:
    """The answers of one second. Not thread-safe: for the event loop only."""

    def __init__(self) -> None:
        self._second = 0
        self._answers: dict[Hashable, CachedAnswer] = {}

    def find(self, key: Hashable, *, now_ms: int) -> CachedAnswer | None:
        """Return the answer for a key, if it was made in this second."""
        return self._answers.get(key) if now_ms // 1000 == self._second else None

    def has_room(self, now_ms: int) -> bool:
        """Return whether an answer that was made at that time would be kept."""
        return now_ms // 1000 != self._second or len(self._answers) < MAX_ANSWERS

    def put(self, key: Hashable, answer: CachedAnswer, *, now_ms: int) -> None:
        """Cache an answer that was made at that time, if there is room."""
        if now_ms // 1000 != self._second:
            self._second = now_ms // 1000
            self._answers.clear()
        if len(answer.body) <= MAX_ANSWER_BYTES and len(self._answers) < MAX_ANSWERS:
            self._answers[key] = answer
