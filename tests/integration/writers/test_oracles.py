"""Every version of the known tables equals the listings of delta_kernel and deltalake, except as listed."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.native import native
from support.other_readers import Files, Listed, Version, listed_by_deltalake, listed_by_kernel, listed_by_us
from tables.golden import location, readable

NAMES = sorted(readable())

# Their checkpoints hold statistics as typed columns alone. The kernel gives the log's text, which they lack;
# the gateway renders it from the columns.
KERNEL_LOSES_STATISTICS = {name for name in NAMES if "typed-statistics-only" in name} | {
    "delta-rs/delta-1.2.1-only-struct-stats",
    "delta-rs/delta-checkpoint-stats-optional",
    "kernel-rs/v1-multi-part-partitioned-struct-stats-only",
    "kernel-rs/v1-multi-part-struct-stats-only",
    "kernel-rs/v1-single-part-struct-stats-only",
    "kernel-rs/v2-classic-parquet-struct-stats-only",
    "kernel-rs/v2-json-sidecars-struct-stats-only",
    "kernel-rs/v2-parquet-sidecars-struct-stats-only",
}
# As above, with timestamps in nanoseconds among the typed columns: deltalake gives no statistics at all then.
DELTALAKE_LOSES_STATISTICS = {"delta-rs/delta-1.2.1-only-struct-stats"}


@pytest.fixture(scope="module")
def kernel(kernel_program: Path) -> dict[Version, Files | str]:
    """Every version of every readable table, listed by delta_kernel."""
    versions = [version for name in NAMES for version in versions_of(name)]
    return dict(zip(versions, listed_by_kernel(kernel_program, versions), strict=True))


def versions_of(name: str) -> list[Version]:
    return [Version(location(name), number) for number in range(readable()[name]["version"] + 1)]


@pytest.mark.parametrize("name", NAMES)
def test_delta_kernel_lists_the_same_files(kernel: dict[Version, Files | str], name: str) -> None:
    losses = 0
    for version in versions_of(name):
        found = kernel[version]
        if isinstance(found, str):
            with pytest.raises(native().LogError):
                listed_by_us(version)
            continue
        listed = listed_by_us(version)
        losses += found != listed
        if name in KERNEL_LOSES_STATISTICS:
            listed = {
                key: file if found[key].stats else replace(file, stats=None) for key, file in listed.items()
            }
        assert found == listed, version.number
    assert bool(losses) == (name in KERNEL_LOSES_STATISTICS)


@pytest.mark.parametrize("name", NAMES)
def test_deltalake_lists_the_same_files(name: str) -> None:
    losses = 0
    for version in versions_of(name):
        try:
            listed = {path: Listed.of(file) for (path, _), file in listed_by_us(version).items()}
        except native().LogError:
            continue
        found = listed_by_deltalake(version)
        losses += found != listed
        if name in DELTALAKE_LOSES_STATISTICS:
            listed = {
                path: file if found[path].records is not None else replace(file, records=None)
                for path, file in listed.items()
            }
        assert found == listed, version.number
    assert bool(losses) == (name in DELTALAKE_LOSES_STATISTICS)
