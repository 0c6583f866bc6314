"""Small answers of the present second, for those who ask the same within it.

In: what an answer depends on, and the answer. Out: the same bytes for the same question, as long as its
second lasts: URLs say the second in which they were signed, so making the answer anew would give no other
byte. Many clients of one table are then answered by one signing. What is held is bounded in number and size,
and gives way to the answers of the next second; it is the same for every recipient who may read the table,
and whether one may was decided before anything is looked up here.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_ANSWERS = 64
MAX_ANSWER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Repeated:
    """An answer, its headers as they are sent, and what is told of it in the log."""

    body: bytes
    field_lines: str
    facts: Mapping[str, Any]


class Repeats:
    """The answers of one second. For the event loop alone."""

    def __init__(self) -> None:
        self._second = 0
        self._answers: dict[Hashable, Repeated] = {}

    def find(self, question: Hashable, *, now_ms: int) -> Repeated | None:
        """The answer to a question, if it was asked in this second."""
        return self._answers.get(question) if now_ms // 1000 == self._second else None

    def keep(self, question: Hashable, answer: Repeated, *, now_ms: int) -> None:
        """Keep an answer that was made at that time."""
        if now_ms // 1000 != self._second:
            self._second = now_ms // 1000
            self._answers.clear()
        if len(answer.body) <= MAX_ANSWER_BYTES and len(self._answers) < MAX_ANSWERS:
            self._answers[question] = answer
