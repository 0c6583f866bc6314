"""The directory for columns of tables, before a server uses it."""

import os
from pathlib import Path

import pytest

from gateway.server.cache_directory import directory_problem


def test_an_absent_directory_is_accepted_if_it_can_be_made(tmp_path: Path) -> None:
    assert directory_problem(tmp_path / "a" / "b") is None
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(("mode", "accepted"), [(0o700, True), (0o755, True), (0o770, False), (0o702, False)])
def test_a_directory_that_others_can_write_to_is_refused(
    tmp_path: Path, mode: int, *, accepted: bool
) -> None:
    directory = tmp_path / "columns"
    directory.mkdir()
    directory.chmod(mode)
    assert (directory_problem(directory) is None) == accepted


def test_a_link_and_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    assert directory_problem(tmp_path / "file") is not None
    assert directory_problem(tmp_path / "link") is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "columns"
    directory.mkdir(mode=0o500)
    assert directory_problem(directory) is not None
    assert directory_problem(directory / "below") is not None
