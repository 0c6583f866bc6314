"""Grants of parts of shares, and the rule that a table's grants make."""

from dataclasses import replace

import pytest

from gateway.authentication.credential_table import configured_recipients
from gateway.authentication.sealed_tokens import InvalidToken, Refresh, Sealer, token_owner
from gateway.catalog.catalog import Catalog, Names, Recipient, Schema, Share, SharedTable
from gateway.catalog.grants import Grant, Rule
from gateway.config import ConfigError, Location, loads
from gateway.errors import NotFound

SHARES = """
shares:
- name: Sales
  schemas:
  - name: Public
    tables:
    - {name: Orders, location: /o}
    - {name: items, location: /i}
  - name: private
    tables: [{name: salaries, location: /s}]
- {name: other, schemas: [{name: x, tables: [{name: y, location: /y}]}]}
"""
CATALOG = Catalog.of(loads(f"version: 1\ngateway: {{anonymous: true}}\n{SHARES}").shares)


def granted(grants: str, properties: str = "{}") -> Recipient:
    """The recipient of a configuration with these grants."""
    digest = "0" * 64
    entry = f"{{name: a, tokens: [{{sha256: '{digest}'}}], shares: {grants}, properties: {properties}}}"
    config = loads(f"version: 1\ngateway: {{recipients: [{entry}]}}\n{SHARES}")
    (recipient,) = configured_recipients(config)
    return recipient


def visible(recipient: Recipient) -> dict[str, list[str]]:
    """The tables of each share that the recipient can list."""
    shares = [CATALOG.share(recipient, share.name) for share in CATALOG.shares_of(recipient)]
    return {share.name: [f"{table.schema}.{table.name}" for table in share.tables()] for share in shares}


def table(recipient: Recipient, schema: str = "public", name: str = "orders") -> SharedTable:
    return CATALOG.table(recipient, "sales", schema, name)


@pytest.mark.parametrize(
    ("grants", "expected"),
    [
        ("[Sales]", {"Sales": ["Public.Orders", "Public.items", "private.salaries"]}),
        ("[{share: SALES}]", {"Sales": ["Public.Orders", "Public.items", "private.salaries"]}),
        ("[{share: sales, schema: public}]", {"Sales": ["Public.Orders", "Public.items"]}),
        ("[{share: sales, schema: PUBLIC, table: ORDERS}]", {"Sales": ["Public.Orders"]}),
        (
            "[{share: sales, schema: private, table: salaries}, {share: other, condition: a = 1}]",
            {"Sales": ["private.salaries"], "other": ["x.y"]},
        ),
        ("[{share: '*', schema: x}]", {"other": ["x.y"]}),
        ("[{share: '*', schema: x, table: Y}]", {"other": ["x.y"]}),
        ("[]", {}),
    ],
)
def test_a_recipient_sees_what_its_grants_cover(grants: str, expected: dict[str, list[str]]) -> None:
    recipient = granted(grants)
    assert visible(recipient) == expected
    names = [
        (share.name, schema.name, one.name)
        for share in CATALOG.shares_of(Recipient("all", frozenset({"*"})))
        for schema in share.schemas
        for one in schema.tables
    ]
    for share, schema, name in names:
        if f"{schema}.{name}" in expected.get(share, []):
            assert CATALOG.table(recipient, share, schema, name).name == name
            assert name in [one.name for one in CATALOG.schema(recipient, share, schema).tables]
            continue
        with pytest.raises(NotFound):
            CATALOG.table(recipient, share, schema, name)


def test_a_schema_without_a_grant_looks_absent() -> None:
    recipient = granted("[{share: sales, schema: public, table: orders}]")
    messages = set()
    for schema in ("private", "absent"):
        with pytest.raises(NotFound) as caught:
            CATALOG.schema(recipient, "sales", schema)
        messages.add(str(caught.value))
        with pytest.raises(NotFound):
            CATALOG.table(recipient, "sales", schema, "salaries")
    assert len(messages) == 1


@pytest.mark.parametrize("schema", ["a+b", "a b"])
def test_a_grant_for_a_name_with_a_plus_shows_no_share_with_blanks_in_its_place(schema: str) -> None:
    table = "{name: '%s', location: /t}"
    shares = ", ".join(
        f"{{name: {share}, schemas: [{{name: '{name}', tables: [{table % name}]}}]}}"
        for share, name in (("plus", "a+b"), ("blank", "a b"))
    )
    config = loads(f"version: 1\ngateway: {{anonymous: true}}\nshares: [{shares}]\n")
    catalog = Catalog.of(config.shares)
    expected = ["plus" if "+" in schema else "blank"]
    for table_name in (None, schema):
        recipient = Recipient("a", frozenset(), grants=(Grant.of("*", schema, table_name, None),))
        assert [share.name for share in catalog.shares_of(recipient)] == expected
        with pytest.raises(NotFound):
            catalog.share(recipient, "blank" if "+" in schema else "plus")


