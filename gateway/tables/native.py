"""The native types that callers of this package work with, and the version of the native build."""

from gateway._native import (
    AnswerOptions,
    Changes,
    Contradiction,
    CorruptLog,
    Explanation,
    FileReplaced,
    Inventory,
    LogError,
    NdjsonChunks,
    PruneCounts,
    Rule,
    RuleRefused,
    Snapshot,
    Stop,
    StorageDenied,
    StorageRefused,
    StorageUnavailable,
    StreamSummary,
    TableNotFound,
    UnsupportedFeature,
    build,
    is_debug_build,
)

__all__ = [
    "AnswerOptions",
    "Changes",
    "Contradiction",
    "CorruptLog",
    "Explanation",
    "FileReplaced",
    "Inventory",
    "LogError",
    "NdjsonChunks",
    "PruneCounts",
    "Rule",
    "RuleRefused",
    "Snapshot",
    "Stop",
    "StorageDenied",
    "StorageRefused",
    "StorageUnavailable",
    "StreamSummary",
    "TableNotFound",
    "UnsupportedFeature",
    "version_text",
]


def version_text() -> str:
    """Return the version, the commit, the build profile and the vector instructions that signing uses."""
    version, commit, simd_level = build()
    profile = "debug" if is_debug_build() else "release"
    return f"{version} (commit {commit}, {profile} build, SIMD {simd_level})"
