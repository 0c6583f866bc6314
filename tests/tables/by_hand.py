"""Tables written by hand: each function writes a table into an empty directory.

Together they hold every form of checkpoint, every kind of deletion vector, column mapping by name and by id,
type widening, and features that this server refuses.
"""

import datetime as dt
import decimal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tables.random_logs import FORMS, Form, Statistics, write_lines
from tables.writer import Column, Table, in_file, inline, with_runs

Maker = Callable[[Path], "Table | None"]
TABLES: dict[str, Maker] = {}

ID = Column("id", "integer")
WORD = Column("word", "string")
PART = Column("part", "string")
VECTORS = ("deletionVectors",)


def made(function: Maker) -> Maker:
    """Registers a table under its function's name."""
    TABLES[function.__name__.replace("_", "-")] = function
    return function


def word_rows(*ids: int) -> list[dict[str, Any]]:
    """Rows of the columns `id` and `word`."""
    return [{"id": number, "word": f"word {number}" if number % 5 else None} for number in ids]


# Checkpoints


def history(root: Path, *, features: Sequence[str] = (), before: Callable[[Table], None]) -> Table:
    """Six versions of a partitioned table; `before` runs after version 3, where the checkpoint belongs."""
    table = Table(root, [ID, WORD, PART], ["part"], [*VECTORS, *features])
    first, second = (table.add(word_rows(*range(at, at + 6)), partition={"part": "a b"}) for at in (0, 6))
    table.commit(first, second)
    third = table.add(word_rows(20, 21), partition={"part": None})
    table.commit(third, {"txn": {"appId": "app", "version": 7, "lastUpdated": 1_700_000_000_000}})
    table.commit(table.remove(first))
    (vector,) = in_file(root, [[0, 3]])
    table.commit(*table.hide(second, vector, [0, 3]))
    before(table)
    fourth = table.add(word_rows(30, 31, 32), partition={"part": "50%/ü"})
    table.commit(fourth)
    table.commit(table.remove(third), table.add(word_rows(40), partition={"part": "a b"}))
    return table


def checkpoint_maker(form: Form, statistics: Statistics) -> Maker:
    """A history with one checkpoint."""

    def make(root: Path) -> Table:
        features = ("v2Checkpoint",) if form.startswith("v2") else ()
        return history(
            root, features=features, before=lambda table: table.checkpoint(form, statistics=statistics)
        )

    return make


for _form in FORMS:
    TABLES[f"checkpoint-{_form}"] = checkpoint_maker(_form, "text")
    if "json" not in _form or "sidecars" in _form:
        TABLES[f"checkpoint-{_form}-typed-statistics-only"] = checkpoint_maker(_form, "typed")
TABLES["checkpoint-single-both-statistics"] = checkpoint_maker("single", "both")


@made
def no_checkpoint(root: Path) -> Table:
    """Commits alone."""
    return history(root, before=lambda _: None)


@made
def first_commits_missing(root: Path) -> Table:
    """A checkpoint whose commits were cleaned up."""
    table = history(root, before=lambda table: table.checkpoint("single"))
    table.clean_up(4)
    return table


@made
def first_commits_missing_without_a_hint(root: Path) -> Table:
    """A checkpoint with sidecars, found by listing the log."""
    table = history(
        root,
        features=("v2Checkpoint",),
        before=lambda table: table.checkpoint("v2-sidecars", hint="absent"),
    )
    table.clean_up(4)
    return table


def hint_maker(hint: str) -> Maker:
    """A right checkpoint, and a `_last_checkpoint` that is not."""

    def make(root: Path) -> Table:
        table = history(root, before=lambda table: table.checkpoint("single", hint=hint))
        if hint == "absent":
            table.checkpoint("single", hint="absent")
        return table

    return make


for _hint in ("missing", "broken", "absent"):
    TABLES[f"last-checkpoint-{_hint}"] = hint_maker(_hint)


@made
def last_checkpoint_stale(root: Path) -> Table:
    """The hint names an older checkpoint than there is."""
    table = history(root, before=lambda table: table.checkpoint("single"))
    table.checkpoint("multi-part", hint="stale")
    return table


