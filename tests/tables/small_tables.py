"""Small tables of four versions, whole ones and one of each kind of damage, and a share that holds them."""

import json
from pathlib import Path
from typing import Any

from support.gateway_app import PREFIX, recipients

FIRST_MS = 1_700_000_000_000
ROLE = "arn:aws:iam::123456789012:role/reader"
SECRET_PLACE = "a-place-that-nobody-may-see"
TABLE = f"{PREFIX}/shares/s/schemas/d/tables"


def lay_out(root: Path) -> None:
    """Tables that are whole, and every kind that is not."""
    for name in ("whole", "plain", "late", "no_feed", "corrupt", "fancy", "vector", "no_schema"):
        log = root / name / "_delta_log"
        log.mkdir(parents=True)
        for version in range(4):
            write_commit(log, name, version)
    (root / "corrupt/_delta_log" / f"{1:020}.json").unlink()
    (root / "empty/_delta_log").mkdir(parents=True)
    (root / "empty/_delta_log/_last_checkpoint").write_text('{"version":0,"size":1}')


def write_commit(log: Path, name: str, version: int) -> None:
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": FIRST_MS + version * 1000,
                "inCommitTimestamp": FIRST_MS + version * 1000,
            }
        }
    ]
    if version == 0:
        actions += [protocol(name), metadata(name)]
    add = {
        "path": f"{version}.parquet",
        "partitionValues": {},
        "size": 10,
        "modificationTime": FIRST_MS,
        "dataChange": True,
        "stats": '{"numRecords":1}',
    }
    actions.append({"add": add})
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{version:020}.json").write_text(text)
    (log.parent / f"{version}.parquet").write_bytes(b"0123456789")


def protocol(name: str) -> dict[str, Any]:
    features = {"fancy": ["fancyFeature"], "vector": ["deletionVectors"]}.get(name)
    if features is None:
        return {
            "protocol": {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["inCommitTimestamp"],
            }
        }
    writer = [*features, "inCommitTimestamp"]
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": writer,
        }
    }


def metadata(name: str) -> dict[str, Any]:
    field = {"name": "x", "type": "long", "nullable": True, "metadata": {}}
    configuration = {"delta.enableInCommitTimestamps": "true"}
    if name != "no_feed":
        configuration["delta.enableChangeDataFeed"] = "true"
    described = {
        "id": name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [field]}),
        "partitionColumns": [],
        "configuration": configuration,
    }
    if name == "no_schema":
        del described["schemaString"]
    return {"metaData": described}


def configuration(root: Path, down_port: int) -> str:
    options = {"plain": "", "late": ", historyShared: true, startVersion: 2"}
    names = [path.name for path in sorted(root.iterdir())] + ["absent"]
    tables = "".join(
        f"    - {{name: {name}, location: '{root / name}'{options.get(name, ', historyShared: true')}}}\n"
        for name in names
    )
    storage = (
        "  storages:\n"
        f"  - {{prefix: 's3://down', endpoint: 'http://127.0.0.1:{down_port}', pathStyle: true, region: r, "
        f"retrySeconds: 0.3, accessKeyId: {SECRET_PLACE}, secretAccessKey: {SECRET_PLACE}, "
        f"stsEndpoint: 'http://127.0.0.1:{down_port}', directoryRoleArn: {ROLE}}}\n"
    )
    return (
        "shares:\n- name: s\n  schemas:\n  - name: d\n    tables:\n"
        f"{tables}    - {{name: down, location: 's3://down/{SECRET_PLACE}', historyShared: true}}\n"
        f"    volumes: [{{name: files, location: 's3://down/{SECRET_PLACE}-files'}}]\n"
        f"- name: hidden\n{recipients(alice='s', bob='hidden')}{storage}"
    )
