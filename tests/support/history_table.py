"""A table of four versions with three files each, and queries of it over a real socket."""

import json
from pathlib import Path
from typing import Any

import orjson
from aiohttp.test_utils import TestClient

from support.gateway_app import PREFIX, Clock, bearer, error_of, recipients, serve

Client = TestClient[Any, Any]
FIRST_MS = 1_700_000_000_000
TABLE = f"{PREFIX}/shares/s/schemas/d/tables/t"
FILES_PER_VERSION, VERSIONS = 3, 4
LIFETIME_SECONDS = 3600
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("x", "long"), ("p", "string"))
    ],
}
CAPABLE = {"delta-sharing-capabilities": "responseformat=delta,parquet;includeendstreamaction=true"}


def commit(root: Path, version: int, *, table_id: str = "table-id") -> None:
    """Adds a few files; the first commit makes the table."""
    log = root / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    actions: list[dict[str, Any]] = [{"commitInfo": {"inCommitTimestamp": FIRST_MS + version * 1000}}]
    if version == 0:
        actions.append(
            {
                "protocol": {
                    "minReaderVersion": 1,
                    "minWriterVersion": 7,
                    "writerFeatures": ["inCommitTimestamp"],
                }
            }
        )
        actions.append(
            {
                "metaData": {
                    "id": table_id,
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps(SCHEMA),
                    "partitionColumns": ["p"],
                    "configuration": {
                        "delta.enableInCommitTimestamps": "true",
                        "delta.enableChangeDataFeed": "true",
                    },
                }
            }
        )
    for number in range(FILES_PER_VERSION):
        value = version * FILES_PER_VERSION + number
        stats = {
            "numRecords": 10,
            "minValues": {"x": value},
            "maxValues": {"x": value},
            "nullCount": {"x": 0},
        }
        add = {
            "path": f"p=part-{number}/{table_id}-{version}-{number}.parquet",
            "partitionValues": {"p": f"part-{number}"},
            "size": 100 + value,
            "modificationTime": FIRST_MS,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        actions.append({"add": add})
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{version:020}.json").write_text(text)


def configuration(root: Path, *, history_shared: bool = True, extra: str = "") -> str:
    table = f"{{name: t, location: '{root}', historyShared: {str(history_shared).lower()}, id: the-id}}"
    other = f"{{name: other, location: '{root}', historyShared: true}}"
    return (
        f"{extra}shares: [{{name: s, schemas: [{{name: d, tables: [{table}, {other}]}}]}}]\n"
        f"{recipients(alice='s', bob='s')}"
    )


async def query(
    client: Client,
    body: dict[str, Any],
    *,
    headers: dict[str, str] | None = None,
    path: str = TABLE,
    name: str = "alice",
) -> tuple[Any, list[dict[str, Any]]]:
    """A successful query: the response and its lines."""
    sent = bearer(name) | (headers or {})
    response = await client.post(f"{path}/query", data=orjson.dumps(body), headers=sent)
    assert response.status == 200, await response.text()
    return response, lines_of(await response.read())


async def refused(
    client: Client, body: dict[str, Any], *, path: str = TABLE, name: str = "alice", **headers: str
) -> None:
    response = await client.post(f"{path}/query", data=orjson.dumps(body), headers=bearer(name) | headers)
    assert (response.status, error_of(await response.read())) == (400, "INVALID_PARAMETER_VALUE")


def lines_of(body: bytes) -> list[dict[str, Any]]:
    assert body.endswith(b"\n")
    return [orjson.loads(line) for line in body.splitlines()]


def ids(lines: list[dict[str, Any]]) -> list[str]:
    return [line["file"]["id"] for line in lines if "file" in line]


def end(lines: list[dict[str, Any]]) -> dict[str, Any]:
    action: dict[str, Any] = lines[-1]["endStreamAction"]
    return action


async def changes(
    client: Client, parameters: str, headers: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The lines of a range of changes."""
    response = await client.get(f"{TABLE}/changes?{parameters}", headers=bearer() | (headers or {}))
    assert response.status == 200, await response.text()
    return lines_of(await response.read())


def metadata_of_version(root: Path, version: int, **fields: Any) -> None:
    """Gives a version's commit a metaData with other fields."""
    first = [json.loads(line) for line in (root / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    (head,) = [action for action in first if "metaData" in action]
    path = root / "_delta_log" / f"{version:020}.json"
    path.write_text(path.read_text() + json.dumps({"metaData": head["metaData"] | fields}) + "\n")


async def served_at(root: Path, clock: Clock) -> Client:
    client, _ = await serve(configuration(root), clock=clock)
    return client
