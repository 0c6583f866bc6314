"""How the test command makes what its parts share."""

import sys
from pathlib import Path

import pytest
import tools

FILES = (
    *("LICENSE", "deploy/pypi.md", "pyproject.toml", "rust-toolchain.toml", "rust/clippy.toml"),
    *("Cargo.toml", "Cargo.lock", "gateway/a.py", "gateway/_native.so", "rust/core/src/lib.rs"),
)


@pytest.mark.processes
def test_the_copy_of_the_sources_changes_where_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "CACHE", tmp_path / "cache")

    def copied(checkout: str, lib: str, *more: str) -> dict[str, int]:
        """The files of the copy with their times, after a command there has seen the sources."""
        root = tmp_path / checkout
        for name in (*FILES, *more):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(lib if name.endswith("lib.rs") else name)
        monkeypatch.setattr(tools, "ROOT", root)
        seen = f"assert open('rust/core/src/lib.rs').read() == {lib!r}"
        tools.run_on_copy(sys.executable, "-c", seen)
        copy = tmp_path / "cache/sources"
        paths = [path for path in copy.rglob("*") if path.is_file()]
        return {path.relative_to(copy).as_posix(): path.stat().st_mtime_ns for path in paths}

    first = copied("one", "1", "rust/core/src/gone.rs")
    assert first.keys() == {*FILES, "rust/core/src/gone.rs"} - {"gateway/_native.so"}
    second = copied("two", "2")
    assert second.keys() == first.keys() - {"rust/core/src/gone.rs"}
    assert {name for name in second if second[name] != first[name]} == {"rust/core/src/lib.rs"}
    assert copied("two", "2") == second
