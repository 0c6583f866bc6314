"""How the test command makes what its parts share."""

import fcntl
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import tools

FILES = (
    *("LICENSE", "deploy/pypi.md", "pyproject.toml", "rust-toolchain.toml", "rust/clippy.toml"),
    *("Cargo.toml", "Cargo.lock", "gateway/a.py", "gateway/_native.so", "rust/core/src/lib.rs"),
)


Copied = Callable[..., dict[str, int]]


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copied:
    """Runs a program on the sources of a checkout; returns the files of the copy with their times."""
    monkeypatch.setattr(tools, "CACHE", tmp_path / "cache")

    def run(checkout: str, lib: str, *more: str, program: str | None = None) -> dict[str, int]:
        root = tmp_path / checkout
        for name in (*FILES, *more):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(lib if name.endswith("lib.rs") else name)
        monkeypatch.setattr(tools, "ROOT", root)
        seen = f"assert open('rust/core/src/lib.rs').read() == {lib!r}"
        with tools.copied_sources() as copied:
            tools.run(sys.executable, "-c", program or seen, directory=copied)
        copy = tmp_path / "cache/sources"
        paths = [path for path in copy.rglob("*") if path.is_file()]
        return {path.relative_to(copy).as_posix(): path.stat().st_mtime_ns for path in paths}

    return run


@pytest.mark.processes
def test_the_copy_of_the_sources_changes_where_they_do(copied: Copied) -> None:
    first = copied("one", "1", "rust/core/src/gone.rs")
    assert first.keys() == {*FILES, "rust/core/src/gone.rs"} - {"gateway/_native.so"}
    second = copied("two", "2")
    assert second.keys() == first.keys() - {"rust/core/src/gone.rs"}
    assert {name for name in second if second[name] != first[name]} == {"rust/core/src/lib.rs"}
    assert copied("two", "2") == second


@pytest.mark.processes
def test_a_directory_takes_the_place_of_a_file_and_the_reverse(copied: Copied) -> None:
    for checkout, file in [("one", "data"), ("two", "data/a/b.txt"), ("three", "data")]:
        name = f"rust/core/tests/{file}"
        assert {*copied(checkout, "", name)} == {*FILES, name} - {"gateway/_native.so"}


def test_another_checkout_waits_for_the_end_of_a_block(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "run", lambda *_words, **_options: None)
    copied("one", "1")

    def is_free() -> bool:
        with (tools.CACHE / "locks/sources").open() as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    with tools.copied_sources() as copy:
        assert (copy / "rust/core/src/lib.rs").read_text() == "1"
        assert not is_free()
    assert is_free()


@pytest.mark.processes
def test_the_seeds_of_failed_properties_come_into_the_checkout(copied: Copied, tmp_path: Path) -> None:
    seeds = "rust/core/proptest-regressions/a/tests.txt"
    fails = f"import os; os.makedirs(os.path.dirname({seeds!r})); open({seeds!r}, 'w').write('cc'); exit(1)"
    with pytest.raises(tools.Failed):
        copied("one", "", program=fails)
    assert (tmp_path / "one" / seeds).read_text() == "cc"
    assert seeds in copied("one", "")
    assert seeds not in copied("two", "")
