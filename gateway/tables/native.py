"""The native types and functions that callers of this package work with, and the version of the build."""

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
    cache_directory_counts,
    cache_used_bytes,
    configure,
    is_debug_build,
    log_faults,
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
    "cache_directory_counts",
    "cache_used_bytes",
    "configure",
    "log_faults",
    "version_text",
]


def version_text() -> str:
    """Return the version, the commit, the build profile and the vector instructions that signing uses."""
    version, commit, simd_level = build()
    profile = "debug" if is_debug_build() else "release"
    return f"{version} (commit {commit}, {profile} build, SIMD {simd_level})"
