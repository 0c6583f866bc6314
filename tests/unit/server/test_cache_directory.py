"""The directory for columns of tables, before a server uses it."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from gateway.server.cache_directory import directory_problem

UNPRIVILEGED = 65534


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


@pytest.mark.processes
def test_a_directory_that_cannot_be_written_is_refused() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        Path(temporary).chmod(0o755)
        directory = Path(temporary) / "columns"
        directory.mkdir(mode=0o500)
        if os.geteuid() == 0:
            os.chown(directory, UNPRIVILEGED, UNPRIVILEGED)
        assert problems_for_unprivileged_users(directory, directory / "below") == [
            "it cannot be written",
            "it cannot be made",
        ]


def problems_for_unprivileged_users(*directories: Path) -> list[str]:
    """The results in a child, because root may write everywhere."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(*3 * [UNPRIVILEGED])
                os.setresuid(*3 * [UNPRIVILEGED])
            problems = [directory_problem(directory) for directory in directories]
            os.write(writer, json.dumps(problems).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        problems = pipe.read()
    os.waitpid(child, 0)
    return list(json.loads(problems))