@made
def checkpoint_half_written(root: Path) -> Table:
    """The newest checkpoint lacks a part; the one before is whole."""
    table = history(root, before=lambda table: table.checkpoint("single"))
    table.checkpoint("multi-part", hint="stale")
    version = table.next_version - 1
    (table.log / f"{version:020}.checkpoint.{2:010}.{2:010}.parquet").unlink()
    return table


@made
def checkpoints_of_every_form(root: Path) -> Table:
    """A checkpoint of another form at each version."""
    table = Table(root, [ID, WORD], reader_features=["v2Checkpoint", *VECTORS])
    for number, form in enumerate(FORMS):
        old = [{"add": add} for add in table.live.values()][:1]
        table.commit(*map(table.remove, old), *(table.add(word_rows(number, at)) for at in (100, 200)))
        table.checkpoint(form)
    return table


@made
def compacted_commits(root: Path) -> Table:
    """Log compaction files after a checkpoint: an empty one, and one without the removes of its commits."""
    table = history(root, before=lambda table: table.checkpoint("single"))
    adds = [table.add(word_rows(50 + number), partition={"part": "c"}) for number in range(3)]
    for add in adds:
        table.commit(add)
    table.compact_badly(4, 7)
    table.commit(table.remove(adds[0]))
    table.compact_badly(6, table.next_version - 1, adds[1:])
    return table


@made
def checksum_files(root: Path) -> Table:
    """A right checksum at the latest version."""
    table = history(root, before=lambda table: table.checksum())
    table.checksum()
    return table


@made
def checksum_malformed(root: Path) -> Table:
    """A checksum that is no JSON is ignored."""
    table = history(root, before=lambda _: None)
    (table.log / f"{table.next_version - 1:020}.crc").write_text('{"tableSizeBytes": ')
    return table


# Deletion vectors


@made
def deletion_vectors_by_uuid(root: Path) -> Table:
    """Vectors in a file below a random prefix, several in one file, one replaced by another."""
    table = Table(root, [ID, WORD], reader_features=VECTORS)
    adds = [table.add(word_rows(*range(at, at + 10))) for at in (0, 10, 20)]
    table.commit(*adds)
    one, two, three = in_file(root, [[0, 9], [1], [2, 3, 4]], prefix="ab")
    table.commit(*table.hide(adds[0], one, [0, 9]), *table.hide(adds[1], two, [1]))
    hidden = {"add": next(add for add in table.live.values() if add["path"] == adds[0]["add"]["path"])}
    table.commit(*table.hide(hidden, three, [2, 3, 4]))
    return table


@made
def deletion_vectors_by_absolute_path(root: Path) -> Table:
    """Vectors in a file that its URI names."""
    table = Table(root, [ID, WORD], reader_features=VECTORS)
    first = table.add(word_rows(*range(8)))
    table.commit(first)
    (vector,) = in_file(root, [[1, 7]], absolute=True)
    table.commit(*table.hide(first, vector, [1, 7]))
    return table


@made
def deletion_vectors_inline(root: Path) -> Table:
    """Vectors in the log itself, also through a checkpoint."""
    table = Table(root, [ID, WORD], reader_features=VECTORS)
    adds = [table.add(word_rows(*range(at, at + 8))) for at in (0, 8)]
    table.commit(*adds)
    table.commit(*table.hide(adds[0], inline([3, 4, 7]), [3, 4, 7]))
    table.checkpoint("single")
    table.commit(*table.hide(adds[1], inline([0]), [0]))
    return table


@made
def deletion_vectors_of_every_container(root: Path) -> Table:
    """Roaring containers of values, of bits and of runs, over more than one key."""
    table = Table(root, [ID], reader_features=VECTORS)
    ids = [{"id": number} for number in range(70_000)]
    adds = [table.add(ids), table.add(ids[:9_000]), table.add(ids[:300])]
    table.commit(*adds)
    few, many = {5, 65_535, 65_536, 69_999}, set(range(0, 9_000, 2))
    bits, sparse, runs = in_file(root, [many, few, with_runs((10, 20), (100, 150))])
    table.commit(
        *table.hide(adds[0], sparse, few),
        *table.hide(adds[1], bits, many),
        *table.hide(adds[2], runs, {*range(10, 30), *range(100, 250)}),
    )
    return table


