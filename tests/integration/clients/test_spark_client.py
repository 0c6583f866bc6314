"""The contract with the Spark client: its requests, replayed, and its demands on the answers."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from support import deletion_vectors, reference
from support.gateway_process import RunningGateway
from support.nightly import at_night
from support.spark_client import SparkClient, action, file_id, files, json_hint

FORMATS = ["parquet", "delta"]


def client(
    gateway: RunningGateway, table: str = "orders", formats: str = "parquet,delta", **options: Any
) -> SparkClient:
    return SparkClient(gateway, table=table, response_formats=formats, **options)


# Formats


@pytest.mark.parametrize(
    ("table", "expected"), [("cities", "parquet"), ("readings", "delta"), *at_night(("orders", "parquet"))]
)
def test_a_client_that_leaves_the_choice_gets_delta_only_where_it_is_needed(
    demo_gateway: RunningGateway, table: str, expected: str
) -> None:
    asking = client(demo_gateway, table)
    assert asking.metadata().response_format == expected
    assert asking.query().response_format == expected


@pytest.mark.parametrize("formats", FORMATS)
def test_metadata_and_query_say_the_same(local_gateway: RunningGateway, formats: str) -> None:
    asking = client(local_gateway, "cities", formats)
    assert asking.metadata().first_lines == asking.query().first_lines


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("table", ["cities", "orders"])
def test_sizes_and_counts_spare_the_client_a_query(
    local_gateway: RunningGateway, table: str, formats: str
) -> None:
    response = client(local_gateway, table, formats).query()
    head = json.loads(response.first_lines[1])["metaData"]
    sizes = [
        line["file"]["size"] if formats == "parquet" else action(line)[1]["size"] for line in response.files
    ]
    assert (head["numFiles"], head["size"]) == (len(sizes), sum(sizes))


def test_parquet_lines_have_the_fields_that_the_client_reads(local_gateway: RunningGateway) -> None:
    response = client(local_gateway, "cities", "parquet").query()
    assert json.loads(response.first_lines[0]) == {"protocol": {"minReaderVersion": 1}}
    for line in response.files:
        file = line["file"]
        assert set(file) >= {"url", "id", "partitionValues", "size"}
        assert set(file["partitionValues"]) == {"region"}
        assert file["expirationTimestamp"] / 1000 > time.time() + 900


def test_delta_lines_have_the_fields_that_the_client_reads(local_gateway: RunningGateway) -> None:
    response = client(local_gateway, "readings", "delta").query()
    protocol = json.loads(response.first_lines[0])["protocol"]["deltaProtocol"]
    assert (protocol["minReaderVersion"], protocol["readerFeatures"]) == (3, ["deletionVectors"])
    metadata = json.loads(response.first_lines[1])["metaData"]["deltaMetadata"]
    assert metadata["configuration"] == {"delta.enableDeletionVectors": "true"}
    vectored = [line["file"] for line in response.files if "deletionVector" in action(line)[1]]
    (file,) = vectored
    descriptor = file["deltaSingleAction"]["add"]["deletionVector"]
    assert (descriptor["storageType"], descriptor["offset"], descriptor["cardinality"]) == ("p", 1, 3)
    assert file["deletionVectorFileId"]
    with urlopen(descriptor["pathOrInlineDv"]) as stored:
        content = stored.read()
    vector = content[5 : 5 + descriptor["sizeInBytes"]]
    assert deletion_vectors.decode(vector) == [1, 3, 6]


# The end of the stream


def test_the_end_of_a_stream_knows_the_expiry_of_deletion_vectors(local_gateway: RunningGateway) -> None:
    response = client(local_gateway, "readings", "delta", end_stream_action=True).query()
    assert response.end is not None
    expirations = [line["file"]["expirationTimestamp"] for line in response.files]
    assert response.end["minUrlExpirationTimestamp"] == min(expirations)


# Pages


@pytest.mark.parametrize("max_files", [1, 2, 5, 6, 100])
@pytest.mark.parametrize("formats", FORMATS)
def test_pages_together_equal_the_unpaged_answer(
    demo_gateway: RunningGateway, formats: str, max_files: int
) -> None:
    asking = client(demo_gateway, "cities", formats)
    whole, pages = asking.query(), asking.query_pages(max_files)
    assert [file_id(line) for line in files(pages)] == [file_id(line) for line in whole.files]
    assert all(len(page.files) <= max_files for page in pages)
    assert pages[0].first_lines == whole.first_lines


# File ids


@pytest.mark.parametrize("scheme", ["parquet", "Delta"])
@pytest.mark.parametrize("formats", FORMATS)
def test_the_id_scheme_is_echoed(
    local_gateway: RunningGateway, demo_tables: Path, formats: str, scheme: str
) -> None:
    asking = client(local_gateway, "cities", formats, sent={"fileidhash": scheme})
    response = asking.query()
    assert response.answer.headers["fileidhash"] == scheme.lower()
    assert {file_id(line) for line in response.files} == ids(demo_tables / "cities", scheme.lower())


@pytest.mark.parametrize("formats", FORMATS)
def test_the_format_chooses_the_id_scheme(
    local_gateway: RunningGateway, demo_tables: Path, formats: str
) -> None:
    response = client(local_gateway, "orders", formats).query()
    assert {file_id(line) for line in response.files} == ids(demo_tables / "orders", formats)


def ids(table: Path, scheme: str) -> set[str]:
    """Hashes of the live files' paths as the log spells them."""
    hashing = hashlib.md5 if scheme == "parquet" else hashlib.sha256
    return {hashing(add["path"].encode()).hexdigest() for add in reference.replay(table).files()}


