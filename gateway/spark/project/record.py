"""What a published version says about its proof, in its own commit: both are there, or neither is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gateway.spark.project.evaluation import Evaluation
from gateway.spark.verify.digest import Digest

if TYPE_CHECKING:
    from gateway.spark.project.actions import Action

RECORD_FIELD = "projection"


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
        work_base: the version of the work table after which the published commits begin.
        work_stamp: of these commits.
        files: the mark of all files of the version.

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
    def of(cls, commit: Iterable[Action]) -> Record | None:
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


class Stamp:
    """What tells commits from others of the same versions: a hash of their JSON, made action by action."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(b"[")
        self._separator = ""

    @property
    def text(self) -> str:
        """Return the stamp of the commits so far."""
        whole = self._hash.copy()
        whole.update(b"]")
        return whole.hexdigest()

    def of_commit(self, actions: Iterable[Action]) -> Iterator[Action]:
        """Yield the actions of the next commit. The stamp has them when all were taken."""
        self._hash.update(f"{self._separator}[".encode())
        self._separator = ", "
        for place, action in enumerate(actions):
            self._hash.update((", " * bool(place) + json.dumps(action, sort_keys=True)).encode())
            yield action
        self._hash.update(b"]")
