"""Commits of the work table as one commit of the published table.

In: the actions of the commits, one after another. Out: what tells the commits from others, and a file with
the lines of the published commit. The commit of a first write has an action for each file of the table, so
only a part of it is in memory.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

from gateway.spark.project.actions import Action, Changes, FileKey, changed_file, fold, hash_of, moved
from gateway.spark.project.errors import NotProved
from gateway.spark.project.record import Stamp


class CommitRange:
    """The commits after version `base`, up to version `last`.

    `read_to` reads them before the rows are read that the proof compares, and `published` reads them again:
    a commit that another writer replaces in between makes it fail.
    """

    def __init__(self, actions: Callable[[int], Iterable[Action]], base: int) -> None:
        self.base = self.last = base
        self._actions = actions
        self._stamp = Stamp()
        self._metadata = Changes()
        self._mark = self._balance = self._file_lists = 0

    @property
    def stamp(self) -> str:
        """Return what tells the commits from others of the same versions."""
        return self._stamp.text

    @property
    def keeps_files(self) -> bool:
        """Return whether the version before the range and its last one have the same files."""
        return self._balance == 0

    def read_to(self, last: int) -> CommitRange:
        """Read the commits up to a version. Raises FileNotFoundError for one that was cleaned up."""
        for number in range(self.last + 1, last + 1):
            kinds = set()
            for action in self._stamp.of_commit(self._actions(number)):
                if (changed := changed_file(action)) is None:
                    self._metadata.apply([action])
                    continue
                kind, key = changed
                kinds.add(kind)
                self._mark ^= hash_of(key)
                self._balance += hash_of(key) if kind == "add" else -hash_of(key)
            self._file_lists += len(kinds)
        self.last = last
        return self

    def mark(self, before: str) -> str:
        """Return the mark of the files of the last version, by the mark of those before the range."""
        return f"{int(before, 16) ^ self._mark:064x}"

    def changes(self) -> Changes:
        """Return what the commits change, in memory."""
        return fold(map(self._actions, self._numbers))

    @contextmanager
    def published(self, head: Iterable[Action]) -> Iterator[Path]:
        """Write the published commit, which begins with `head`, into a file for the length of a block.

        Its lines are those of `Changes.lines`. Raises NotProved if the commits are not those that were read.
        """
        repeated, stamp, changes = self._repeated(), Stamp(), Changes()
        with TemporaryDirectory(prefix="delta-gateway-") as folder:
            path = Path(folder) / "commit.json"
            with path.open("w") as file, path.with_name("adds.json").open("w+") as adds:
                _write(file, *head, *self._metadata.lines())
                for number in self._numbers:
                    of_repeated = []
                    for action in stamp.of_commit(self._actions(number)):
                        kind, key = changed_file(action) or ("", None)
                        if key is not None and _short(key) in repeated:
                            of_repeated.append(action)
                        elif key is not None:
                            _write(adds if kind == "add" else file, {kind: moved(action[kind])})
                    changes.apply(of_repeated)
                if stamp.text != self.stamp:
                    raise NotProved("another writer has changed its work table meanwhile")
                for action in changes.lines():
                    _write(adds if "add" in action else file, action)
                adds.seek(0)
                shutil.copyfileobj(adds, file)
            yield path

    @property
    def _numbers(self) -> range:
        return range(self.base + 1, self.last + 1)

    def _repeated(self) -> set[bytes]:
        """Return the files that several actions name, such as one that was added and removed again.

        An `add` or a `remove` list of one commit alone names each file once.
        """
        seen, repeated = set[bytes](), set[bytes]()
        for number in self._numbers if self._file_lists > 1 else ():
            for changed in map(changed_file, self._actions(number)):
                if changed is not None:
                    key = _short(changed[1])
                    (repeated if key in seen else seen).add(key)
        return repeated


def _short(key: FileKey) -> bytes:
    return hashlib.blake2b(json.dumps(key).encode(), digest_size=16).digest()


def _write(file: TextIO, *actions: Action) -> None:
    file.writelines(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
