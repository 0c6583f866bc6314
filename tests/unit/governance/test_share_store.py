"""Shares in the database: what may be stored, and what of it a configuration serves. On both databases."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Table, update
from support.gateway_app import Clock

from gateway.catalog.catalog import Catalog
from gateway.catalog.stored_shares import (
    StoredSchema,
    StoredShare,
    StoredShares,
    StoredTable,
    stored_sources,
    with_stored,
)
from gateway.cli.share_documents import document_of, share_of
from gateway.config import Config, loads
from gateway.config.database import DatabasePlace
from gateway.config.shares import stable_id
from gateway.database.schema import SCHEMAS, SHARES, TABLES
from gateway.governance import share_edits
from gateway.governance.recipient_records import ChangeRecord
from gateway.governance.share_plan import plan
from gateway.governance.share_records import ShareError, ShareExists, ShareNotFound
from gateway.governance.share_store import ShareDatabase
from gateway.governance.stored_recipients import DatabaseReader

ROLE = "arn:aws:iam::123456789012:role/reader"
STORAGES: list[dict[str, Any]] = [
    {"prefix": "s3://lake/", "roleArn": ROLE},
    {"prefix": "az://account/", "account": "acct"},
]


def configured(place: DatabasePlace, *shares: dict[str, Any], **section: Any) -> Config:
    url = f"sqlite:///{place.path}" if place.path is not None else place.url and place.url.reveal()
    gateway = {"anonymous": True, "database": {"url": url}, "storages": STORAGES, **section}
    return loads(yaml.safe_dump({"version": 1, "shares": list(shares), "gateway": gateway}))


OF_FILE = {
    "name": "File",
    "schemas": [{"name": "d", "tables": [{"name": "t", "location": "/t", "id": "own"}]}],
}


@pytest.fixture
def changes() -> list[ChangeRecord]:
    return []


@pytest.fixture
def database(place: DatabasePlace, changes: list[ChangeRecord]) -> Iterator[ShareDatabase]:
    opened = ShareDatabase(
        configured(place, OF_FILE),
        now_ms=Clock(1_700_000_000_000),
        actor="cli:test",
        on_changes=changes.extend,
    )
    yield opened
    opened.close()


def table(name: str = "t", location: str = "s3://lake/t", **options: Any) -> StoredTable:
    return StoredTable(name, location, options)


def add_table(database: ShareDatabase, share: str, schema: str, added: StoredTable) -> StoredShare:
    return database.edit(share, lambda found: share_edits.with_table(found, schema, added))


def test_a_share_is_added_changed_and_removed(database: ShareDatabase, changes: list[ChangeRecord]) -> None:
    database.add(StoredShare("Sales", {"comment": "for all"}), {"why": "test"})
    add_table(database, "sales", "Public", table("Orders", historyShared=True))
    add_table(database, "SALES", "public", table("other", "abfss://lake@acct.dfs.core.windows.net/t"))
    found = database.show("sAlEs")
    (schema,) = found.schemas
    assert (found.name, found.options, schema.name) == ("Sales", {"comment": "for all"}, "Public")
    assert [(one.name, one.options) for one in schema.tables] == [
        ("Orders", {"historyShared": True}),
        ("other", {}),
    ]
    database.edit("sales", lambda one: share_edits.with_options(one, {"comment": None, "displayName": "S"}))
    database.edit("sales", lambda one: share_edits.without_table(one, "PUBLIC", "ORDERS"))
    (after,) = database.all().values()
    assert after.options == {"displayName": "S"}
    assert [one.name for one in after.schemas[0].tables] == ["other"]
    database.edit("sales", lambda one: share_edits.without_schema(one, "public"))
    assert database.show("sales").schemas == ()
    database.remove("SALES")
    assert database.all() == {}
    actions = [change.action for change in database.history("sales")]
    assert actions == ["createShare", *["updateShare"] * 5, "deleteShare"]
    assert [change.action for change in changes] == actions
    assert dict(changes[0].detail) == {"why": "test"}


def test_what_is_not_there_is_named(database: ShareDatabase) -> None:
    database.add(StoredShare("s"))
    for call, text in (
        (lambda: database.show("x"), "no share 'x'"),
        (lambda: database.remove("x"), "no share 'x'"),
        (lambda: database.show("\udcff"), "no share"),
        (lambda: database.remove("\0"), "no share"),
        (lambda: database.edit("x", lambda one: one), "no share 'x'"),
        (lambda: database.edit("s", lambda one: share_edits.without_schema(one, "d")), "no schema 'd'"),
        (lambda: database.edit("s", lambda one: share_edits.without_table(one, "d", "t")), "no schema 'd'"),
    ):
        with pytest.raises(ShareNotFound, match=text):
            call()
    assert database.history("\udcff") == database.history("\0") == ()
    with pytest.raises(ShareExists, match="exists already"):
        database.add(StoredShare("S"))
    add_table(database, "s", "d", table())
    with pytest.raises(ShareExists, match=r"s\.d has a table 'T' already"):
        add_table(database, "s", "D", table("T"))


def test_shares_of_the_configuration_are_changed_in_its_file(database: ShareDatabase) -> None:
    for change in (
        lambda: database.add(StoredShare("fILE")),
        lambda: database.edit("file", lambda one: one),
        lambda: database.add(StoredShare("File")),
        lambda: database.remove("file"),
        lambda: database.show("file"),
    ):
        with pytest.raises(ShareExists, match="in the configuration file"):
            change()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": "a/b"}, "may not contain '/'"),
    ({"name": "s", "comment": "x" * 70_000}, "more than 65536"),
    ({"name": "s", "propertys": {}}, "unknown key"),
    ({"name": "s", "tables": {"discover": "/x/{table}"}}, "has no {schema}"),
    ({"name": "s", "tables": {"discover": "/x/{schema}/{table}", "everySecond": 1}}, "unknown key"),
    ({"name": "s", "tables": {"discover": "/x/{schema}/{table}", "maxTables": 0}}, "too small"),
    ({"name": "s", "tables": {"discover": "/x/../{schema}/{table}"}}, "may not contain '..'"),
    ({"name": "s", "tables": "/x/{schema}/{table}"}, "expected a map"),
    ({"name": "s", "tables": {}}, "must be given"),
    (
        {
            "name": "s",
            "tables": {
                "unityCatalog": {
                    "url": "https://uc.example.com",
                    "catalog": "c",
                    "within": ["/x"],
                    "tokenFile": "/etc/hostname",
                }
            },
        },
        "a key of the configuration file alone",
    ),
    *(
        (
            {
                "name": "s",
                "schemas": [{"name": "d", "tables": [{"name": "t", "location": "/x", key: value}]}],
            },
            f"{key}: is a key of the configuration file alone",
        )
        for key, value in (
            ("catalog", {"url": "https://uc.example.com", "name": "a.b.t", "tokenFile": "/etc/hostname"}),
            ("projection", {"source": "/y"}),
        )
    ),
    (
        {"name": "s", "schemas": [{"name": "d", "tables": {"discover": "/x/{schema}/{table}"}}]},
        "{table} alone",
    ),
    ({"name": "s", "schemas": [{"name": "d"}, {"name": "D"}]}, "is listed twice"),
    (
        {"name": "s", "schemas": [{"name": "d", "tables": [{"name": "t", "location": "x"}]}]},
        "not a location",
    ),
    (
        {"name": "s", "schemas": [{"name": "d", "tables": [{"name": "t", "location": "/x/../y"}]}]},
        "may not contain '..'",
    ),
    (
        {
            "name": "s",
            "schemas": [{"name": "d", "tables": [{"name": "t", "location": "/x", "startVersion": -1}]}],
        },
        "too small",
    ),
    (
        {
            "name": "s",
            "schemas": [{"name": "d", "tables": [{"name": "t", "location": "/x", "id": "own"}]}],
        },
        "another location",
    ),
    (
        {
            "name": "s",
            "schemas": [
                {
                    "name": "d",
                    "tables": [
                        {"name": "t", "location": "/x"},
                        {"name": "u", "location": "/y", "id": stable_id("s", "d", "t")},
                    ],
                }
            ],
        },
        "another location",
    ),
    (
        {
            "name": "s",
            "schemas": [
                {
                    "name": "d",
                    "tables": [{"name": "t", "location": "s3://lake/t", "accessModes": ["dir"]}],
                }
            ],
        },
        "historyShared: true",
    ),
    (
        {"name": "s", "schemas": [{"name": "d", "volumes": [{"name": "v", "location": "/x"}]}]},
        "local files have no credentials",
    ),
    (
        {
            "name": "s",
            "schemas": [{"name": "d", "volumes": [{"name": "v", "location": "s3://lake/v", "x": 1}]}],
        },
        "unknown key",
    ),
    (
        {
            "name": "s",
            "schemas": [
                {
                    "name": "d",
                    "tables": [{"name": "t", "location": "s3://lake/v/t"}],
                    "volumes": [{"name": "v", "location": "s3://lake/v"}],
                }
            ],
        },
        "lie within its directory",
    ),
    ({"name": "s\ud800"}, "surrogate"),
    ({"name": "s", "comment": "\udcff"}, "surrogate"),
    ({"name": "s", "displayName": "\udcff"}, "surrogate"),
    ({"name": "s", "properties": {"k": "\udcff"}}, "surrogate"),
    ({"name": "s", "properties": {"\udcff": "k"}}, "surrogate"),
    (
        {
            "name": "s",
            "schemas": [{"name": "d", "tables": [{"name": "t", "location": "/t", "id": "\ud800"}]}],
        },
        "surrogate",
    ),
    ({"name": "s", "tables": {"discover": "/w\udcff/{schema}/{table}"}}, "surrogate"),
    ({"name": "s", "schemas": "x"}, "list of maps"),
    ({"name": 7}, "as text"),
]


def test_what_the_configuration_refuses_is_not_stored(database: ShareDatabase) -> None:
    for share, reason in REFUSED:
        with pytest.raises(ShareError) as refused:
            database.add(share_of(share))
        assert reason in str(refused.value)
        assert database.all() == {}


def test_a_new_share_or_schema_has_nothing_of_one_that_sql_has_deleted(tmp_path: Path) -> None:
    place = DatabasePlace(tmp_path / "recipients.db")
    with ShareDatabase(configured(place), now_ms=Clock(1)) as database:
        for name in ("s", "kept"):
            database.add(StoredShare(name))
            add_table(database, name, "d", table("t"))
    with closing(sqlite3.connect(tmp_path / "recipients.db")) as connection, connection:
        # As the command line of SQLite does: foreign keys are not enforced.
        connection.execute("DELETE FROM shares WHERE key = 's'")
        connection.execute("DELETE FROM schemas WHERE share = 'kept'")
    with ShareDatabase(configured(place), now_ms=Clock(1)) as database:
        assert database.add(StoredShare("S")) == database.show("s")
        changed = database.edit("kept", lambda share: share_edits.with_schema(share, "D"))
        assert changed == database.show("kept")


def test_a_stored_text_names_no_variable_of_the_environment(
    database: ShareDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "revealed")
    stored = database.add(StoredShare("s", {"comment": "${A_SECRET} $${A_SECRET}"}))
    (share,) = with_stored(loads("version: 1\ngateway: {anonymous: true}\n"), {"s": stored}).config.shares
    assert share.comment == "${A_SECRET} $${A_SECRET}"


def test_what_is_no_longer_valid_is_left_out_one_by_one(
    place: DatabasePlace, database: ShareDatabase
) -> None:
    database.add(StoredShare("gone"))
    document = {
        "name": "s",
        "schemas": [
            {
                "name": "d",
                "tables": [
                    {"name": "fine", "location": "s3://lake/fine"},
                    {"name": "azure", "location": "az://account/t"},
                    {
                        "name": "dir",
                        "location": "s3://lake/dir",
                        "accessModes": ["dir"],
                        "historyShared": True,
                    },
                    {"name": "inner", "location": "s3://lake/files/t"},
                    {"name": "broken", "location": "s3://lake/broken"},
                ],
                "volumes": [{"name": "v", "location": "s3://lake/pictures"}],
            }
        ],
    }
    database.add(share_of(document))
    with database.database.changing() as connection:
        connection.execute(
            update(TABLES).where(TABLES.c.key == "broken").values(options='{"accessModes": 7}')
        )
    volumes = [{"name": "v", "location": "s3://lake/files"}]
    shares = ({"name": "GONE"}, {"name": "o", "schemas": [{"name": "d", "volumes": volumes}]})
    storages = [{"prefix": "s3://lake/files/", "roleArn": ROLE}]
    found = with_stored(configured(place, *shares, storages=storages), database.all())
    left_out = {one.name: one.reason for one in found.left_out}
    assert set(left_out) == {"gone", "s.d.azure", "s.d.dir", "s.d.inner", "s.d.broken", "s.d.v"}
    assert "the configuration has a share" in left_out["gone"]
    assert "names no account" in left_out["s.d.azure"]
    assert "give directoryRoleArn or roleArn" in left_out["s.d.dir"]
    assert "the volume o.d.v" in left_out["s.d.inner"]
    names = [one.full_name for one in Catalog.of(found.config.shares).tables()]
    assert names == ["s.d.fine"]
    # Without them the shares of the file are served as before.
    assert [share.name for share in found.config.shares] == ["GONE", "o", "s"]


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "7", '"x"', '{"volumes": 7}', '{"volumes": "x"}', '{"x": {}}', "[" * 100_000],
    ids=lambda text: text[:20],
)
@pytest.mark.parametrize("row", [SHARES, SCHEMAS, TABLES], ids=lambda row: str(row.name))
def test_no_text_of_options_breaks_what_is_read_beside_it(tmp_path: Path, row: Table, text: str) -> None:
    place = DatabasePlace(tmp_path / "recipients.db")
    with ShareDatabase(configured(place), now_ms=Clock(0)) as database:
        for name in ("bad", "good"):
            database.add(StoredShare(name))
            add_table(database, name, "d", table())
        column = row.c.key if row is SHARES else row.c.share
        with database.database.changing() as connection:
            connection.execute(update(row).where(column == "bad").values(options=text))
        found = with_stored(configured(place), database.all())
    assert len(found.left_out) == 1
    assert "good.d.t" in [one.full_name for one in Catalog.of(found.config.shares).tables()]


@pytest.mark.parametrize(
    ("statement", "left_out"),
    [
        ("UPDATE shares SET name = 'Good' WHERE key = 'bad'", "bad"),
        ("UPDATE shares SET name = 'other' WHERE key = 'bad'", "bad"),
        ("UPDATE shares SET name = CAST(X'ff' AS TEXT) WHERE key = 'bad'", "bad"),
        ("UPDATE shares SET name = X'ff' WHERE key = 'bad'", "bad"),
        ("UPDATE schemas SET name = X'ff' WHERE share = 'bad'", "bad.b'\\xff'"),
        ("UPDATE tables SET name = X'ff' WHERE share = 'bad'", "bad.d.b'\\xff'"),
        ("UPDATE tables SET location = CAST(X'ff' AS TEXT) WHERE share = 'bad'", "bad.d.t"),
        ("UPDATE tables SET location = X'ff' WHERE share = 'bad'", "bad.d.t"),
        ("INSERT INTO shares VALUES (CAST(X'ff' AS TEXT), 'x', '{\"tables\": 1}', 1)", None),
        ("INSERT INTO shares VALUES (X'ff', 'x', '{\"tables\": 1}', 1)", None),
    ],
)
def test_no_name_or_location_breaks_what_is_read_beside_it(
    tmp_path: Path, statement: str, left_out: str | None
) -> None:
    place = DatabasePlace(tmp_path / "recipients.db")
    reader, searched = DatabaseReader(lambda: place), DatabaseReader(lambda: place, is_searching=True)
    with ShareDatabase(configured(place), now_ms=Clock(0)) as database:
        for name in ("bad", "good"):
            database.add(StoredShare(name))
            add_table(database, name, "d", table())
        reader.read()
        with database.database.changing() as connection:
            connection.exec_driver_sql(statement)
        reader.read()
        assert not searched.read()
        assert searched.shares == {}
        for stored in (database.all(), reader.shares):
            found = with_stored(configured(place), stored)
            assert [one.name for one in found.left_out] == ([] if left_out is None else [left_out])
            assert "good.d.t" in [one.full_name for one in Catalog.of(found.config.shares).tables()]
    reader.close()
    searched.close()


def test_a_share_with_something_left_out_can_be_changed(
    place: DatabasePlace, database: ShareDatabase
) -> None:
    database.add(StoredShare("s"))
    add_table(database, "s", "d", table("azure", "az://account/t"))
    later = ShareDatabase(configured(place, storages=[]), now_ms=Clock(0))
    try:
        changed = add_table(later, "s", "d", table("new", "/x"))
        assert [one.name for one in changed.schemas[0].tables] == ["azure", "new"]
        with pytest.raises(ShareError, match="names no account"):
            add_table(later, "s", "d", table("second", "az://account/u"))
    finally:
        later.close()


def test_a_reader_reads_the_shares_that_have_changed(place: DatabasePlace, database: ShareDatabase) -> None:
    reader = DatabaseReader(lambda: place)
    try:
        reader.read()
        assert reader.shares == {}
        database.add(StoredShare("a"))
        database.add(StoredShare("b"))
        reader.read()
        first = reader.shares
        assert list(first) == ["a", "b"]
        reader.read()
        assert reader.shares is first
        add_table(database, "b", "d", table())
        reader.read()
        assert reader.shares["a"] is first["a"]
        assert reader.shares["b"].schemas[0].tables == (table(),)
        database.remove("a")
        reader.read()
        assert list(reader.shares) == ["b"]
    finally:
        reader.close()


def test_options_are_stored_as_json_with_any_text(database: ShareDatabase) -> None:
    texts = {"a": "ü\u202e\n<script>", "b": "\U0001f600"}
    database.add(StoredShare("s", {"properties": texts}))
    assert database.show("s").options == {"properties": texts}
    assert json.dumps(document_of(database.show("s")))


@pytest.mark.parametrize("is_volume", [False, True])
def test_a_path_whose_session_policy_is_too_long_is_not_stored(
    database: ShareDatabase, place: DatabasePlace, is_volume: bool
) -> None:
    database.add(StoredShare("s"))
    add_table(database, "s", "d", table("fine", "s3://lake/fine", historyShared=True, accessModes=["dir"]))
    long = "s3://lake/" + "ж" * 90
    directory = {"historyShared": True, "accessModes": ["dir"]}

    def edit(found: StoredShare) -> StoredShare:
        if is_volume:
            return share_edits.with_volume(found, "d", {"name": "files", "location": long})
        return share_edits.with_table(found, "d", table("long", long, **directory))

    with pytest.raises(ShareError, match=r"session policy has .* characters"):
        database.edit("s", edit)
    # What another program has stored is left out by itself.
    stored = {"s": edit(database.show("s"))}
    # A recipient of the file has a grant for a share of the file.
    reader = {"name": "r", "tokens": [{"sha256": "0" * 64}], "shares": ["File"]}
    whole = with_stored(configured(place, OF_FILE, recipients=[reader]), stored)
    name = "s.d.files" if is_volume else "s.d.long"
    assert [one.name for one in whole.left_out] == [name]
    assert [one.full_name for one in Catalog.of(whole.config.shares).tables()] == ["File.d.t", "s.d.fine"]
    # By the url, a table needs no policy.
    add_table(database, "s", "d", table("long", long))


DISCOVER = {"discover": "s3://lake/w/{table}/", "everySeconds": 5, "historyShared": True}


def test_tables_of_stored_shares_may_be_discovered(database: ShareDatabase, place: DatabasePlace) -> None:
    database.add(StoredShare("lake", {"comment": "x"}))
    both = {"discover": "az://account/{schema}/{table}/"}
    database.edit("lake", lambda found: share_edits.with_discovery(found, None, both))
    database.edit("lake", lambda found: share_edits.with_discovery(found, "sales", DISCOVER))
    whole = with_stored(configured(place, OF_FILE), database.all())
    assert whole.left_out == ()
    sources = list(whole.config.sources)
    assert [source.shown for source in sources] == ["lake", "lake.sales"]
    assert sources[0].discovery.template.root.account == "acct", "the account is that of the storage"
    assert sources[1].discovery.every_seconds == 5
    assert sources[1].discovery.history_shared
    document = document_of(database.show("lake"))
    assert document["tables"] == both
    assert document["schemas"] == [{"name": "sales", "tables": DISCOVER}]
    assert share_of(document) == database.show("lake")
    with pytest.raises(ShareExists, match="are discovered"):
        add_table(database, "lake", "sales", table())
    add_table(database, "lake", "other", table())
    with pytest.raises(ShareExists, match="has listed tables"):
        database.edit("lake", lambda found: share_edits.with_discovery(found, "other", DISCOVER))
    database.edit("lake", lambda found: share_edits.without_discovery(found, "SALES"))
    database.edit("lake", lambda found: share_edits.without_discovery(found, None))
    assert not database.show("lake").discovers
    for schema in (None, "sales"):
        with pytest.raises(ShareNotFound, match="are discovered"):
            database.edit("lake", lambda found, of=schema: share_edits.without_discovery(found, of))


def followed(reader: DatabaseReader) -> Callable[[], StoredShares]:
    """Return the shares of a reader after a reading."""

    def shares() -> StoredShares:
        assert not reader.read()
        return reader.shares

    return shares


def test_only_shares_with_discovery_are_read_for_the_searches(
    database: ShareDatabase, place: DatabasePlace
) -> None:
    database.add(StoredShare("listed", {"comment": 'with the word "tables"'}))
    add_table(database, "listed", "d", table())
    reader = DatabaseReader(lambda: place, is_searching=True)
    try:
        shares = followed(reader)
        assert shares() == {}
        assert shares() is shares()
        database.add(StoredShare("lake"))
        database.edit("lake", lambda found: share_edits.with_discovery(found, "sales", DISCOVER))
        add_table(database, "lake", "d", table())
        found = shares()
        assert list(found) == ["lake"]
        assert shares() is found
        config = configured(place, OF_FILE)
        assert [source.shown for source in stored_sources(config, found)] == ["lake.sales"]
        # A share of the configuration takes the place of a stored one.
        taken = configured(place, OF_FILE, {"name": "LAKE"})
        assert stored_sources(taken, found) == ()
        database.remove("lake")
        assert shares() == {}
    finally:
        reader.close()


def test_a_change_reads_no_other_share_unless_one_may_keep_its_tables_out(tmp_path: Path) -> None:
    place = DatabasePlace(tmp_path / "recipients.db")
    with ShareDatabase(configured(place), now_ms=Clock(0)) as database:
        for name in ("s", "other"):
            database.add(StoredShare(name))
            add_table(database, name, "d", table())
        statements: list[str] = []
        numbers = count()

        def whole() -> list[str]:
            add_table(database, "s", "d", table(f"new{next(numbers)}"))
            return [text for text in statements if "FROM tables ORDER" in " ".join(text.split())]

        database.database.driver.set_trace_callback(statements.append)
        assert whole() == []
        add_table(database, "other", "d", table("own", "/own", id="x"))
        statements.clear()
        assert len(whole()) == 1
        with pytest.raises(ShareError, match="belongs to a table of another location"):
            add_table(database, "s", "d", table("second", "/second", id="x"))


def test_the_statements_of_an_apply_grow_with_its_shares_and_with_nothing_beside_them(tmp_path: Path) -> None:
    numbers: list[int] = []
    with ShareDatabase(configured(DatabasePlace(tmp_path / "recipients.db")), now_ms=Clock(0)) as database:
        for names in (range(100), range(200, 300), range(1000, 1200)):
            shares = [StoredShare(f"s{n}", {}, (StoredSchema("d", {}, (table(),)),)) for n in names]
            statements: list[str] = []
            database.database.driver.set_trace_callback(statements.append)
            position, stored = database.stored()
            database.make(database.checked(plan(stored, shares, removes=False), position, stored))
            database.database.driver.set_trace_callback(None)
            # Those of triggers are comments.
            numbers.append(sum(not text.startswith("--") for text in statements))
        assert len(database.all()) == 400
    first, second, twice = numbers
    assert second == first
    assert twice <= 2 * first


def test_a_plan_keeps_volumes_that_the_file_lacks_unless_it_removes() -> None:
    def with_volumes(*names: str) -> StoredShare:
        volumes = [{"name": name, "location": f"s3://lake/{name.lower()}"} for name in names]
        schema = {"name": "d", **({"volumes": volumes} if volumes else {})}
        return share_of({"name": "s", "schemas": [schema]})

    def after(stored: StoredShare, wanted: StoredShare, *, removes: bool = False) -> StoredShare | None:
        steps = plan({"s": stored}, [wanted], removes=removes)
        return steps[0].share if steps else None

    stored = with_volumes("a", "b")
    assert after(stored, with_volumes()) is None
    assert after(stored, with_volumes("b")) is None
    assert after(stored, with_volumes("b", "a")) is None
    assert after(stored, with_volumes("c", "B")) == with_volumes("a", "B", "c")
    assert after(stored, with_volumes("b"), removes=True) == with_volumes("b")
    assert after(stored, with_volumes(), removes=True) == with_volumes()
    twice = after(stored, with_volumes("b", "b"))
    assert twice is not None
    assert [one["name"] for one in twice.schemas[0].options["volumes"]] == ["a", "b", "b"]
    odd = share_of({"name": "s", "schemas": [{"name": "d", "volumes": 7}]})
    assert after(stored, odd) == odd


def test_what_another_program_changes_after_the_check_is_checked_again(
    database: ShareDatabase, place: DatabasePlace
) -> None:
    database.add(StoredShare("s"))
    add_table(database, "s", "d", table())
    others = iter([True])

    def edit(found: StoredShare) -> StoredShare:
        # Between the check and the lock, once.
        if next(others, False):
            other.edit("s", lambda share: share_edits.with_table(share, "d", table("other", "/other")))
        return share_edits.with_table(found, "d", table("new", "/new"))

    with ShareDatabase(configured(place, OF_FILE), now_ms=Clock(0)) as other:
        changed = database.edit("s", edit)
    assert {one.name for one in changed.schemas[0].tables} == {"t", "other", "new"}
    assert {one.name for one in database.show("s").schemas[0].tables} == {"t", "other", "new"}


VARIANTS = [
    StoredSchema("d", {}, (table("plain", "s3://lake/a"),)),
    StoredSchema("d", {}, (table("one", "s3://lake/b", id="same"),)),
    StoredSchema("d", {}, (table("other", "s3://lake/c", id="same"), table("more", "s3://lake/d"))),
    StoredSchema("d", {}, (table("dir", "s3://lake/a", accessModes=["dir"]),)),
    StoredSchema("d", {}, (table("broken", "ftp://lake/a"), table("fine", "s3://lake/a/b"))),
    StoredSchema("d", {"unknown": 1}, (table(),)),
]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "file"]), st.lists(st.sampled_from(VARIANTS), max_size=1)),
        max_size=8,
    )
)
def test_shares_made_again_in_part_are_those_made_as_a_whole(
    steps: list[tuple[str, list[StoredSchema]]],
) -> None:
    config = configured(DatabasePlace(Path("recipients.db")), OF_FILE)
    stored: dict[str, StoredShare] = {}
    before, catalog = with_stored(config, stored), Catalog.of(config.shares)
    for name, schemas in steps:
        stored = {key: share for key, share in stored.items() if key != name or schemas}
        if schemas:
            stored[name] = StoredShare(name, {}, tuple(schemas))
        changed, whole = with_stored(config, stored, before), with_stored(config, stored)
        assert (changed.config, changed.left_out) == (whole.config, whole.left_out)
        catalog, before = Catalog.of(changed.config.shares, catalog), changed
        assert catalog.tables() == Catalog.of(whole.config.shares).tables()


def test_a_change_of_one_share_makes_no_other_again() -> None:
    config = configured(DatabasePlace(Path("recipients.db")))
    stored = {name: StoredShare(name, {}, (VARIANTS[0],)) for name in ("a", "b")}
    before = with_stored(config, stored)
    after = with_stored(config, {**stored, "b": StoredShare("b", {}, (VARIANTS[4],))}, before)
    assert after.config.shares[0] is before.config.shares[0]
    assert [one.name for one in after.left_out] == ["b.d.broken"]
    catalog = Catalog.of(before.config.shares)
    changed = Catalog.of(after.config.shares, catalog)
    assert changed.made["a"][1] is catalog.made["a"][1]
    assert [one.full_name for one in changed.tables()] == ["a.d.plain", "b.d.fine"]