@made
def deletion_vector_of_a_whole_file(root: Path) -> Table:
    """All rows of one file are hidden; the file stays."""
    table = Table(root, [ID, WORD], reader_features=VECTORS)
    first = table.add(word_rows(1, 2))
    table.commit(first, table.add(word_rows(3)))
    table.commit(*table.hide(first, inline([0, 1]), [0, 1]))
    return table


@made
def deletion_vector_taken_back(root: Path) -> Table:
    """A file that had a vector is restored without one: the same path, another logical file."""
    table = Table(root, [ID, WORD], reader_features=VECTORS)
    first = table.add(word_rows(1, 2, 3))
    table.commit(first)
    remove, hidden = table.hide(first, inline([1]), [1])
    table.commit(remove, hidden)
    table.commit(table.remove(hidden), first)
    return table


# Columns


def mapped_columns(root: Path, mode: str, *, features: bool) -> Table:
    """Physical names that differ from the logical, a partition column among them."""
    columns = [
        Column("id", "integer", physical="col-1a", field_id=1),
        Column("a word", "string", physical="col-2b", field_id=2),
        Column("part of", "string", physical="col-3c", field_id=3),
    ]
    configuration = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "3"}
    listed = ["columnMapping"] if features else []
    table = Table(root, columns, ["part of"], listed, versions=(2, 5), configuration=configuration)
    for number, part in enumerate(("x", "y z", None)):
        rows = [{"id": number, "a word": "w"}, {"id": number + 10, "a word": None}]
        table.commit(table.add(rows, partition={"part of": part}))
    table.checkpoint("single", statistics="both")
    table.columns = [columns[0], Column("renamed", "string", physical="col-2b", field_id=2), columns[2]]
    for rows in table.rows_of.values():
        for row in rows:
            row["renamed"] = row.pop("a word")
    table.commit(
        {"metaData": table.metadata}, table.add([{"id": 9, "renamed": "n"}], partition={"part of": "x"})
    )
    return table


@made
def column_mapping_by_name(root: Path) -> Table:
    """Protocol 2/5, a renamed column."""
    return mapped_columns(root, "name", features=False)


@made
def column_mapping_by_id(root: Path) -> Table:
    """The feature, field ids in the files, a renamed column."""
    return mapped_columns(root, "id", features=True)


@made
def type_widening(root: Path) -> Table:
    """A file written before an integer became a long."""
    table = Table(
        root, [ID, WORD], reader_features=["typeWidening"], configuration={"delta.enableTypeWidening": "true"}
    )
    table.commit(table.add(word_rows(1, 2)))
    change = [{"fromType": "integer", "toType": "long"}]
    table.columns = [Column("id", "long", metadata={"delta.typeChanges": change}), WORD]
    table.commit({"metaData": table.metadata})
    table.commit(table.add(word_rows(5_000_000_000)))
    return table


@made
def timestamps_without_a_zone(root: Path) -> Table:
    """TIMESTAMP_NTZ as data and as partition."""
    columns = [ID, Column("at", "timestamp_ntz"), Column("part", "timestamp_ntz")]
    table = Table(root, columns, ["part"], ["timestampNtz"])
    at = dt.datetime(2024, 3, 31, 2, 30, 0, 500_000)  # noqa: DTZ001 - without a zone
    table.commit(
        table.add(
            [{"id": 1, "at": at}],
            partition={"part": "2024-03-31 02:30:00.5"},
            of_partition={"part": at},
            stats=False,
        ),
        table.add([{"id": 2, "at": None}], partition={"part": None}, stats=False),
    )
    return table


