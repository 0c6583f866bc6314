"""Grants with conditions and properties in the database: SQLite and a real PostgreSQL."""

import pytest

from gateway.catalog.grants import Grant, Rule, place_text
from gateway.governance.grant_operations import (
    apply_grants,
    grant_parts,
    place_of,
    revoke_parts,
    set_properties,
)
from gateway.governance.recipient_records import RecipientError, RecipientNotFound
from gateway.governance.stored_recipients import DatabaseReader
from gateway.tables.rules import native_rule

EU = Grant("sales", "public", "orders", "region = 'eu'")
OWN = Grant("sales", "public", "orders", "region = recipient.region")


@pytest.fixture
def alice(database):
    database.add("Alice")
    return database


def test_a_grant_with_a_condition_reaches_the_reader_and_the_history(alice, place):
    set_properties(alice, "alice", {"region": "eu"}, native_rule)
    record = grant_parts(alice, "ALICE", [EU, Grant("logs", "d")], native_rule)
    assert record.grants == (Grant("logs", "d"), EU)
    assert record.shares == ()
    reader = DatabaseReader(lambda: place)
    (read,) = reader.read()
    assert (set(read.recipient.grants), read.recipient.properties) == ({*record.grants}, (("region", "eu"),))
    grant_parts(alice, "alice", [OWN], native_rule)
    (read,) = reader.read()
    assert set(read.recipient.grants) == {Grant("logs", "d"), OWN}
    reader.close()
    *_, properties, first, second = alice.history("alice")
    assert dict(properties.detail) == {"properties": "region"}
    assert first.detail["granted"] == "sales.public.orders where region = 'eu'; logs.d"
    assert second.detail["granted"] == "sales.public.orders where region = recipient.region"


def test_a_place_has_one_grant_and_is_taken_back_with_any_condition(alice):
    whole = Grant("sales", condition="region = 'eu'")
    assert grant_parts(alice, "alice", [whole], native_rule).grants == (whole,)
    assert grant_parts(alice, "alice", [Grant("sales")], native_rule).shares == ("sales",)
    assert grant_parts(alice, "alice", [whole], native_rule).shares == ()
    grant_parts(alice, "alice", [EU], native_rule)
    assert revoke_parts(alice, "alice", [Grant("sales", "public", "orders")]).grants == (whole,)
    with pytest.raises(RecipientError, match=r"sales\.public\.orders is not granted to 'Alice'"):
        revoke_parts(alice, "alice", [Grant("sales"), Grant("sales", "public", "orders")])
    # All or nothing.
    assert alice.show("alice").grants == (whole,)
    assert revoke_parts(alice, "alice", [Grant("sales")]).grants == ()


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("region =", "the condition ends too early"),
        ("region = recipient.country", "the recipient has no property 'country'"),
        ("upper(region) = 'A'", "function 'upper' cannot be part of a rule"),
        (" ", "condition: expected 1 to 65536 bytes"),
        ("region = '\0'", "condition: expected 1 to 65536 bytes"),
        (f"region = '{'x' * 70_000}'", "condition: expected 1 to 65536 bytes"),
        ("region = '\ud800'", "condition: expected UTF-8 text"),
    ],
)
def test_a_condition_that_is_no_rule_changes_nothing(alice, condition, reason):
    before = alice.history("alice")
    with pytest.raises(RecipientError) as refused:
        grant_parts(alice, "alice", [EU, Grant("sales", "a", "b", condition)], native_rule)
    assert reason in str(refused.value)
    assert alice.show("alice").grants == ()
    assert alice.history("alice") == before


def test_no_change_of_properties_leaves_a_condition_without_them(alice):
    with pytest.raises(RecipientError, match="no property 'region'"):
        grant_parts(alice, "alice", [OWN], native_rule)
    set_properties(alice, "alice", {"region": "eu", "tier": "gold"}, native_rule)
    grant_parts(alice, "alice", [OWN], native_rule)
    with pytest.raises(
        RecipientError, match=r"sales\.public\.orders: the recipient has no property 'region'"
    ):
        set_properties(alice, "alice", {"region": None}, native_rule)
    record = set_properties(alice, "alice", {"region": "us", "tier": None}, native_rule)
    assert record.properties == (("region", "us"),)
    with pytest.raises(RecipientError, match="has no property 'tier'"):
        set_properties(alice, "alice", {"tier": None}, native_rule)
    for changes in (
        {"": "x"},
        {"a b": "x"},
        {"a": "x\n"},
        {"a": "x" * 1001},
        dict.fromkeys(map(str, range(60)), ""),
    ):
        with pytest.raises(RecipientError):
            set_properties(alice, "alice", changes, native_rule)
    assert alice.show("alice") == record


