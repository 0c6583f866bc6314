"""What is exported is what is applied: shares through YAML, plans and the database."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.catalog.stored_shares import StoredSchema, StoredShare, StoredTable, with_stored
from gateway.cli.share_documents import document_of, share_of
from gateway.cli.yaml_text import dumped
from gateway.config import loads
from gateway.governance.share_plan import plan
from gateway.governance.share_records import ShareError
from gateway.governance.share_store import ShareDatabase

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
NAMES = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/"), min_size=1, max_size=12
).filter(lambda text: text not in {".", ".."})
PATHS = st.text("abcü %{}$'\"#-", min_size=1, max_size=12).map(lambda text: f"/{text}")


def optional(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


def unique(of: st.SearchStrategy[Any], largest: int) -> st.SearchStrategy[tuple[Any, ...]]:
    found = st.lists(of, max_size=largest, unique_by=lambda one: one.name.casefold())
    return found.map(lambda items: tuple(sorted(items, key=lambda one: one.name.casefold())))


TABLES = st.builds(
    StoredTable,
    NAMES,
    PATHS,
    optional(historyShared=st.booleans(), startVersion=st.integers(0, 9), accessModes=st.just(["url"])),
)
LIMITS = optional(everySeconds=st.floats(1, 1e6), maxDepth=st.integers(0, 4), historyShared=st.booleans())


def discovered(template: str) -> st.SearchStrategy[dict[str, Any]]:
    names = st.text("abcü %$'\"#-", min_size=1, max_size=12).map(lambda text: f"/{text}/{template}")
    return st.tuples(names, LIMITS).map(lambda parts: {"tables": {"discover": parts[0], **parts[1]}})


SCHEMAS = st.one_of(
    st.builds(StoredSchema, NAMES, st.just({}), unique(TABLES, 4)),
    st.builds(StoredSchema, NAMES, discovered("{table}")),
)
DESCRIPTIONS = optional(
    comment=TEXT.filter(bool), displayName=TEXT.filter(bool), properties=st.dictionaries(NAMES, TEXT)
)
SHARES = st.builds(
    StoredShare,
    NAMES,
    st.tuples(DESCRIPTIONS, st.one_of(st.just({}), discovered("{schema}/{table}"))).map(
        lambda parts: parts[0] | parts[1]
    ),
    unique(SCHEMAS, 3),
)
STATES = unique(SHARES, 3)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareDatabase]:
    file = tmp_path_factory.mktemp("shares") / "recipients.db"
    config = loads(f"version: 1\ngateway: {{anonymous: true, database: 'sqlite:///{file}'}}\n")
    opened = ShareDatabase(config, now_ms=lambda: 0)
    yield opened
    opened.close()


@given(SHARES)
@example(StoredShare("s", {"comment": "\x85"}, ()))
@example(StoredShare("s", {"comment": "a\u2028\u2029 b\r"}, ()))
def test_a_share_is_the_same_after_yaml(share: StoredShare) -> None:
    text = dumped(document_of(share))
    assert share_of(yaml.safe_load(text)) == share


@settings(suppress_health_check=list(HealthCheck))
@given(STATES, STATES)
@example(earlier=(), wanted=(StoredShare("s", {"properties": {"<<": "a"}}, ()),))
def test_an_applied_export_is_the_exported_state(
    database: ShareDatabase, earlier: tuple[StoredShare, ...], wanted: tuple[StoredShare, ...]
) -> None:
    text = dumped([document_of(share) for share in wanted])
    exported = [share_of(document) for document in yaml.safe_load(text)]
    for state in (earlier, exported):
        position, stored = database.stored()
        database.make(database.checked(plan(stored, state, removes=True), position, stored))
    stored = database.all()
    assert plan(stored, wanted, removes=True) == []
    assert plan(stored, wanted, removes=False) == []
    assert stored == {share.key: share for share in wanted}
    # What was accepted is served as a whole.
    assert with_stored(loads("version: 1\ngateway: {anonymous: true}\n"), stored).left_out == ()


def mixed(stored: dict[str, StoredShare], wanted: tuple[StoredShare, ...]) -> bool:
    """Whether a schema lists tables in one state and discovers them in the other."""
    pairs = [
        (one, other)
        for share in wanted
        if share.key in stored
        for one in stored[share.key].schemas
        for other in share.schemas
        if one.name.casefold() == other.name.casefold()
    ]
    return any(
        "tables" in one.options and other.tables for pair in pairs for one, other in (pair, pair[::-1])
    )


@given(STATES, STATES)
def test_without_removal_nothing_is_lost(
    earlier: tuple[StoredShare, ...], wanted: tuple[StoredShare, ...]
) -> None:
    stored = {share.key: share for share in earlier}
    after = dict(stored)
    if mixed(stored, wanted):
        with pytest.raises(ShareError, match="listed tables and discovered ones"):
            plan(stored, wanted, removes=False)
        return
    steps = plan(stored, wanted, removes=False)
    for step in steps:
        assert step.share is not None
        after[step.share.key] = step.share

    def tables(state: dict[str, StoredShare]) -> set[tuple[str, str, str]]:
        return {
            (key, schema.name.casefold(), table.name.casefold())
            for key, share in state.items()
            for schema in share.schemas
            for table in schema.tables
        }

    assert tables(after) == tables(stored) | tables({share.key: share for share in wanted})
    for key, share in after.items():
        assert ("tables" in share.options) == any(
            "tables" in one.options for one in (*earlier, *wanted) if one.key == key
        )
    assert plan(after, wanted, removes=False) == []
