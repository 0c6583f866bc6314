"""Files packed into tasks."""

from typing import Any

import pytest

from gateway.client.actions import (
    DataFile,
    DeletionVector,
    FileKind,
    UnsupportedTable,
)
from gateway.spark.read.tasks import append_tasks, change_tasks, pack, snapshot_tasks


def listed(kind: FileKind, name: str, version: int, vector: int | None = None, **more: Any) -> DataFile:
    deletion_vector = DeletionVector(f"v{vector}", None, 0, 1, 1, None) if vector is not None else None
    return DataFile(kind, name, "http://x/y", 10, {}, deletion_vector, version, 0, **more)


class TestTasks:
    def test_cdc_files_replace_a_versions_adds_and_removes(self) -> None:
        files = [
            listed(FileKind.ADD, "a", 1),
            listed(FileKind.REMOVE, "b", 2),
            listed(FileKind.CDC, "c", 2),
            listed(FileKind.ADD, "d", 2),
        ]
        assert [(task.file.id, task.change_type) for task in change_tasks(files)] == [
            ("a", "insert"),
            ("c", None),
        ]

    def test_a_changed_deletion_vector_is_the_difference_of_two(self) -> None:
        before, after = listed(FileKind.REMOVE, "a", 3, 1), listed(FileKind.ADD, "a", 3, 2)
        deletes, inserts = change_tasks([after, before])
        assert (deletes.change_type, deletes.only, deletes.without) == ("delete", after, before)
        assert (inserts.change_type, inserts.only, inserts.without) == ("insert", before, after)

    def test_a_first_deletion_vector_deletes_its_rows_only(self) -> None:
        before, after = listed(FileKind.REMOVE, "a", 3), listed(FileKind.ADD, "a", 3, 2)
        (deletes,) = change_tasks([before, after])
        assert (deletes.change_type, deletes.only, deletes.without) == ("delete", after, None)

    def test_rearranged_data_is_no_change(self) -> None:
        files = [
            listed(FileKind.REMOVE, "a", 1, data_change=False),
            listed(FileKind.ADD, "b", 1, data_change=False),
        ]
        assert list(change_tasks(files)) == []
        assert list(append_tasks(files, ignore_deletes=False, skip_change_commits=False)) == []

    def test_rearranged_files_are_rows_of_a_snapshot(self) -> None:
        assert len(list(snapshot_tasks([listed(FileKind.ADD, "b", 1, data_change=False)]))) == 1

    def test_a_stream_stops_at_a_delete_unless_an_option_ignores_it(self) -> None:
        files = [listed(FileKind.ADD, "a", 1), listed(FileKind.REMOVE, "a", 2), listed(FileKind.ADD, "b", 3)]
        with pytest.raises(UnsupportedTable, match="version 2"):
            list(append_tasks(files, ignore_deletes=False, skip_change_commits=False))
        for options in (
            {"ignore_deletes": True, "skip_change_commits": False},
            {"ignore_deletes": False, "skip_change_commits": True},
        ):
            assert [task.file.id for task in append_tasks(files, **options)] == ["a", "b"]

    def test_packing_keeps_every_task_once_and_in_order(self) -> None:
        tasks = list(snapshot_tasks(listed(FileKind.ADD, str(i), 0) for i in range(100)))
        groups = pack(tasks, 20_000_000)
        assert [task for group in groups for task in group] == tasks
        assert 1 < len(groups) < 100
        assert pack([], None) == []
