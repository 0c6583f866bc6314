"""Locations of tables in S3, Azure and Google Cloud Storage, and in directories.

In: the text of any form that Spark, Hadoop and fsspec write. Out: a `Location`; two forms of one place are
one location, except for the domain of another cloud of Azure. No message has a part that may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from gateway.config.errors import shown

ACCEPTED = (
    "s3://bucket/path, abfss://container@account.dfs.core.windows.net/path, gs://bucket/path, "
    "file:///directory or an absolute path"
)
AZURE_DOMAIN = "core.windows.net"
AZURE_DOMAINS = (AZURE_DOMAIN, "core.chinacloudapi.cn", "core.usgovcloudapi.net")
"""The domains of the public cloud and of the national ones."""

_S3 = ("s3", "s3a", "s3n")
_HADOOP = ("abfss", "abfs", "wasbs", "wasb")
_ENCRYPTED = {"abfs": "abfss", "wasb": "wasbs"}
_S3_BUCKET = re.compile(r"[A-Za-z0-9](?:(?!\.\.)[A-Za-z0-9._-]){0,254}(?<!\.)")
_GS_BUCKET = re.compile(r"[a-z0-9](?:(?!\.\.)[a-z0-9._-]){1,220}[a-z0-9]")
_ACCESS_POINT_SUFFIXES = ("-s3alias", "--ol-s3")
"""The ends of the aliases of S3 access points, which stand for a bucket of another name."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_CONTAINER = re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}|\$root|\$web|\$logs")
_AZURE_HOST = re.compile(
    r"([^.]*)\.(?:blob|dfs)\.(core(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?){1,8})", re.IGNORECASE
)
Kind = Literal["s3", "azure", "gs", "file"]


@dataclass(frozen=True, slots=True)
class Location:
    """A table's root or a prefix of roots.

    Attributes:
        kind: `s3`, `azure`, `gs` or `file`.
        bucket: the bucket or container; empty for files.
        key: the key prefix in the bucket or the directory, without a trailing slash.
        account: the account of Azure; empty for others, and where the form names none.
        domain: the domain of the account, `core.windows.net` except in national clouds.
        scheme: the scheme of the text, such as `s3a`; two schemes of one place are one location.

    """

    kind: Kind
    bucket: str
    key: str
    account: str = ""
    domain: str = ""
    scheme: str = field(default="", compare=False)

    def __hash__(self) -> int:
        # Requests look locations up; a hash of all values would be computed each time.
        return hash(self.key)

    @staticmethod
    def parse(text: str) -> Location:
        """Parse a location. Raises ValueError that names the accepted forms."""
        if text.startswith("/"):
            return _directory(text)
        scheme, separator, rest = text.partition("://")
        scheme = scheme.lower()
        if separator and scheme in _S3:
            return replace(_s3(rest), scheme=scheme)
        if separator and scheme == "gs":
            bucket, _, key = rest.partition("/")
            if not _GS_BUCKET.fullmatch(bucket):
                raise ValueError(
                    f"{shown(bucket)} is not a valid Google bucket name; accepted: gs://bucket/path"
                )
            return Location("gs", bucket, _segments(key))
        if separator and (scheme == "az" or scheme in _HADOOP):
            return replace(_azure(rest), scheme=scheme)
        if separator and scheme == "https":
            return _azure_url(text)
        if text.startswith("file:"):
            parts = urlsplit(text)
            if parts.netloc in ("", "localhost") and parts.path.startswith("/"):
                return _directory(decoded(parts.path))
        raise ValueError(f"{shown(text)} is not a location; accepted: {ACCEPTED}")

    @property
    def text(self) -> str:
        """Return the location in a form that `parse` accepts."""
        if self.kind == "file":
            return self.key
        if self.account and ("?" in self.key or "#" in self.key):
            return f"{self.account_url}/{self.bucket}/{quote(self.key)}"
        return self.url

    @property
    def encoded(self) -> str:
        """Return the location as a URL that `parse` reads as the same location."""
        return f"file://{quote(self.key)}" if self.kind == "file" else self.text

    @property
    def url(self) -> str:
        """Return the location as a URL, for comparisons and for messages to the operator."""
        return f"file://{self.key}" if self.kind == "file" else f"{self.bucket_url}/{self.key}"

    @property
    def hadoop_url(self) -> str:
        """Return the location for clients that read the directory, with the scheme of the configuration.

        Of two spellings of Azure it is the encrypted one: Hadoop reads `wasb` by HTTP, and signatures
        are for HTTPS.
        """
        if self.kind == "s3":
            return f"{self.scheme or self.kind}://{self.bucket}/{self.key}"
        if self.kind == "azure" and self.account and self.scheme in _HADOOP:
            service = "blob" if self.scheme.startswith("wasb") else "dfs"
            scheme = _ENCRYPTED.get(self.scheme, self.scheme)
            return f"{scheme}://{self.bucket}@{self.account}.{service}.{self.domain}/{self.key}"
        return self.url

    @property
    def bucket_url(self) -> str:
        """Return the bucket or the container as a URL, without a trailing slash."""
        if self.kind != "azure":
            return f"{self.kind}://{self.bucket}"
        if not self.account:
            return f"az://{self.bucket}"
        return f"abfss://{self.bucket}@{self.account}.dfs.{self.domain}"

    @property
    def account_url(self) -> str:
        """Return the URL of the blobs of an account of Azure."""
        return f"https://{self.account}.blob.{self.domain}"

    @property
    def is_access_point(self) -> bool:
        """Return whether the bucket is the alias of an access point."""
        return self.kind == "s3" and self.bucket.endswith(_ACCESS_POINT_SUFFIXES)

    @property
    def lacks_account(self) -> bool:
        """Return whether the form names no account of Azure."""
        return self.kind == "azure" and not self.account

    @property
    def is_in_unknown_cloud(self) -> bool:
        """Return whether the account has a domain that is none of Azure's own."""
        return bool(self.domain) and self.domain not in AZURE_DOMAINS

    def outer(self) -> Iterator[Location]:
        """Iterate over the directories that contain the location, up to its bucket or to `/`."""
        top = "/" if self.kind == "file" else ""
        key = self.key
        while key != top:
            key = key.rpartition("/")[0] or top
            yield replace(self, key=key)

    def contains(self, other: Location) -> bool:
        """Return whether `other` is this location or lies below it."""
        if (self.kind, self.account, self.domain, self.bucket) != (
            other.kind,
            other.account,
            other.domain,
            other.bucket,
        ):
            return False
        return not self.key or other.key == self.key or other.key.startswith(self.key.rstrip("/") + "/")