def test_a_table_has_the_conditions_of_all_its_grants() -> None:
    recipient = granted(
        "[{share: sales, condition: a}, {share: '*', schema: public, condition: b},"
        " {share: sales, schema: public, table: items, condition: c}, {share: sales, condition: a}]",
        "{country: de}",
    )
    properties = (("country", "de"),)
    assert table(recipient).rule == Rule(("a", "b"), properties)
    assert table(recipient, name="items").rule == Rule(("a", "b", "c"), properties)
    assert table(recipient, "private", "salaries").rule == Rule(("a",), properties)
    listed = CATALOG.schema(recipient, "sales", "public").tables
    assert [one.rule for one in listed] == [Rule(("a", "b"), properties), Rule(("a", "b", "c"), properties)]


@pytest.mark.parametrize(
    "grants",
    [
        "[{share: sales, condition: a}, sales]",
        "[{share: sales, condition: a}, '*']",
        "[{share: sales, condition: a}, {share: sales, schema: public}]",
        "[{share: sales, schema: public, table: orders}, {share: '*', condition: a}]",
    ],
)
def test_a_grant_without_a_condition_gives_the_whole_table(grants: str) -> None:
    assert table(granted(grants)).rule is None


@pytest.mark.parametrize("grants", ["[sales]", "[{share: sales, schema: public, table: orders}]"])
def test_the_source_of_a_clone_is_not_granted_with_a_part_of_its_share(grants: str) -> None:
    recipient = granted(grants)
    clone = replace(
        table(Recipient("all", frozenset({"*"}))),
        access_modes=("url", "dir"),
        auxiliary_locations=(Location.parse("s3://bucket/source"),),
        access_members='"location":"s3://bucket/clone"',
    )
    schema = Schema("public", "Sales", Names([clone]), Names([]))
    catalog = Catalog([Share("Sales", "id", Names([schema]))])
    found = catalog.table(recipient, "sales", "public", "orders")
    assert found.rule is None
    shown = (found.offers_urls, found.offers_directory, found.auxiliary_locations, found.access_members)
    assert shown == (
        (True, True, clone.auxiliary_locations, clone.access_members)
        if grants == "[sales]"
        else (True, False, (), "")
    )


@pytest.mark.parametrize("text", ["", "~", "null", "''"])
def test_a_property_without_a_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="has no text"):
        granted("[{share: sales, condition: p <> recipient.blocked}]", f"{{blocked: {text}}}")


def test_the_number_of_grants_does_not_slow_a_lookup_down(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [Grant("sales", "public", f"t{number}", "p = 1") for number in range(1000)]
    recipient = Recipient("a", frozenset(), grants=(*others, Grant("sales", "public", "orders")))

    def fail(_grant: Grant) -> None:
        raise AssertionError("a grant is looked at")

    for name in ("share", "schema", "table", "condition"):
        monkeypatch.setattr(Grant, name, property(fail))
    assert table(recipient).name == "Orders"
    assert len(CATALOG.schema(recipient, "sales", "public").tables) == 1


def test_tables_that_differ_by_their_rule_are_different_keys() -> None:
    whole = table(Recipient("a", frozenset({"*"})))
    rules = [Rule(("a",), ()), Rule(("b",), ()), Rule(("a",), (("x", "1"),)), Rule(("a",), (("x", "2"),))]
    recipients = [
        Recipient("a", frozenset(), (), (Grant.of("sales", None, None, rule.conditions[0]),), rule.properties)
        for rule in rules
    ]
    tables = {whole, *map(table, recipients)}
    assert len(tables) == 5


def test_a_token_of_one_rule_is_not_accepted_under_another() -> None:
    sealer = Sealer([])
    keys = [None, b"1" * 32, b"2" * 32]
    for made in keys:
        token = Refresh("t", "m", 1, 10).seal(sealer, token_owner("alice", made))
        for used in keys:
            owner = token_owner("alice", used)
            if used == made:
                assert Refresh.open(sealer, owner, token, table="t", now_ms=1).version == 1
                continue
            with pytest.raises(InvalidToken):
                Refresh.open(sealer, owner, token, table="t", now_ms=1)
