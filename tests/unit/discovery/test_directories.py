"""Searches for tables: what they find, refuse and cannot say, and what is known after them."""

import os
import shutil
from pathlib import Path

import pytest
import yaml

from gateway import _native
from gateway.catalog.discovered import FoundTable
from gateway.config import Config, Location, loads
from gateway.discovery import directories
from gateway.discovery.directories import search
from gateway.discovery.known_tables import KnownTables, SearchResult
from gateway.discovery.names import name_problem
from gateway.discovery.searches import search_once
from gateway.storage.registry import Storages


class Listed:
    """A store whose listings are counted, and fail as a test says."""

    def __init__(self, root: Path, bucket: str = "b") -> None:
        self.root, self.bucket = root, bucket
        self.keys: list[str] = []
        self.failing: dict[str, Exception] = {}
        self.native = self

    def renew(self) -> None:
        """Nothing is renewed."""

    def list_directories(self, key: str) -> tuple[list[str], bool]:
        self.keys.append(key)
        if key in self.failing:
            raise self.failing[key]
        path = self.root / key
        return sorted(one.name for one in path.iterdir()) if path.exists() else [], False


def source_of(discover: str, **keys: object) -> object:
    (source,) = configured(discover, **keys).sources
    return source


def configured(discover: str, **keys: object) -> Config:
    shares = [{"name": "s", "tables": {"discover": discover, **keys}}]
    return loads(yaml.safe_dump({"version": 1, "shares": shares, "gateway": {"anonymous": True}}))


def tables_in(root: Path, *names: str) -> None:
    for name in names:
        (root / name / "_delta_log").mkdir(parents=True)


def local(root: Path, **keys: object) -> tuple[list[str], KnownTables]:
    """The names of a search of local files."""
    config = configured(f"{root}/{{schema}}/{{table}}", **keys)
    storages = Storages(config, url_key=b"", environment={})
    try:
        (known,) = search_once(config, storages).values()
    finally:
        storages.close()
    return names_of(known), known


def names_of(known: KnownTables) -> list[str]:
    return [f"{table.schema}.{table.name}" for table in known.distinct()[0]]


def test_each_directory_with_a_log_is_a_table(tmp_path: Path) -> None:
    tables_in(tmp_path, "a/t", "a/u", "b/t", "_hidden/t", ".x/t", "a/day=1", "c/deep/t", "top")
    (tmp_path / "a/no-table").mkdir()
    (tmp_path / "a/file").write_text("")
    # A name that is no UTF-8 can be that of no table.
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/a/\xff")) / "_delta_log").mkdir(parents=True)
    names, known = local(tmp_path)
    assert names == ["a.t", "a.u", "b.t"]
    assert known.last.problem == ""
    assert local(tmp_path, maxDepth=1)[0] == ["a.t", "a.u", "b.t", "c.deep_t"]


def test_no_link_on_the_way_to_a_table_leads_out_of_the_searched_directory(tmp_path: Path) -> None:
    tables_in(tmp_path, "in/a/delta/t", "in/b/delta/u", "in/b/delta/v", "out/delta/secret", "out/log")
    (tmp_path / "in/c").mkdir()
    (tmp_path / "in/c/delta").symlink_to(tmp_path / "out/delta")
    (tmp_path / "in/b/delta/v/_delta_log").rmdir()
    (tmp_path / "in/b/delta/v/_delta_log").symlink_to(tmp_path / "out/log/_delta_log")
    (tmp_path / "in/d").symlink_to(tmp_path / "in/a")
    config = configured(f"{tmp_path}/in/{{schema}}/delta/{{table}}")
    storages = Storages(config, url_key=b"", environment={})
    try:
        (known,) = search_once(config, storages).values()
    finally:
        storages.close()
    assert names_of(known) == ["a.t", "b.u", "d.t"]
    refused = {
        Path(one.name.removeprefix("file://")).relative_to(tmp_path): one.reason for one in known.last.refused
    }
    assert {str(path) for path in refused} == {"in/c/delta", "in/b/delta/v/_delta_log"}
    assert all("a link out of" in reason for reason in refused.values())


def test_a_local_table_is_kept_while_its_directory_cannot_be_read(
    tmp_path: Path,
) -> None:
    tables_in(tmp_path, "a/t", "a/u")
    config = configured(f"{tmp_path}/{{schema}}/{{table}}")
    (source,) = config.sources
    storages = Storages(config, url_key=b"", environment={})
    try:
        store = storages.store(source.discovery.template.root)
        known = KnownTables().after(search(store, source, KnownTables()), now_seconds=0, keep_seconds=9)
        (tmp_path / "a/t/_delta_log").rmdir()
        # Root may read every directory. A link to itself is an error for root, too.
        (tmp_path / "a/u/_delta_log").rmdir()
        (tmp_path / "a/u/_delta_log").symlink_to("_delta_log")
        for _ in range(2):
            known = known.after(search(store, source, known), now_seconds=1, keep_seconds=9)
        assert names_of(known) == ["a.u"], "a log that is gone withdraws its table, an error keeps it"
        assert "OSError" in known.last.problem
        known = known.after(search(store, source, known), now_seconds=10, keep_seconds=9)
        assert names_of(known) == []
    finally:
        storages.close()


