"""Whether something is there in a file system."""

from pathlib import Path

import pytest

from gateway.paths import exists


def test_what_cannot_be_looked_at_is_neither_there_nor_absent(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    assert not exists(file)
    file.touch()
    link.symlink_to(file)
    assert exists(file)
    assert exists(link)
    assert not exists(file / "below")
    file.unlink()
    assert not exists(link)
    file.symlink_to(link)
    with pytest.raises(OSError, match="symbolic links"):
        exists(file)