# Structured streaming and change data


def test_a_stream_reads_the_files_since_a_version(demo_gateway: RunningGateway) -> None:
    response = client(demo_gateway, formats="delta").query(startingVersion=1, endingVersion=3)
    assert response.version == 1
    kinds = [(line["file"]["version"], action(line)[0]) for line in response.files if "file" in line]
    assert sorted(kinds) == [(1, "add"), (1, "remove"), (2, "add"), (2, "remove"), (3, "add")]
    for line in response.files:
        assert "timestamp" in line["file"]
        assert action(line)[1]["size"] > 0


def test_changes_hold_change_files_where_there_are_some(demo_gateway: RunningGateway) -> None:
    response = client(demo_gateway, formats="delta").changes(startingVersion=0)
    assert response.version == 0
    kinds = sorted((line["file"]["version"], action(line)[0]) for line in response.files if "file" in line)
    assert kinds == [(0, "add"), (1, "cdc"), (2, "cdc"), (3, "add")]
    assert all("deletionVector" not in action(line)[1] for line in response.files if "file" in line)


def test_changes_in_the_parquet_format(demo_gateway: RunningGateway) -> None:
    response = client(demo_gateway, formats="parquet").changes(startingVersion=1, endingVersion=3)
    kinds = sorted((next(iter(line.values()))["version"], next(iter(line))) for line in response.files)
    assert [kind for kind in kinds if kind[1] != "metaData"] == [(1, "cdf"), (2, "cdf"), (3, "add")]
    assert all(line[kind]["timestamp"] > 0 for line in response.files for kind in line if kind != "metaData")


# Predicates, as the client's converter writes them


def column(name: str, kind: str) -> dict[str, str]:
    return {"op": "column", "name": name, "valueType": kind}


def literal(value: str, kind: str) -> dict[str, str]:
    return {"op": "literal", "value": value, "valueType": kind}


REGION = column("region", "string")
PREDICATES = {
    "in": (
        {
            "op": "or",
            "children": [
                {"op": "equal", "children": [REGION, literal("日本", "string")]},
                {"op": "equal", "children": [REGION, literal("a/b", "string")]},
            ],
        },
        {"日本", "a/b"},
    ),
    "is not null": (
        {"op": "not", "children": [{"op": "isNull", "children": [REGION]}]},
        {"Alps + lakes", "100% coast", "日本", "64°=N", "a/b"},
    ),
    "is null": ({"op": "isNull", "children": [REGION]}, {None}),
    "data column": (
        {"op": "greaterThan", "children": [column("inhabitants", "long"), literal("12000000", "long")]},
        {"日本", "a/b"},
    ),
    "unknown operator": ({"op": "like", "children": [REGION, literal("%", "string")]}, None),
}


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize(("tree", "kept"), PREDICATES.values(), ids=PREDICATES)
def test_predicates_prune_as_the_client_writes_them(
    local_gateway: RunningGateway, formats: str, tree: dict[str, Any], kept: set[str | None] | None
) -> None:
    asking = client(local_gateway, "cities", formats)
    response = asking.query(predicateHints=[], jsonPredicateHints=json_hint(tree))
    values = [line["file"] if formats == "parquet" else action(line)[1] for line in response.files]
    found = {value["partitionValues"]["region"] for value in values}
    everything = {"Alps + lakes", "100% coast", "日本", "64°=N", "a/b", None}
    assert found == (everything if kept is None else kept)
