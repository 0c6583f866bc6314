"""Locations of tables: `s3://bucket/key`, `s3a://bucket/key`, `file:///directory` or a directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import unquote, urlsplit

ACCEPTED = "s3://bucket/path, s3a://bucket/path, file:///directory or an absolute path"


@dataclass(frozen=True, slots=True)
class Location:
    """A table's root or a prefix of roots.

    Attributes:
        kind: `s3` or `file`.
        bucket: the bucket; empty for files.
        key: the key prefix in the bucket or the directory, without a trailing slash.

    """

    kind: Literal["s3", "file"]
    bucket: str
    key: str

    @staticmethod
    def parse(text: str) -> Location:
        """Parse a location. Raises ValueError that names the accepted forms."""
        if text.startswith("/"):
            return _directory(text)
        scheme, separator, _ = text.partition("://")
        if scheme in ("s3", "s3a") and separator:
            bucket, _, key = text[len(scheme) + 3 :].partition("/")
            if not bucket:
                raise ValueError(f"a location without a bucket; accepted: {ACCEPTED}")
            return Location("s3", bucket, _segments(key))
        if text.startswith("file:"):
            parts = urlsplit(text)
            if parts.netloc in ("", "localhost") and parts.path.startswith("/"):
                return _directory(unquote(parts.path))
        raise ValueError(f"'{text}' is not a location; accepted: {ACCEPTED}")

    @property
    def url(self) -> str:
        """Return the location as a URL, for comparisons and for messages to the operator."""
        return f"s3://{self.bucket}/{self.key}" if self.kind == "s3" else f"file://{self.key}"

    def contains(self, other: Location) -> bool:
        """Return whether `other` is this location or lies below it."""
        if (self.kind, self.bucket) != (other.kind, other.bucket):
            return False
        return not self.key or other.key == self.key or other.key.startswith(self.key.rstrip("/") + "/")


def _directory(path: str) -> Location:
    if ".." in PurePosixPath(path).parts or "\0" in path:
        raise ValueError(f"a location may not contain '..'; accepted: {ACCEPTED}")
    return Location("file", "", str(PurePosixPath(path)))


def _segments(key: str) -> str:
    if ".." in key.split("/") or "\0" in key:
        raise ValueError(f"a location may not contain '..'; accepted: {ACCEPTED}")
    return key.strip("/")