def check_account(account: str) -> str:
    """Return the name of an account of Azure. Raises ValueError for another text."""
    if not _ACCOUNT.fullmatch(account):
        raise ValueError(f"{shown(account)} is no account of Azure: 3 to 24 lower-case letters and digits")
    return account


def _s3(rest: str) -> Location:
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise ValueError(f"a location without a bucket; accepted: {ACCEPTED}")
    if bucket.startswith("arn:"):
        raise ValueError(
            "an access point is named by its alias, which ends in -s3alias, and not by its ARN; "
            "accepted: s3://alias/path"
        )
    if "@" in bucket:
        raise ValueError("a location has no keys before the bucket; accepted: s3://bucket/path")
    if not _S3_BUCKET.fullmatch(bucket):
        raise ValueError(f"{shown(bucket)} is not a valid bucket name; accepted: s3://bucket/path")
    if bucket.endswith(("--x-s3", "--xa-s3")):
        raise ValueError(
            f"'{bucket}' is a bucket or an access point of S3 Express, whose sessions and URLs end after 5 "
            "minutes; share the table from a general purpose bucket"
        )
    return Location("s3", bucket, _segments(key))


def _azure(rest: str) -> Location:
    """Parse `container@account.dfs.core.windows.net/path`, or `container/path` without an account."""
    authority, _, key = rest.partition("/")
    if "?" in rest or "#" in rest:
        # The message has no part of the location, whose query may be a signature.
        raise ValueError(
            "a location has no query or fragment; accepted: abfss://container@account.dfs.../path; a name "
            "with ? or # is percent-encoded in the form https://account.blob.../container/path"
        )
    container, at, host = authority.partition("@")
    account, domain = "", ""
    if at:
        account, domain = _host(host)
    return Location("azure", _container(container), _segments(key), account, domain)


def _azure_url(text: str) -> Location:
    """Parse `https://account.blob.core.windows.net/container/path`, which is percent-encoded."""
    host, _, path = text.partition("://")[2].partition("/")
    if "@" in host or "?" in text or "#" in text:
        # The message has no part of the URL, whose query may be a signature.
        raise ValueError("a location has no user, query or fragment; accepted: https://account.blob.../path")
    account, domain = _host(host)
    container, _, key = path.partition("/")
    return Location("azure", _container(decoded(container)), _segments(decoded(key)), account, domain)


def _host(host: str) -> tuple[str, str]:
    match = _AZURE_HOST.fullmatch(host)
    if match is None:
        raise ValueError(
            f"{shown(host)} is no host of an account of Azure; accepted: account.dfs.core.windows.net or "
            "account.blob.core.windows.net; another address of an account is its `endpoint` in "
            "gateway.storages; a bucket is s3://bucket/path or gs://bucket/path"
        )
    return check_account(match[1].lower()), match[2].lower()


def _container(name: str) -> str:
    if not _CONTAINER.fullmatch(name):
        raise ValueError(
            f"{shown(name)} is no container of Azure: 3 to 63 lower-case letters, digits and single hyphens"
        )
    return name


def _directory(path: str) -> Location:
    if ".." in PurePosixPath(path).parts or "\0" in path:
        raise ValueError(f"a location may not contain '..'; accepted: {ACCEPTED}")
    # Of two slashes at the beginning POSIX may make another root, and no system here does.
    return Location("file", "", str(PurePosixPath(f"/{path.lstrip('/')}")))


def _segments(key: str) -> str:
    key = key.strip("/")
    if key and not {"", ".", ".."}.isdisjoint(key.split("/")):
        raise ValueError(
            f"a location may not contain an empty part, '.' or '..' between slashes; accepted: {ACCEPTED}"
        )
    if _CONTROL.search(key):
        raise ValueError("a location may not contain control characters")
    return key


def decoded(path: str) -> str:
    """Return the text of a percent-encoded location. Raises ValueError for one that is not UTF-8."""
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("a percent-encoded location is not UTF-8") from None
