"""The native types that callers of this package work with."""

from gateway._native import (
    AnswerOptions,
    Changes,
    Explanation,
    LogError,
    NdjsonChunks,
    PruneCounts,
    Snapshot,
    Stop,
    StreamSummary,
)

__all__ = [
    "AnswerOptions",
    "Changes",
    "Explanation",
    "LogError",
    "NdjsonChunks",
    "PruneCounts",
    "Snapshot",
    "Stop",
    "StreamSummary",
]