@made
def variants(root: Path) -> Table:
    """Semi-structured values: null, true and a short string."""
    table = Table(root, [ID, Column("v", "variant")], reader_features=["variantType"])
    values = [b"\x00", b"\x04", b"\x05a"]
    rows = [
        {"id": number, "v": {"metadata": b"\x01\x00\x00", "value": value}}
        for number, value in enumerate(values)
    ]
    table.commit(table.add(rows))
    return table


@made
def partition_value_types(root: Path) -> Table:
    """Each primitive type as a partition, with null and with limits."""
    kinds = ["string", "date", "timestamp", "boolean", "decimal(10,3)", "long", "double", "byte", "binary"]
    parts = [Column(f"p{number}", kind) for number, kind in enumerate(kinds)]
    table = Table(root, [ID, *parts], [column.name for column in parts])
    texts: list[tuple[str | None, ...]] = [
        ("a b", "2024-02-29", "2024-02-29 12:34:56.789", "true", "1.500", "7", "1.5", "-1", "AB"),
        (
            "50%",
            "0001-01-01",
            "1969-12-31 23:59:59",
            "false",
            "-0.001",
            "-9223372036854775808",
            "-0.0",
            "1",
            "a",
        ),
        (None,) * 9,
    ]
    utc = dt.UTC
    values: list[tuple[Any, ...]] = [
        (
            "a b",
            dt.date(2024, 2, 29),
            dt.datetime(2024, 2, 29, 12, 34, 56, 789_000, utc),
            True,
            decimal.Decimal("1.500"),
            7,
            1.5,
            -1,
            b"AB",
        ),
        (
            "50%",
            dt.date(1, 1, 1),
            dt.datetime(1969, 12, 31, 23, 59, 59, 0, utc),
            False,
            decimal.Decimal("-0.001"),
            -(2**63),
            -0.0,
            1,
            b"a",
        ),
        (None,) * 9,
    ]
    names = [column.name for column in parts]
    table.commit(
        *(
            table.add(
                [{"id": number}],
                partition=dict(zip(names, text, strict=True)),
                of_partition=dict(zip(names, value, strict=True)),
            )
            for number, (text, value) in enumerate(zip(texts, values, strict=True))
        )
    )
    return table


@made
def partition_directories_to_escape(root: Path) -> Table:
    """Names that are escaped in the file system and once more in the log."""
    table = Table(root, [ID, PART], ["part"])
    values = ["a b", "50%", "k=v", "ü", "a:b", "'\"", "x/y"]
    table.commit(
        *(
            table.add(
                [{"id": number}],
                partition={"part": value},
                directory=f"part={directory}/",
            )
            for number, (value, directory) in enumerate(
                zip(values, ["a b", "50%25", "k%3Dv", "ü", "a%3Ab", "%27%22", "x%2Fy"], strict=True)
            )
        )
    )
    return table


@made
def partition_value_empty(root: Path) -> Table:
    """An empty string as a partition value, which PROTOCOL reads as null."""
    table = Table(root, [ID, PART], ["part"])
    table.commit(
        table.add([{"id": 1}], partition={"part": ""}, of_partition={"part": None}),
        table.add([{"id": 2}], partition={"part": "x"}),
    )
    return table


# Actions and features


@made
def removes_without_extended_metadata(root: Path) -> Table:
    """Removes that say only which file is gone, in commits and in a checkpoint."""
    table = Table(root, [ID, WORD, PART], ["part"])
    adds = [table.add(word_rows(number), partition={"part": "p"}) for number in range(4)]
    table.commit(*adds)
    table.commit(table.remove(adds[0], extended=False), table.remove(adds[1]))
    table.checkpoint("single")
    table.commit(table.remove(adds[2], extended=False))
    return table


@made
def tags_and_transactions(root: Path) -> Table:
    """Tags of adds and removes, and transactions of two applications."""
    table = Table(root, [ID, WORD])
    tagged = table.add(word_rows(1), tags={"INSERTION_TIME": "1700000000000000", "empty": None})
    table.commit(tagged, {"txn": {"appId": "a", "version": 1}})
    table.commit(
        table.add(word_rows(2), tags={}),
        {"txn": {"appId": "b", "version": 9, "lastUpdated": 1_700_000_001_000}},
    )
    table.checkpoint("single")
    table.commit(table.remove(tagged))
    return table


