"""Tables with known answers through the gateway: versions, files, sizes, rows.

The project's own tables, and golden tables of other implementations where they are.
"""

import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import pyarrow.parquet
import pytest
from support import deletion_vectors, replay_check
from support.gateway_process import RunningGateway
from support.official_client import ClientError, OfficialClient
from tables import by_deltalake, by_hand
from tables.golden import EVERY_FEATURE, MADE, answers, location, readable, shared_name

# Reading these takes others' data files that are not part of the collection.
WITHOUT_DATA = {name for name, answer in readable().items() if answer["rowsFromData"] is None}
NAMES = sorted(readable())
# What the official client does not announce, it is refused by name.
BEYOND_THE_CLIENT = {"made/type-widening/delta": "typeWidening", "made/variants/delta": "variantType"}
BINARY_PARTITIONS = {"dat/multi_partitioned/delta", "made/partition-value-types/delta"}


def test_the_golden_tables_are_there(golden_tables: Path) -> None:
    assert golden_tables.is_dir()
    assert len([name for name in answers() if not name.startswith(MADE)]) > 100


def test_the_made_tables_are_there() -> None:
    made = {name.removeprefix(MADE).removesuffix("/delta") for name in answers() if name.startswith(MADE)}
    assert made == {*by_hand.TABLES, *by_deltalake.TABLES}


@pytest.mark.parametrize("name", NAMES)
def test_version_files_and_sizes(golden_gateway: RunningGateway, name: str) -> None:
    answer = readable()[name]
    response = golden_gateway.query(shared_name(name), capabilities=EVERY_FEATURE)
    assert response.status == 200, response.body
    protocol, head, *files = response.lines
    assert "deltaProtocol" in protocol["protocol"]
    metadata = head["metaData"]["deltaMetadata"]
    adds = [line["file"]["deltaSingleAction"]["add"] for line in files]
    assert int(response.headers["Delta-Table-Version"]) == answer["version"]
    assert (len(adds), sum(add["size"] for add in adds)) == (answer["numFiles"], answer["totalSize"])
    assert (head["metaData"]["numFiles"], head["metaData"]["size"]) == (
        answer["numFiles"],
        answer["totalSize"],
    )
    assert (metadata["id"], metadata["partitionColumns"]) == (
        answer["metadataId"],
        answer["partitionColumns"],
    )
    assert rows_by_statistics(adds) == answer["rowsFromStats"]


def rows_by_statistics(adds: list[dict[str, Any]]) -> int | None:
    """Live rows as the statistics tell them, None where a file has none."""
    stats = [json.loads(add.get("stats") or "{}") for add in adds]
    if any("numRecords" not in found for found in stats):
        return None
    return sum(found["numRecords"] for found in stats) - sum(map(replay_check.deleted, adds))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_DATA])
def test_every_url_opens_a_file_and_the_files_hold_the_rows(
    golden_gateway: RunningGateway, name: str
) -> None:
    answer = readable()[name]
    response = golden_gateway.query(shared_name(name), capabilities=EVERY_FEATURE)
    rows = 0
    for line in response.lines[2:]:
        add = line["file"]["deltaSingleAction"]["add"]
        with urlopen(add["path"]) as stored:
            content = stored.read()
        assert len(content) == add["size"]
        rows += pyarrow.parquet.ParquetFile(io.BytesIO(content)).metadata.num_rows
        rows -= len(deleted_rows(add))
    assert rows == answer["rowsFromData"]
    assert answer["rowsExpected"] in {None, rows}


def deleted_rows(add: dict[str, Any]) -> list[int]:
    """The rows of the deletion vector, fetched and decoded by plain Python."""
    descriptor = add.get("deletionVector")
    if not descriptor:
        return []
    if descriptor["storageType"] == "i":
        rows = deletion_vectors.decode(deletion_vectors.from_z85(descriptor["pathOrInlineDv"]))
    else:
        assert descriptor["storageType"] == "p"
        with urlopen(descriptor["pathOrInlineDv"]) as stored:
            content = stored.read()
        start = descriptor.get("offset") or 0
        assert int.from_bytes(content[start : start + 4], "big") == descriptor["sizeInBytes"]
        rows = deletion_vectors.decode(content[start + 4 : start + 4 + descriptor["sizeInBytes"]])
    assert len(rows) == descriptor["cardinality"]
    return rows


@pytest.mark.parametrize("name", sorted(set(answers()) - set(NAMES)))
def test_a_table_that_cannot_be_read_fails_alone(golden_gateway: RunningGateway, name: str) -> None:
    response = golden_gateway.query(shared_name(name), capabilities=EVERY_FEATURE)
    expected = (
        (404, "RESOURCE_DOES_NOT_EXIST") if "error" in answers()[name] else (400, "UNSUPPORTED_OPERATION")
    )
    assert (response.status, response.json["errorCode"]) == expected
    assert "/tables/" not in response.json["message"]


@pytest.mark.parametrize("name", NAMES)
def test_every_version_holds_the_files_of_the_twin(name: str) -> None:
    replay_check.hold(location(name), readable()[name]["version"])


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("dat/", MADE))])
def test_the_official_client_reads_the_rows_that_were_written(
    golden_gateway: RunningGateway, official_client: OfficialClient, name: str
) -> None:
    content = location(name).parent / "expected" / "latest" / "table_content"
    expected = pyarrow.parquet.read_table(content)
    # In the parquet format the client itself knows no binary partition column.
    options = {"use_delta_format": True} if name in BINARY_PARTITIONS else {}
    if name in BEYOND_THE_CLIENT:
        with pytest.raises(ClientError, match=BEYOND_THE_CLIENT[name]):
            official_client.rows(golden_gateway.profile, shared_name(name))
        return
    found = official_client.rows(golden_gateway.profile, shared_name(name), expected.column_names, **options)
    assert in_one_spelling(found) == in_one_spelling([tuple(row.values()) for row in expected.to_pylist()])


def in_one_spelling(rows: list[tuple]) -> list[str]:
    """Rows as sorted text, cells spelled alike on both sides."""
    return sorted(repr([spelled(cell) for cell in row]) for row in rows)


def spelled(cell: Any) -> Any:
    """One spelling for what pandas, Arrow and JSON each spell in their own way."""
    match cell:
        case None:
            return None
        case dict():
            return sorted((str(name), spelled(inner)) for name, inner in cell.items())
        case list() | tuple() if (
            all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in cell) and cell
        ):
            return sorted((str(name), spelled(inner)) for name, inner in cell)
        case list() | tuple():
            return [spelled(inner) for inner in cell]
        case bytes():
            return cell.hex()
        case float() | int() | bool():
            return float(cell)
        case _ if hasattr(cell, "isoformat"):
            return cell.isoformat().replace("+00:00", "").removesuffix("T00:00:00")
        case _:
            return str(cell).replace("+00:00", "").removesuffix("T00:00:00")


@pytest.mark.parametrize("name", [name for name in NAMES if "partition" in name])
def test_urls_stay_below_their_table(golden_gateway: RunningGateway, name: str) -> None:
    response = golden_gateway.query(shared_name(name), capabilities=EVERY_FEATURE)
    for line in response.lines[2:]:
        path = urlsplit(line["file"]["deltaSingleAction"]["add"]["path"]).path
        assert ".." not in unquote(unquote(path))
