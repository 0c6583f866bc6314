"""The page's table of Delta features, against the names of the protocol and what is served."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.native import native
from tools import ROOT

PROTOCOL_COMMIT = "bb1057f4367f555b01e299fd1690d85aafc0ac4c"
"""The commit of delta-io/delta whose PROTOCOL.md (Valid Feature Names) and protocol_rfcs have these names."""
READER_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
    "catalogManaged",
    "vacuumProtocolCheck",
    "typeWidening",
    "variantType",
    "variantShredding",
}
WRITER_FEATURES = {
    "appendOnly",
    "invariants",
    "checkConstraints",
    "generatedColumns",
    "allowColumnDefaults",
    "changeDataFeed",
    "identityColumns",
    "rowTracking",
    "domainMetadata",
    "icebergCompatV1",
    "icebergCompatV2",
    "clustering",
    "inCommitTimestamp",
}
PROPOSED = {
    "adaptiveMetadata",
    "timestampNanos",
    "checkpointProtection",
    "collations",
    "columnMappingUsageTracking",
    "icebergCompatV3",
    "icebergWriterCompatV1",
    "materializePartitionColumns",
}


def features() -> dict[str, tuple[str, str]]:
    """For whom each feature of the page is, and what the page says of it."""
    page = (ROOT / "docs/protocol.md").read_text()
    section = page.partition("### Features of Delta tables")[2].partition("\n\nThe delta format")[0]
    rows = [row.strip("| ").split(" | ") for row in section.splitlines() if row.startswith("| `")]
    return {name: (reader, answer) for names, reader, answer in rows for name in re.findall("`(.+?)`", names)}


def test_the_page_has_all_features_of_the_protocol_and_of_its_proposals() -> None:
    listed = features()
    assert listed.keys() >= READER_FEATURES | WRITER_FEATURES | PROPOSED
    assert all(listed[name][0] == "R, W" for name in READER_FEATURES)
    assert all(listed[name][0] == "W" for name in WRITER_FEATURES)


@pytest.mark.parametrize(("name", "said"), features().items(), ids=lambda value: str(value)[:30])
def test_a_feature_is_answered_as_the_page_says(tmp_path: Path, name: str, said: tuple[str, str]) -> None:
    concerns, answer = said
    lists: dict[str, Any] = {"writerFeatures": [name], "minReaderVersion": 1}
    if concerns == "R, W":
        lists |= {"readerFeatures": [name], "minReaderVersion": 3}
    metadata = {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": '{"type":"struct","fields":[]}',
        "partitionColumns": [],
        "configuration": {},
    }
    actions: list[dict[str, Any]] = [{"protocol": lists | {"minWriterVersion": 7}}, {"metaData": metadata}]
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))

    def required(*, has_catalog: bool) -> list[str]:
        table = native().Table(native().Storage.local(), str(tmp_path), has_catalog=has_catalog)
        table.ratify(0, [], [], age_ms=0)
        snapshot = table.snapshot()
        return [*snapshot.client_reader_features]

    if answer.startswith("refused") or "refused without" in answer:
        with pytest.raises(native().UnsupportedFeature):
            required(has_catalog=False)
    if not answer.startswith("refused"):
        needed = [name] if "clients that announce" in answer else []
        assert required(has_catalog="catalog" in answer) == needed