@made
def row_tracking(root: Path) -> Table:
    """Base row ids, default row commit versions and the domain that counts them."""
    configuration = {"delta.enableRowTracking": "true"}
    table = Table(
        root, [ID, WORD], writer_features=["rowTracking", "domainMetadata"], configuration=configuration
    )

    def mark(highest: int) -> dict[str, Any]:
        text = f'{{"rowIdHighWaterMark":{highest}}}'
        domain = {"domain": "delta.rowTracking", "configuration": text, "removed": False}
        return {"domainMetadata": domain}

    table.commit(table.add(word_rows(1, 2), baseRowId=0, defaultRowCommitVersion=0), mark(1))
    table.commit(table.add(word_rows(3), baseRowId=2, defaultRowCommitVersion=1), mark(2))
    table.checkpoint("single")
    table.commit(table.add(word_rows(4), baseRowId=3, defaultRowCommitVersion=2), mark(3))
    return table


@made
def in_commit_timestamps(root: Path) -> Table:
    """Commit times in the commits, an hour before those of the files."""
    configuration = {"delta.enableInCommitTimestamps": "true"}
    table = Table(root, [ID, WORD], writer_features=["inCommitTimestamp"], configuration=configuration)
    for number in range(3):
        time_ms = 1_699_996_400_000 + number
        table.commit(table.add(word_rows(number)), info={"inCommitTimestamp": time_ms})
    return table


@made
def change_data_files(root: Path) -> Table:
    """A commit with change files, which are no part of the table."""
    table = Table(root, [ID, WORD], versions=(1, 4), configuration={"delta.enableChangeDataFeed": "true"})
    first = table.add(word_rows(1, 2))
    table.commit(first)
    cdc = {"path": "_change_data/cdc-0.parquet", "partitionValues": {}, "size": 77, "dataChange": False}
    table.commit(table.remove(first), table.add(word_rows(2)), {"cdc": cdc})
    return table


@made
def writer_features_only(root: Path) -> Table:
    """Features that a reader need not know."""
    features = ["appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns"]
    table = Table(
        root, [ID, WORD], writer_features=features, configuration={"delta.constraints.positive": "id > 0"}
    )
    table.commit(table.add(word_rows(1, 2)))
    return table


@made
def statistics_missing(root: Path) -> Table:
    """Files without statistics, before and after a checkpoint."""
    table = Table(root, [ID, WORD])
    table.commit(table.add(word_rows(1, 2), stats=False), table.add(word_rows(3)))
    table.checkpoint("single")
    table.commit(table.add(word_rows(4), stats=False))
    return table


@made
def no_files(root: Path) -> Table:
    """A table whose every file is gone."""
    table = Table(root, [ID, WORD])
    first = table.add(word_rows(1))
    table.commit(first)
    table.commit(table.remove(first))
    return table


# What a reader refuses


def refused_maker(*features: str, reader_version: int | None = None) -> Maker:
    """A table that is whole but for what its protocol demands."""

    def make(root: Path) -> Table:
        table = Table(root, [ID, WORD], reader_features=features)
        if reader_version is not None:
            table.reader_features, table.versions = (), (reader_version, 7)
        table.commit(table.add(word_rows(1)))
        return table

    return make


TABLES["refused-catalog-managed"] = refused_maker("catalogManaged")
TABLES["refused-unknown-feature"] = refused_maker("deletionVectors", "noSuchFeature")
TABLES["refused-reader-version"] = refused_maker(reader_version=4)


@made
def refused_empty_log(root: Path) -> None:
    """A directory for a log, and nothing in it."""
    (root / "_delta_log").mkdir(parents=True)


@made
def refused_hint_alone(root: Path) -> None:
    """A log with nothing but `_last_checkpoint`."""
    (root / "_delta_log").mkdir(parents=True)
    write_lines(root / "_delta_log/_last_checkpoint", [{"version": 3, "size": 4}])