def test_a_property_has_a_text_as_in_the_configuration(alice):
    for change in (
        lambda: set_properties(alice, "alice", {"region": ""}, native_rule),
        lambda: apply_grants(
            alice, "alice", given=[], taken=[], properties={"region": ""}, parse=native_rule
        ),
    ):
        with pytest.raises(RecipientError, match="'region': expected a text"):
            change()
    assert alice.show("alice").properties == ()


def test_a_property_that_someone_else_sets_meanwhile_stays(alice):
    set_properties(alice, "alice", {"region": "eu", "old": "x"}, native_rule)
    record = apply_grants(
        alice, "alice", given=[OWN], taken=[], properties={"region": "us", "old": None}, parse=native_rule
    )
    assert (record.grants, record.properties) == ((OWN,), (("region", "us"),))
    set_properties(alice, "alice", {"team": "a"}, native_rule)
    record = apply_grants(alice, "alice", given=[], taken=[], properties={"region": "eu"}, parse=native_rule)
    assert record.properties == (("region", "eu"), ("team", "a"))
    assert alice.history("alice")[-1].detail == {"properties": "region"}
    many = {f"p{number}": "x" for number in range(49)}
    with pytest.raises(RecipientError, match="at most 50"):
        apply_grants(alice, "alice", given=[], taken=[], properties=many, parse=native_rule)


def test_what_cannot_be_taken_back_is_named_with_the_grants_by_which_it_may_be_read(alice):
    grant_parts(alice, "alice", [Grant("sales", "eu"), Grant("*", "us")], native_rule)
    error = r"share 'Sales' is not granted to 'Alice', and something of it may be read by the grant "
    with pytest.raises(RecipientError, match=error + r"\*\.us, sales\.eu$"):
        alice.revoke("alice", shares=["Sales"])
    with pytest.raises(RecipientError, match=r"sales\.eu\.t is not granted to 'Alice', .* grant sales\.eu$"):
        revoke_parts(alice, "alice", [Grant("sales", "eu", "t")])


def test_a_grant_is_for_a_known_share_and_a_recipient_that_exists(alice):
    with pytest.raises(RecipientError, match="share 'absent' is not in the configuration"):
        grant_parts(alice, "alice", [Grant("absent", "a")], native_rule)
    later = grant_parts(alice, "alice", [Grant("absent", "a")], native_rule, allow_absent=True)
    assert later.grants == (Grant("absent", "a"),)
    grant_parts(alice, "alice", [Grant("sales", "a"), Grant("*", "b")], native_rule)
    with pytest.raises(RecipientNotFound):
        grant_parts(alice, "bob", [EU], native_rule)
    with pytest.raises(RecipientError, match="a grant for a table names its schema"):
        grant_parts(alice, "alice", [Grant("sales", None, "t")], native_rule)


@pytest.mark.parametrize(
    ("text", "grant"),
    [
        ("Sales", Grant("sales")),
        ("*", Grant("*")),
        ("sales.Public", Grant("sales", "public")),
        ("sales.public.Orders", Grant("sales", "public", "orders")),
        ("a share.public", Grant("a share", "public")),
        ("with.dot", Grant("with.dot")),
        ("`with.dot`.s.`a``.b`", Grant("with.dot", "s", "a`.b")),
    ],
)
def test_a_place_is_read_from_its_text(text, grant):
    known = ["Sales", "With.Dot"]
    assert place_of(text, known) == grant
    assert place_of(place_text(grant), ["Sales"]) == grant


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c.d", "a..b", "`a", "a`b`", "a/b", "a.b/c", "``"])
def test_what_is_no_place_is_refused(text):
    with pytest.raises(RecipientError):
        place_of(text, ["sales"])


def test_a_rule_is_parsed_with_the_properties_of_its_recipient(alice):
    parsed = []
    set_properties(alice, "alice", {"b": "2", "a": "1"}, native_rule)
    grant_parts(alice, "alice", [EU], parsed.append)
    assert parsed == [Rule(("region = 'eu'",), (("a", "1"), ("b", "2")))]
