"""Names, grants, ids and pages of listings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog.catalog import Catalog, Recipient, page
from gateway.config import loads
from gateway.errors import NotFound, Unavailable

CONFIG = loads("""
version: 1
gateway: {anonymous: true}
shares:
- name: Sales
  schemas:
  - name: public
    tables:
    - {name: Orders, location: /o, id: given-id}
    - {name: big orders, location: /b}
    - {name: a+b, location: /p}
    - {name: a b, location: /q}
    - {name: x+y, location: /x}
    - {name: p q+r, location: /y}
- {name: empty}
""")
EVERYONE = Recipient("everyone", frozenset({"*"}))
SOMEONE = Recipient("someone", frozenset({"empty"}))


@pytest.fixture
def catalog() -> Catalog:
    return Catalog.of(CONFIG.shares)


@pytest.mark.parametrize(
    ("requested", "found"),
    [
        ("orders", "Orders"),
        ("ORDERS", "Orders"),
        ("big orders", "big orders"),
        ("big+orders", "big orders"),
        ("BIG+Orders", "big orders"),
        ("a+b", "a+b"),
        ("a b", "a b"),
        ("x+y", "x+y"),
        ("p+q+r", "p q+r"),
        ("p q+r", "p q+r"),
    ],
)
def test_a_name_is_found_without_case_and_with_plus_as_a_blank(
    catalog: Catalog, requested: str, found: str
) -> None:
    assert catalog.table(EVERYONE, "SALES", "Public", requested).name == found


@pytest.mark.parametrize("requested", ["x y", "p q r", "p+q r", "big  orders", "bigorders"])
def test_a_blank_is_no_plus(catalog: Catalog, requested: str) -> None:
    with pytest.raises(NotFound):
        catalog.table(EVERYONE, "sales", "public", requested)


def test_absent_and_not_granted_look_alike(catalog: Catalog) -> None:
    messages = set()
    for recipient, share in ((SOMEONE, "sales"), (SOMEONE, "absent"), (EVERYONE, "absent")):
        with pytest.raises(NotFound) as caught:
            catalog.table(recipient, share, "public", "orders")
        messages.add(str(caught.value))
        with pytest.raises(NotFound):
            catalog.schema(recipient, share, "public")
        with pytest.raises(NotFound):
            catalog.share(recipient, share)
    assert len(messages) == 1


def test_where_shares_are_unknown_none_is_absent_for_who_reads_every_share() -> None:
    catalog = Catalog.of(CONFIG.shares, unsearched={("*", None)})
    everyones = {
        "list": lambda: catalog.require_searched(EVERYONE),
        "share": lambda: catalog.share(EVERYONE, "absent"),
        "schema": lambda: catalog.schema(EVERYONE, "absent", "public"),
        "table": lambda: catalog.table(EVERYONE, "absent", "public", "orders"),
        "volume": lambda: catalog.volume(EVERYONE, "absent", "public", "v"),
    }
    for asked in everyones.values():
        with pytest.raises(Unavailable):
            asked()
    assert catalog.table(EVERYONE, "sales", "public", "orders").name == "Orders"
    catalog.require_searched(EVERYONE, "sales")
    catalog.require_searched(SOMEONE)
    with pytest.raises(NotFound):
        catalog.share(SOMEONE, "absent")
    with pytest.raises(NotFound):
        catalog.table(EVERYONE, "sales", "public", "absent")


def test_a_recipient_sees_the_granted_shares_only(catalog: Catalog) -> None:
    assert [share.name for share in catalog.shares_of(SOMEONE)] == ["empty"]
    assert [share.name for share in catalog.shares_of(EVERYONE)] == ["Sales", "empty"]


def test_ids_are_the_configured_ones_or_made_of_the_names(catalog: Catalog) -> None:
    again = Catalog.of(loads("version: 1\ngateway: {anonymous: true}\nshares: [{name: EMPTY}]").shares)
    assert catalog.share(EVERYONE, "empty").id == again.share(EVERYONE, "empty").id
    assert catalog.table(EVERYONE, "sales", "public", "orders").id == "given-id"
    assert len({table.id for table in catalog.tables()}) == 6


@given(st.lists(st.text(min_size=1), unique=True, max_size=20), st.integers(1, 7))
def test_pages_of_any_size_make_up_the_listing(names: list[str], limit: int) -> None:
    seen: list[str] = []
    after: str | None = None
    while True:
        chosen, after = page(names, after=after, limit=limit)
        seen += [names[index] for index in chosen]
        if after is None:
            break
        assert len(chosen) == limit
    assert seen == names


def test_a_page_of_size_zero_still_has_a_token_for_remaining_items() -> None:
    assert page(["a"], after=None, limit=0) == (range(0), "")
    assert page([], after=None, limit=0) == (range(0), None)
    assert page(["a"], after="a", limit=0) == (range(1, 1), None)


def test_a_page_after_a_name_that_is_gone_is_refused() -> None:
    with pytest.raises(ValueError, match="not in list"):
        page(["a"], after="b", limit=1)