def test_text_around_a_placeholder_is_no_part_of_a_name(tmp_path: Path) -> None:
    tables_in(tmp_path, "sales.db/delta/t", "sales.db/delta/u", "other/delta/t", ".db/delta/t")
    source = source_of("s3://b/{schema}.db/delta/{table}")
    found = search(Listed(tmp_path), source, KnownTables())  # type: ignore[arg-type]
    assert [(table.schema, table.name) for table in found.tables] == [("sales", "t"), ("sales", "u")]


def test_hostile_names_are_refused_one_by_one(tmp_path: Path) -> None:
    odd = ["a\nb", "right\u202eleft", "n\u00adame", "x" * 250]
    tables_in(tmp_path, "d/fine", "d/ü", *(f"d/{name}" for name in odd[:3]), "D2/t", "d2/u")
    tables_in(tmp_path, "e/Orders", "e/orders", "e/other")
    outside = tmp_path.parent / "outside"
    tables_in(outside, "secret")
    (tmp_path / "d/link").symlink_to(outside / "secret")
    (tmp_path / "schema-link").symlink_to(outside)
    (tmp_path / "d/inner").symlink_to(tmp_path / "d/fine")
    names, known = local(tmp_path)
    assert names == ["d.fine", "d.inner", "d.ü", "e.other"]
    refused = {Path(one.name).name: one.reason for one in (*known.last.refused, *known.distinct()[1])}
    assert all("control character" in refused[name] for name in odd[:3])
    assert "a link out of" in refused["link"]
    assert "a link out of" in refused["schema-link"]
    assert refused["Orders"] == refused["orders"] == "another table has its name without case"
    assert refused["t"] == refused["u"] == "another schema has its name without case"


@pytest.mark.parametrize("name", [".", "..", "a" * 256, "a\x00b", "a/b"])
def test_names_that_no_local_directory_can_have_are_refused(name: str) -> None:
    assert name_problem(name) is not None


def test_limits_end_a_search_and_keep_what_is_known(tmp_path: Path) -> None:
    tables_in(tmp_path, *(f"w/d{number}/t" for number in range(20)))
    store = Listed(tmp_path)
    source = source_of("s3://b/w/{schema}/{table}")
    whole = KnownTables().after(search(store, source, KnownTables()), now_seconds=0, keep_seconds=60)  # type: ignore[arg-type]
    assert len(whole.seen) == 20
    assert len(store.keys) == 41
    few = source_of("s3://b/w/{schema}/{table}", maxCalls=11)
    store.keys.clear()
    result = search(store, few, whole)  # type: ignore[arg-type]
    assert len(store.keys) == 11
    assert "maxCalls" in result.problem
    assert len(whole.after(result, now_seconds=50, keep_seconds=60).seen) == 20
    assert len(whole.after(result, now_seconds=61, keep_seconds=60).seen) == len(result.tables) < 20
    some = search(store, source_of("s3://b/w/{schema}/{table}", maxTables=5), KnownTables())  # type: ignore[arg-type]
    assert len(some.tables) == 5
    assert "maxTables" in some.problem


def test_of_too_many_tables_the_known_ones_stay(tmp_path: Path) -> None:
    tables_in(tmp_path, "d/m", "d/n")
    source = source_of("s3://b/{schema}/{table}", maxTables=2)
    store = Listed(tmp_path)
    known = KnownTables().after(search(store, source, KnownTables()), now_seconds=0, keep_seconds=0)  # type: ignore[arg-type]
    tables_in(tmp_path, "d/a")
    known = known.after(search(store, source, known), now_seconds=1, keep_seconds=0)  # type: ignore[arg-type]
    assert names_of(known) == ["d.m", "d.n"]


