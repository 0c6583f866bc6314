"""A rule over partition columns that are renamed and swapped: what it shows of each version of a table.

The honest twin knows columns by their identity. A rule means the column that has its name at the latest
version, and shows of every version the files with the value in that column, or nothing at all.
"""

import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gateway_app import TOKEN_KEYS, TOKENS, bearer, serve
from support.history_table import TABLE, Client

from gateway.authentication.credential_table import token_hash

NAMES, VALUES, RULED = ("p", "q", "r"), ("a", "b"), "p"
CAPABLE = {"delta-sharing-capabilities": "responseformat=delta;readerfeatures=columnmapping"}
MAX_STEPS = 5


@dataclass(frozen=True)
class Version:
    """What a commit does: the names of the columns by their identities, and the values of its file."""

    names: tuple[str, ...]
    values: tuple[str, ...]


VERSIONS = st.lists(
    st.builds(
        Version,
        st.permutations(NAMES).map(lambda names: tuple(names[:2])),
        st.tuples(st.sampled_from(VALUES), st.sampled_from(VALUES)),
    ),
    min_size=1,
    max_size=MAX_STEPS,
)


def physical(identity: int) -> str:
    return f"col-{identity}"


def metadata(names: Sequence[str]) -> dict[str, Any]:
    fields = [
        {
            "name": name,
            "type": "string",
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": identity + 1,
                "delta.columnMapping.physicalName": physical(identity),
            },
        }
        for identity, name in enumerate(names)
    ]
    return {
        "id": "table-id",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(names),
        "configuration": {"delta.columnMapping.mode": "name"},
    }


def write(root: Path, versions: Sequence[Version]) -> None:
    log = root / "_delta_log"
    log.mkdir(parents=True)
    for number, version in enumerate(versions):
        actions: list[dict[str, Any]] = []
        if number == 0:
            actions.append({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}})
        if number == 0 or version.names != versions[number - 1].names:
            actions.append({"metaData": metadata(version.names)})
        values = {physical(identity): value for identity, value in enumerate(version.values)}
        path = {"path": f"f{number}", "size": 1, "modificationTime": 1, "dataChange": True}
        actions.append({"add": path | {"partitionValues": values}})
        text = "".join(json.dumps(action) + "\n" for action in actions)
        (log / f"{number:020}.json").write_text(text)


def expected(versions: Sequence[Version], version: int, value: str) -> list[str] | None:
    """The files of a version that a rule shows; None where it is refused."""
    names = versions[-1].names
    if RULED not in names:
        return None
    identity = names.index(RULED)
    return [f"f{number}" for number in range(version + 1) if versions[number].values[identity] == value]


def configured(root: Path, value: str) -> str:
    grant = json.dumps({"share": "s", "condition": f"{RULED} = '{value}'"})
    digest = token_hash(TOKENS["alice"]).hex()
    table = f"{{name: t, location: '{root}', historyShared: true}}"
    return (
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{table}]}}]}}]\ngateway:\n{TOKEN_KEYS}"
        f"  recipients: [{{name: alice, tokens: [{{sha256: {digest}}}], shares: [{grant}]}}]\n"
    )


async def shown(client: Client, body: dict[str, Any]) -> list[str] | None:
    response = await client.post(f"{TABLE}/query", data=json.dumps(body), headers=bearer() | CAPABLE)
    text = await response.text()
    if response.status != 200:
        assert "the rule of your grant" in text, text
        return None
    lines = [json.loads(line) for line in text.splitlines()]
    urls = [line["file"]["deltaSingleAction"]["add"]["path"] for line in lines if "file" in line]
    return sorted(url.partition("?")[0].rpartition("/")[2] for url in urls)


async def compare(versions: Sequence[Version], value: str, root: Path) -> None:
    write(root, versions)
    client, _ = await serve(configured(root, value))
    try:
        for version in range(len(versions)):
            assert await shown(client, {"version": version}) == expected(versions, version, value)
        assert await shown(client, {}) == expected(versions, len(versions) - 1, value)
    finally:
        await client.close()


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@given(VERSIONS, st.sampled_from(VALUES))
def test_a_rule_shows_of_each_version_what_its_column_holds_there(
    runner: asyncio.Runner, versions: list[Version], value: str
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        runner.run(compare(versions, value, Path(directory) / "table"))
