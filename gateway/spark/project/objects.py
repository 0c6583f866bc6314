"""Files that are written as a whole, once: a condition of the store decides between several writers.

In: a path of Hadoop. Out: the file, or the fact that another writer was faster. A local directory and the
clients of Azure, Google and HDFS create a file that is not there yet by one operation. S3A does so if it is
asked for it (Hadoop 3.4.2): without that the last of two writers wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from gateway.spark import java

_IF_ABSENT = "fs.option.create.conditional.overwrite"
_IF_ETAG = "fs.option.create.conditional.overwrite.etag"
_PART_BYTES = 4 << 20


class Unsafe(Exception):
    """Raised for a store that does not write on a condition, or whose client does not."""

    def __init__(self) -> None:
        super().__init__(
            "its object store or the client for it has no conditional writes, so two jobs could overwrite "
            "each other: use Hadoop 3.4.2 or later, and leave fs.s3a.create.conditional.enabled on"
        )


class Refused(Exception):
    """Raised where another writer was faster."""


class Directory:
    """A directory of files that are small enough to be held."""

    def __init__(self, spark: SparkSession, root: Any, configuration: Any) -> None:
        self._path = java.classes(spark).org.apache.hadoop.fs.Path
        self._root = self._path(root) if isinstance(root, str) else root
        self._files = self._root.getFileSystem(configuration)
        self.is_s3 = self._files.getUri().getScheme() in ("s3", "s3a", "s3n")

    def check(self) -> None:
        """Raise Unsafe for a store without conditions."""
        if self.is_s3 and not all(
            self._files.hasPathCapability(self._root, option) for option in (_IF_ABSENT, _IF_ETAG)
        ):
            raise Unsafe

    def create(self, name: str, content: str | Path) -> None:
        """Write a file that is not there yet. Raises Refused and Unsafe.

        `content`: a text, or a file of this machine.
        """
        self.check()
        path = self._path(self._root, name)
        if self.is_s3:
            self._write(path, content, lambda: self._files.createFile(path).must(_IF_ABSENT, True).build())
        else:
            self._write(path, content, lambda: self._files.create(path, False))

    def check_refusal(self, name: str) -> None:
        """Raise Unsafe where a file that is there can be created: some stores ignore the condition."""
        try:
            self.create(name, "")
        except Refused:
            return
        raise Unsafe

    def replace(self, name: str, text: str, before: str) -> None:
        """Write a file in place of one with the text `before`. Raises Refused and Unsafe.

        Of two that do so at once, one is refused in S3. Elsewhere it may find out when it looks again.
        """
        self.check()
        path = self._path(self._root, name)
        tag = self._files.getFileStatus(path).getETag() if self.is_s3 else None
        if self.read(name) != before:
            raise Refused
        if tag is not None:
            self._write(path, text, lambda: self._files.createFile(path).must(_IF_ETAG, tag).build())
        else:
            self._write(path, text, lambda: self._files.create(path, True))

    def read(self, name: str) -> str | None:
        """Return the text of a file; None without one."""
        try:
            return b"".join(self._parts(self._path(self._root, name))).decode()
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        self._files.delete(self._path(self._root, name), False)

    def _write(self, path: Any, content: str | Path, opened: Callable[[], Any]) -> None:
        try:
            stream = opened()
            try:
                for part in _parts(content):
                    stream.write(bytearray(part))
            except BaseException:
                # To close a stream of S3 is to create the file, of what was written so far.
                (stream.abort if self.is_s3 else stream.close)()
                raise
            stream.close()
        except Py4JJavaError as error:
            # The answer to a write that was done may be lost, and its repetition is refused then.
            try:
                is_written = all(a == b for a, b in zip_longest(_parts(content), self._parts(path)))
            except FileNotFoundError:
                raise error from None
            if not is_written:
                raise Refused from None

    def _parts(self, path: Any) -> Iterator[bytes]:
        try:
            stream = self._files.open(path)
        except Py4JJavaError as error:
            if java.is_missing(error):
                raise FileNotFoundError from None
            raise
        try:
            while part := bytes(stream.readNBytes(_PART_BYTES)):
                yield part
        finally:
            stream.close()


def _parts(content: str | Path) -> Iterator[bytes]:
    with BytesIO(content.encode()) if isinstance(content, str) else content.open("rb") as file:
        while part := file.read(_PART_BYTES):
            yield part
