"""Other readers of Delta logs list the files of a version: delta_kernel and deltalake.

Each returns files in the same form, with the paths of the log, so that they can be compared.
"""

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from support import deletion_vectors
from support.native import Line, lines, object_key, table


@dataclass(frozen=True)
class Version:
    """A version of a table."""

    root: Path
    number: int


@dataclass(frozen=True, order=True)
class Vector:
    """A deletion vector: where it is, or what it says where it is inline."""

    place: str
    offset: int | None
    size_bytes: int
    cardinality: int


@dataclass(frozen=True)
class File:
    """The fields of a live file on which readers agree; null partition values are left out."""

    size: int
    modification_time_ms: int
    partition_values: Mapping[str, str]
    stats: Any
    base_row_id: int | None
    default_row_commit_version: int | None


Files = dict[tuple[str, Vector | None], File]


def listed_by_us(version: Version) -> Files:
    """The lines of the delta format. Raises LogError."""
    answer, _ = lines(version.root, table(version.root).snapshot(version=version.number), "delta")
    adds = [line["file"]["deltaSingleAction"]["add"] for line in answer[2:]]
    return {(object_key(add["path"]), _signed_vector(add)): _file(add, add) for add in adds}


def listed_by_kernel(program: Path, versions: Iterable[Version]) -> list[Files | str]:
    """The files of each version, or the error that the kernel ended in."""
    versions = list(versions)
    requested = "".join(f"{version.number} {version.root}\n" for version in versions)
    done = subprocess.run([program], check=True, input=requested, capture_output=True, text=True)
    # Not `splitlines`: statistics hold line separators of Unicode.
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    return [
        answer.get("error")
        or {
            (unquote(add["path"]), _stored_vector(version.root, add)): _file(add, add["fileConstantValues"])
            for add in answer["files"]
        }
        for version, answer in zip(versions, answers, strict=True)
    ]


@dataclass(frozen=True)
class Listed:
    """The fields of a live file that deltalake lists: none of deletion vectors."""

    size: int
    modification_time_ms: int
    records: int | None

    @staticmethod
    def of(file: File) -> "Listed":
        """The same fields of a file that the gateway lists."""
        return Listed(file.size, file.modification_time_ms, (file.stats or {}).get("numRecords"))


def listed_by_deltalake(version: Version) -> dict[str, Listed]:
    """By path."""
    adds = DeltaTable(str(version.root), version=version.number).get_add_actions(flatten=True)
    return {
        unquote(add["path"]): Listed(add["size_bytes"], add["modification_time"], add.get("num_records"))
        for add in pa.table(adds).to_pylist()
    }


def _file(add: Line, constants: Line) -> File:
    values = constants["partitionValues"].items()
    return File(
        size=add["size"],
        modification_time_ms=add["modificationTime"],
        partition_values={name: value for name, value in values if value},
        stats=json.loads(add["stats"]) if add.get("stats") else None,
        base_row_id=constants.get("baseRowId"),
        default_row_commit_version=constants.get("defaultRowCommitVersion"),
    )


def _signed_vector(add: Line) -> Vector | None:
    vector = add.get("deletionVector")
    if vector is None:
        return None
    place = vector["pathOrInlineDv"]
    return _vector(vector, place if vector["storageType"] == "i" else object_key(place))


def _stored_vector(root: Path, add: Line) -> Vector | None:
    vector = add.get("deletionVector")
    if vector is None:
        return None
    place = vector["pathOrInlineDv"]
    if vector["storageType"] == "u":
        place = deletion_vectors.file_name(place)
    elif vector["storageType"] == "p":
        place = place.removeprefix(f"{root.as_uri()}/")
    return _vector(vector, place)


def _vector(vector: Line, place: str) -> Vector:
    return Vector(place, vector.get("offset"), vector["sizeInBytes"], vector["cardinality"])
