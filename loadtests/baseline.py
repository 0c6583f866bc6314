"""The expected content of every answer of the mix, determined once before the load.

One full listing is read without load, compared with the digest beside the log, and filtered in Python, so
the expected files of a small query do not come from the code that answers it.
"""

import hashlib
import json
import random
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from answers import MODULUS, Digest

TABLE = "/shares/load/schemas/logs/tables/events"
PAGE_FILES = 5_000
PAGES = 10
SMALL_QUERIES = 20


@dataclass(frozen=True)
class SmallQuery:
    """A predicate on both partition columns, and the files that it selects."""

    date: str
    region: str
    files: int
    digest: int

    def body(self) -> dict[str, Any]:
        return {"predicateHints": [f"date = '{self.date}'", f"region = '{self.region}'"]}


@dataclass(frozen=True)
class Baseline:
    """The expected answers."""

    version: int
    files: int
    digest: int
    shares_sha256: str
    pages: list[list[int]]
    small: list[SmallQuery]
    changes_from: int
    changes_files: int
    changes_digest: int

    @property
    def full(self) -> Digest:
        return Digest(self.files, self.digest)

    def page(self, number: int) -> Digest:
        """Return the digest of a page of PAGE_FILES files."""
        return Digest(*self.pages[number])

    def save(self, path: Path) -> None:
        """Write the baseline for the load generator."""
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def load(path: Path) -> "Baseline":
        values = json.loads(path.read_text())
        values["small"] = [SmallQuery(**query) for query in values["small"]]
        return Baseline(**values)


def measure(url: str, token: str, log: Path, expected: dict[str, Any]) -> Baseline:
    """Query an idle gateway and compare its answer with the digest beside the log."""
    files = list_files(url, token)
    total = _sum(files)
    total.check(Digest(expected["files"], int(expected["digest"], 16)), "full listing without load")
    changes = changed_files(log, expected["version"])
    return Baseline(
        version=expected["version"],
        files=total.files,
        digest=total.digest,
        shares_sha256=hashlib.sha256(request(url + "/shares", token).read()).hexdigest(),
        pages=[
            [*asdict(_sum(files[start : start + PAGE_FILES])).values()]
            for start in range(0, min(len(files), PAGES * PAGE_FILES), PAGE_FILES)
        ],
        small=small_queries(files),
        changes_from=1,
        changes_files=changes.files,
        changes_digest=changes.digest,
    )


def request(url: str, token: str, body: dict[str, Any] | None = None) -> Any:
    """Send a request by the standard library alone."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=300)


def list_files(url: str, token: str) -> list[tuple[int, str, str]]:
    """Return id, date and region of each file in the order of the answer."""
    found = []
    with request(f"{url}{TABLE}/query", token, {}) as lines:
        for line in lines:
            file = json.loads(line).get("file")
            if file is not None:
                values = file["partitionValues"]
                found.append((int(file["id"], 16), values["date"], values["region"]))
    return found


def small_queries(files: list[tuple[int, str, str]]) -> list[SmallQuery]:
    """Return some partitions, chosen by a fixed seed, with their files."""
    partitions: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
    for file in files:
        partitions.setdefault(file[1:], []).append(file)
    chosen = random.Random(7).sample(sorted(partitions), min(SMALL_QUERIES, len(partitions)))
    return [SmallQuery(*key, *asdict(_sum(partitions[key])).values()) for key in chosen]


def changed_files(log: Path, last_version: int) -> Digest:
    """Return the digest of the files in commits after the first one, read from the commits."""
    ids = []
    for version in range(1, last_version + 1):
        for line in (log / "_delta_log" / f"{version:020d}.json").read_text().splitlines():
            action = json.loads(line)
            file = action.get("add") or action.get("remove")
            if file is not None:
                ids.append((int(hashlib.md5(file["path"].encode()).hexdigest(), 16), "", ""))
    return _sum(ids)


def _sum(files: list[tuple[int, str, str]]) -> Digest:
    return Digest(len(files), sum(file[0] for file in files) % MODULUS)
