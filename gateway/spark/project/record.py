"""What a published version says about its proof, in its own commit: both are there, or neither is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gateway.spark.project.evaluation import Evaluation
from gateway.spark.verify.digest import Digest

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORD_FIELD = "projection"
_WORD = 1 << 64


@dataclass(frozen=True)
class Record:
    """The proof of a published version.

    Attributes:
        source_id: table id of the source.
        source_version: version of the source that the projection equals.
        work_version: version of the work table.
        digest: of all rows.
        optimized_ms, vacuumed_ms: when the files were put together, and unneeded ones removed, the last time.
        evaluation: by what its rows were made.
        source_stamp: of the commit of that version of the source; empty if it is unknown.
        changed_ms: when its rows were published, in ms as Unix time.
        work_base: the version of the work table after which the published commits begin; -1 if it is unknown.
        work_stamp: of these commits.
        files: the mark of all files of the version; empty if it is unknown.

    """

    source_id: str
    source_version: int
    work_version: int
    digest: Digest
    optimized_ms: int
    vacuumed_ms: int
    evaluation: Evaluation
    source_stamp: str = ""
    changed_ms: int = 0
    work_base: int = -1
    work_stamp: str = ""
    files: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the record for a commit. Words are texts: some readers round numbers of 64 bits."""
        words = {
            "rows": self.digest.rows,
            "xors": [f"{word:016x}" for word in self.digest.xors],
            "sums": [f"{word:016x}" for word in self.digest.sums],
        }
        return asdict(self) | {"digest": words}

    @classmethod
    def of(cls, commit: list[dict[str, Any]]) -> Record | None:
        """Return the record of a commit; None for one that the job has not written."""
        for action in commit:
            stated = action.get("commitInfo", {}).get(RECORD_FIELD)
            if stated is not None:
                xors, sums = (
                    tuple(int(word, 16) for word in stated["digest"][words]) for words in ("xors", "sums")
                )
                evaluation = Evaluation(**stated["evaluation"])
                digest = Digest(stated["digest"]["rows"], xors, sums)
                return cls(**(stated | {"digest": digest, "evaluation": evaluation}))
        return None


def stamp(commits: Iterable[Iterable[dict[str, Any]]]) -> str:
    """Return what tells commits from others of the same versions: a hash of their JSON, made in parts."""
    hashed, end = hashlib.sha256(b"["), ""
    for commit in commits:
        hashed.update(f"{end}[".encode())
        for place, action in enumerate(commit):
            hashed.update((", " * bool(place) + json.dumps(action, sort_keys=True)).encode())
        hashed.update(b"]")
        end = ", "
    hashed.update(b"]")
    return hashed.hexdigest()


def difference(plus: Digest, minus: Digest) -> Digest:
    """Return the digest that `minus` has to be put together with for `plus`."""
    return Digest(
        plus.rows - minus.rows,
        tuple(a ^ b for a, b in zip(plus.xors, minus.xors, strict=True)),
        tuple((a - b) % _WORD for a, b in zip(plus.sums, minus.sums, strict=True)),
    )
