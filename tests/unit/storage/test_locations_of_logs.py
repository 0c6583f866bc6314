"""Two rules about locations agree: that of the configuration, and that of absolute paths in a log."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.native import KEY, drained, native

from gateway.config import Location

LOCATIONS = [
    "s3://bucket",
    "s3a://bucket/t",
    "S3N://bucket/t/p",
    "s3://bucket/table",
    "s3://Bucket/t",
    "gs://bucket/t",
    "gs://bucket/t/p q",
    "abfss://data@acct.dfs.core.windows.net",
    "abfs://data@acct.dfs.core.windows.net/t",
    "wasbs://data@acct.blob.core.windows.net/t/p",
    "WASB://data@ACCT.blob.core.windows.net/t",
    "https://acct.blob.core.windows.net/data/t",
    "https://acct.dfs.core.windows.net/data/table",
    "abfss://logs@acct.dfs.core.windows.net/t",
    "abfss://data@other.dfs.core.windows.net/t",
    "abfss://data@acct.dfs.core.chinacloudapi.cn/t",
    "https://acct.blob.core.usgovcloudapi.net/data/t",
    "/tables",
    "file:///tables/t",
    "file:/tables/table",
    "file://localhost/tables/t/p",
]
OWN = "s3://own-bucket-of-the-table/t"


def signer(location: Location) -> Any:
    """A signer of the location's store."""
    if location.kind == "file":
        return native().Signer.local("http://files.test/t", key=KEY)
    if location.kind == "gs":
        return native().Signer.gcs(location.bucket, access_id="id", secret="s")
    if location.kind == "azure":
        return native().Signer.azure(location.account, location.bucket, account_key="AA==")
    keys = {"access_key_id": "id", "secret_access_key": "s"}
    return native().Signer.s3(location.bucket, region="us-east-1", **keys)


def is_signed(directory: Path, outer: Location, path: str) -> bool:
    """Return whether a file of a log gets a URL where `allowedRoots` has a location."""
    log = directory / "_delta_log"
    log.mkdir(parents=True)
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "t", "schemaString": '{"type":"struct","fields":[]}', "partitionColumns": []}},
        {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}},
    ]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    snapshot = native().Table(native().Storage.local(), str(directory)).snapshot()
    signers = native().Signers(OWN, signer(Location.parse(OWN)), [(outer.url, signer(outer))])
    options = native().AnswerOptions(signers, response_format="parquet", now_ms=0, lifetime_seconds=60)
    try:
        return b'"url":' in drained(snapshot.files(options))
    except native().ForbiddenPath:
        return False


@pytest.mark.parametrize("text", LOCATIONS)
def test_a_location_contains_the_paths_of_a_log_that_get_urls(text: str, tmp_path: Path) -> None:
    outer = Location.parse(text)
    for index, (inner, end) in enumerate(product(LOCATIONS, ("", "/p=1"))):
        contained = outer.contains(Location.parse(inner + end))
        assert is_signed(tmp_path / str(index), outer, f"{inner}{end}/f.parquet") == contained, inner