@pytest.mark.parametrize(
    ("failing", "kept"),
    [
        ({"w": _native.StorageUnavailable("down")}, ["a.t", "b.t"]),
        ({"w": _native.StorageDenied("denied")}, ["a.t", "b.t"]),
        ({"w/b": _native.StorageDenied("denied")}, ["b.t"]),
        ({"w/b": _native.StorageUnavailable("down")}, ["b.t"]),
        ({}, []),
    ],
)
def test_a_storage_that_fails_keeps_what_was_known(
    tmp_path: Path, failing: dict[str, Exception], kept: list[str]
) -> None:
    tables_in(tmp_path, "w/a/t", "w/b/t")
    store, source = Listed(tmp_path), source_of("s3://b/w/{schema}/{table}")
    known = KnownTables().after(search(store, source, KnownTables()), now_seconds=0, keep_seconds=60)  # type: ignore[arg-type]
    assert names_of(known) == ["a.t", "b.t"]
    for name in ("a", "b"):
        shutil.rmtree(tmp_path / f"w/{name}/t")
    store.failing = failing
    result = search(store, source, known)  # type: ignore[arg-type]
    assert bool(result.problem) == bool(failing)
    after = known.after(result, now_seconds=60, keep_seconds=60)
    assert names_of(after) == ["a.t", "b.t"], "one search that finds nothing withdraws nothing"
    assert bool(after.missing) == (kept != ["a.t", "b.t"])
    after = after.after(result, now_seconds=60, keep_seconds=60)
    assert names_of(after) == kept
    assert names_of(after.after(result, now_seconds=61, keep_seconds=60)) == []


def test_a_storage_that_fails_is_not_called_for_each_directory(tmp_path: Path) -> None:
    tables_in(tmp_path, *(f"d{number:03}/t" for number in range(100)))
    store = Listed(tmp_path)
    store.failing = {f"d{number:03}": _native.StorageUnavailable("down") for number in range(100)}
    result = search(store, source_of("s3://b/{schema}/{table}"), KnownTables())  # type: ignore[arg-type]
    assert len(store.keys) == 1 + directories.CONCURRENT_LISTINGS
    assert result.problem.startswith("StorageUnavailable")


@pytest.mark.parametrize("loop", ["d00loop", "d00/loop"])
@pytest.mark.parametrize("below", ["", "latest"])
def test_a_link_to_itself_hides_no_table(tmp_path: Path, loop: str, below: str) -> None:
    tables_in(tmp_path, *(f"d{number:02}/t" for number in range(20)))
    (tmp_path / loop).symlink_to(tmp_path / loop / below)
    names, known = local(tmp_path)
    assert names == [f"d{number:02}.t" for number in range(20)]
    assert [one.reason for one in known.last.refused] == ["it is a link to itself"]
    assert (known.last.problem, known.last.is_cut) == ("", False)


def test_a_log_that_is_a_link_to_itself_hides_no_table(tmp_path: Path) -> None:
    tables_in(tmp_path, "a/t")
    (tmp_path / "a/u").mkdir()
    (tmp_path / "a/u/_delta_log").symlink_to("_delta_log")
    names, known = local(tmp_path)
    assert (names, known.last.is_cut) == (["a.t"], False)
    assert known.last.problem.startswith("OSError")


@pytest.mark.parametrize("link", ["a/u", "a/u/_delta_log"])
def test_a_link_to_a_name_that_no_file_can_have_leads_nowhere(tmp_path: Path, link: str) -> None:
    tables_in(tmp_path, "a/t")
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to("n" * 300)
    names, known = local(tmp_path)
    assert (names, known.last.problem, known.last.is_cut) == (["a.t"], "", False)


def test_known_tables_are_listed_by_one_search_in_ten(tmp_path: Path) -> None:
    tables_in(tmp_path, *(f"d/t{number}" for number in range(200)))
    store, source = Listed(tmp_path), source_of("s3://b/{schema}/{table}")
    known, listed = KnownTables(), []
    for _ in range(directories.RECHECK_EVERY + 1):
        store.keys.clear()
        known = known.after(search(store, source, known), now_seconds=0, keep_seconds=0)  # type: ignore[arg-type]
        listed.append(set(store.keys) - {"", "d"})
    assert len(listed[0]) == 200
    assert all(len(some) < 60 for some in listed[1:])
    assert set().union(*listed[1:]) == listed[0]


def test_a_missing_local_root_is_a_storage_that_fails(tmp_path: Path) -> None:
    names, known = local(tmp_path / "gone")
    assert names == []
    assert known.last.is_unknown(FoundTable("d", "t", Location("file", "", str(tmp_path / "gone/d/t"))))
    assert not SearchResult().is_unknown(FoundTable("d", "t", Location("file", "", "/")))


def test_a_dot_in_a_name_becomes_an_underscore_where_the_configuration_says_so(tmp_path: Path) -> None:
    tables_in(tmp_path, "v1.2/a.b.c", "plain/t", "v1_2/other")
    assert local(tmp_path)[0] == ["plain.t", "v1.2.a.b.c", "v1_2.other"]
    names, _ = local(tmp_path, replaceDots=True)
    assert sorted(names) == ["plain.t", "v1_2.a_b_c", "v1_2.other"]
    # Two directories of one name: none has it, and both are reported.
    tables_in(tmp_path, "v1_2/a.b_c")
    names, known = local(tmp_path, replaceDots=True)
    assert sorted(names) == ["plain.t", "v1_2.other"]
    assert len(known.distinct()[1]) == 2
