"""Turns a listing into read tasks: whole files, files without deleted rows, and change data.

In: the data files of an answer. Out: `ReadTask`s, packed into groups of similar size. Rows of a change feed
come from cdc files if a version has them, else from its adds and removes; a remove and an add of the same
file in one version are a change of the deletion vector, whose rows are the difference of the two vectors.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from gateway.client.actions import UNKNOWN_SIZE, DataFile, FileKind, UnsupportedTable

OPEN_COST_BYTES = 4 << 20


@dataclass(frozen=True)
class ReadTask:
    """Rows of one file: the rows in the deletion vector `only` (else all), except the rows in `without`."""

    file: DataFile
    without: DataFile | None = None
    only: DataFile | None = None
    change_type: str | None = None

    def __post_init__(self) -> None:
        """Raise UnsupportedTable for a file whose rows are needed and whose size the log leaves out."""
        if self.file.size_bytes == UNKNOWN_SIZE:
            raise UnsupportedTable(
                f"the table's log does not say the size of a file to {self.file.kind.value}"
            )

    @property
    def owners(self) -> tuple[DataFile, ...]:
        """Return the listed files whose URLs the task needs."""
        return tuple(file for file in (self.file, self.without, self.only) if file is not None)


def snapshot_tasks(files: Iterable[DataFile], change_type: str | None = None) -> Iterator[ReadTask]:
    """Return a task for each file, with its live rows."""
    return (_live(file, change_type) for file in files)


def change_tasks(files: Iterable[DataFile]) -> Iterator[ReadTask]:
    """Return the tasks for the change data of a range of versions."""
    for _, version_files in _by_version(files):
        changed = [file for file in version_files if file.data_change or file.kind is FileKind.CDC]
        cdc = [file for file in changed if file.kind is FileKind.CDC]
        yield from (ReadTask(file) for file in cdc)
        if not cdc:
            yield from _added_and_removed(changed)


def append_tasks(
    files: Iterable[DataFile], *, ignore_deletes: bool, skip_change_commits: bool
) -> Iterator[ReadTask]:
    """Return the tasks for the added rows of versions. Raises for removed rows, as Delta's stream does."""
    for version, version_files in _by_version(files):
        kinds = {file.kind is FileKind.REMOVE for file in version_files if file.data_change}
        if appends(version, kinds, ignore_deletes=ignore_deletes, skip_change_commits=skip_change_commits):
            yield from appended_tasks(version_files)


def appended_tasks(files: Iterable[DataFile]) -> Iterator[ReadTask]:
    """Return the tasks for the added rows of versions, of which none is to be left out."""
    return (_live(file) for file in files if file.data_change and file.kind is not FileKind.REMOVE)


def appends(
    version: int, removes: Collection[bool], *, ignore_deletes: bool, skip_change_commits: bool
) -> bool:
    """Return whether a version only adds rows, by whether its files remove rows.

    Raises UnsupportedTable for one that removes rows and is not to be left out.
    """
    if True in removes and not skip_change_commits and (False in removes or not ignore_deletes):
        raise UnsupportedTable(
            f"version {version} removes or rewrites rows: read its changes (readChangeFeed), or leave "
            "such versions (skipChangeCommits) or pure deletes (ignoreDeletes) out"
        )
    return True not in removes


def pack(tasks: Sequence[ReadTask], target_bytes: int | None) -> list[tuple[ReadTask, ...]]:
    """Group tasks, in order, into pieces of `target_bytes`, counting a cost for opening a file."""
    costs = [task.file.size_bytes + OPEN_COST_BYTES for task in tasks]
    target = target_bytes or piece_bytes(sum(costs))
    groups: list[tuple[ReadTask, ...]] = []
    group: list[ReadTask] = []
    filled = 0
    for task, cost in zip(tasks, costs, strict=True):
        if group and filled + cost > target:
            groups.append(tuple(group))
            group, filled = [], 0
        group.append(task)
        filled += cost
    return [*groups, tuple(group)] if group else groups


def piece_bytes(total: int) -> int:
    """Return the size of the pieces of a read, by the cost of all files: about 10,000 at most."""
    return max(total // 10_000, min(128 << 20, max(total // 64, 4 * OPEN_COST_BYTES)))


def with_version(files: Iterable[DataFile], version: int, timestamp_ms: int | None) -> list[DataFile]:
    """Return the files of a snapshot as if that version had added them all."""
    return [replace(file, version=version, timestamp_ms=timestamp_ms) for file in files]


def _live(file: DataFile, change_type: str | None = None) -> ReadTask:
    return ReadTask(file, without=file if file.deletion_vector else None, change_type=change_type)


def _by_version(files: Iterable[DataFile]) -> Iterator[tuple[int, list[DataFile]]]:
    """Group files by version, ascending; a server may send a range in any order."""
    listed = list(files)
    if any(file.version is None for file in listed):
        raise UnsupportedTable("the server's change files have no version")
    for version, group in groupby(sorted(listed, key=_version), key=_version):
        yield version, list(group)


def _version(file: DataFile) -> int:
    return file.version or 0


def _added_and_removed(files: Sequence[DataFile]) -> Iterator[ReadTask]:
    removed = {file.id: file for file in files if file.kind is FileKind.REMOVE}
    for file in files:
        if file.kind is FileKind.REMOVE:
            continue
        before = removed.pop(file.id, None)
        if before is None:
            yield _live(file, "insert")
        else:
            yield from _vector_difference(before, file)
    for file in removed.values():
        yield _live(file, "delete")


def _vector_difference(before: DataFile, after: DataFile) -> Iterator[ReadTask]:
    """Return the tasks of a changed deletion vector: rows that it adds are deletes, the others inserts."""
    old, new = before.deletion_vector, after.deletion_vector
    if new is not None:
        yield ReadTask(after, without=before if old else None, only=after, change_type="delete")
    if old is not None:
        yield ReadTask(after, without=after if new else None, only=before, change_type="insert")
