"""Who may read a share, and what a revocation leaves, compared with what requests get."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog.catalog import Catalog, Recipient
from gateway.catalog.grants import Grant, still_readable
from gateway.config import Location, SchemaEntry, ShareEntry, TableEntry
from gateway.errors import NotFound

NAMES = ("a", "B", "c")
PLACES = st.tuples(
    st.sampled_from(["*", "a", "b", "c"]),
    st.one_of(st.none(), st.sampled_from(["a", "b", "x"])),
    st.one_of(st.none(), st.sampled_from(["a", "b", "y"])),
)
GRANTS = st.builds(
    lambda place, condition: Grant(place[0], place[1], place[2] if place[1] else None, condition),
    PLACES,
    st.sampled_from([None, "p = 1"]),
)


def entries(schemas: list[set[str]]) -> list[ShareEntry]:
    table = [TableEntry(name, Location.parse(f"/{name}")) for name in ("A", "b")]
    return [
        ShareEntry(name, schemas=tuple(SchemaEntry(inner, tuple(table)) for inner in sorted(own)))
        for name, own in zip(NAMES, schemas, strict=True)
    ]


CATALOGS = st.lists(st.sets(st.sampled_from(["a", "b"])), min_size=3, max_size=3).map(
    lambda schemas: Catalog.of(entries(schemas))
)


def recipient(grants: list[Grant]) -> Recipient:
    whole = frozenset(grant.share for grant in grants if grant.is_whole_share)
    return Recipient("r", whole, grants=tuple(grant for grant in grants if not grant.is_whole_share))


@given(CATALOGS, st.lists(GRANTS, max_size=5))
def test_a_share_is_seen_exactly_by_those_who_have_grants_in_it(
    catalog: Catalog, grants: list[Grant]
) -> None:
    reader = recipient(grants)
    seen = {share.name for share in catalog.shares_of(reader)}
    assert seen == {share.name for share in catalog.all() if reader.grants_in(share)}


@given(CATALOGS, st.lists(GRANTS, max_size=5), GRANTS)
def test_a_table_that_is_read_after_a_revocation_has_its_grant_named(
    catalog: Catalog, grants: list[Grant], taken: Grant
) -> None:
    place = (taken.share, taken.schema, taken.table)
    left = [grant for grant in grants if (grant.share, grant.schema, grant.table) != place]
    named = still_readable(left, [taken])
    reader = recipient(left)
    for table in catalog.tables():
        inside = all(
            wanted in (None, "*", name.casefold())
            for wanted, name in zip(place, (table.share, table.schema, table.name), strict=True)
        )
        with suppress(NotFound):
            catalog.table(reader, table.share, table.schema, table.name)
            assert named or not inside
