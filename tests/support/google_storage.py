"""A server of Google Cloud Storage for tests, which verifies signatures of version 4 and bearer tokens.

No emulator does. It has the XML API that readers use: objects with ranges, listings, and its errors. Paths
are decoded once, as Google does, so a key with `%20` and a key with a space are two objects.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import unquote
from xml.sax.saxutils import escape

from cryptography.hazmat.primitives.asymmetric import rsa

from support.access_boundary import Boundary
from support.http_service import HttpService, Request, Response, serving
from support.signature_v4 import Keys, SignatureRefused, verify


@dataclass(frozen=True)
class StoredObject:
    """The content of a key and when it was put."""

    content: bytes
    modified: datetime

    @property
    def entity_tag(self) -> str:
        """The tag of the content."""
        return f'"{hashlib.md5(self.content).hexdigest()}"'


class Refused(Exception):
    """An error of the store: status, code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


@dataclass
class GoogleStorage:
    """Buckets in memory, and whose requests are answered."""

    service: HttpService | None = None
    objects: dict[str, dict[str, StoredObject]] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    """Secrets of HMAC keys by access id."""
    public_keys: dict[str, rsa.RSAPublicKey] = field(default_factory=dict)
    """Of service accounts, by e-mail address."""
    tokens: set[str] = field(default_factory=set)
    """The bearer tokens that are accepted."""
    boundaries: dict[str, Boundary] = field(default_factory=dict)
    """Of tokens that are limited."""
    requester_pays: dict[str, str] = field(default_factory=dict)
    """The project that is charged, of buckets whose requester pays."""
    codes: list[str] = field(default_factory=list)
    """The errors that were answered, in order."""
    lie: Callable[[Request, Response], Response] | None = None
    """Replaces answers, as a store or a proxy that does not tell the truth."""

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        assert self.service is not None
        return self.service.url

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Puts an object, its key exactly as it is given."""
        self.objects.setdefault(bucket, {})[key] = StoredObject(content, datetime.now(UTC))

    def upload(self, directory: Path, bucket: str, prefix: str) -> None:
        """Puts every file below a directory under `prefix`, keys as the files are named."""
        for path in filter(Path.is_file, directory.rglob("*")):
            key = f"{prefix}/{path.relative_to(directory).as_posix()}".removeprefix("/")
            modified = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            self.objects.setdefault(bucket, {})[key] = StoredObject(path.read_bytes(), modified)

    def answer(self, request: Request) -> Response:
        """Answers a request of the XML API."""
        try:
            answer = self._answer(request)
            return self.lie(request, answer) if self.lie else answer
        except Refused as refusal:
            self.codes.append(refusal.code)
            body = f"<?xml version='1.0'?><Error><Code>{refusal.code}</Code></Error>".encode()
            return Response(refusal.status, body, {"Content-Type": "application/xml"})

    def _answer(self, request: Request) -> Response:
        self._authorize(request)
        try:
            bucket, _, key = unquote(request.path, errors="strict").removeprefix("/").partition("/")
        except UnicodeDecodeError:
            raise Refused(400, "InvalidURI") from None
        boundary = self.boundaries.get(request.bearer or "")
        listed = None if key else request.query.get("prefix", "")
        if boundary is not None and not boundary.permits(bucket, key, listed):
            raise Refused(403, "AccessDenied")
        if bucket not in self.objects:
            raise Refused(404, "NoSuchBucket")
        project = self.requester_pays.get(bucket)
        named = request.headers.get("x-goog-user-project") or request.query.get("userProject")
        if project and named != project:
            raise Refused(400, "UserProjectMissing")
        if request.method not in {"GET", "HEAD"}:
            raise Refused(405, "MethodNotAllowed")
        return self._object(request, bucket, key) if key else self._listing(request, bucket)

    def _authorize(self, request: Request) -> None:
        if request.bearer is not None:
            if request.bearer not in self.tokens:
                raise Refused(401, "AuthenticationRequired")
            return
        try:
            verify(request, Keys(self.secrets, self.public_keys))
        except SignatureRefused as refusal:
            raise Refused(400 if str(refusal) == "ExpiredToken" else 403, str(refusal)) from None

    def _object(self, request: Request, bucket: str, key: str) -> Response:
        found = self.objects[bucket].get(key)
        if found is None:
            raise Refused(404, "NoSuchKey")
        headers = {
            "ETag": found.entity_tag,
            "Last-Modified": format_datetime(found.modified, usegmt=True),
            "x-goog-generation": "1",
        }
        if request.headers.get("if-none-match") == found.entity_tag:
            return Response(304, b"", headers)
        size = len(found.content)
        span = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if span is None:
            return Response(200, found.content, headers)
        first = int(span[1]) if span[1] else max(0, size - int(span[2]))
        last = min(int(span[2]), size - 1) if span[1] and span[2] else size - 1
        if first >= size:
            raise Refused(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        return Response(206, found.content[first : last + 1], headers)

    def _listing(self, request: Request, bucket: str) -> Response:
        query = request.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = max(
            query.get(name, "") for name in ("start-after", "start-offset", "continuation-token", "marker")
        )
        limit = int(query.get("max-keys") or 1000)
        entries: dict[str, StoredObject | None] = {}
        for key in sorted(self.objects[bucket]):
            if key.startswith(prefix):
                end = key.find(delimiter, len(prefix)) if delimiter else -1
                name = key if end < 0 else key[: end + len(delimiter)]
                entries[name] = self.objects[bucket][key] if end < 0 else None
        names = [name for name in entries if name > after]
        listed = [_entry(name, entries[name]) for name in names[:limit]]
        is_truncated = len(names) > limit
        token = (
            f"<NextContinuationToken>{escape(names[limit - 1])}</NextContinuationToken>"
            if is_truncated
            else ""
        )
        body = (
            f"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult><Name>{bucket}</Name>"
            f"<Prefix>{escape(prefix)}</Prefix><KeyCount>{len(listed)}</KeyCount>"
            f"<IsTruncated>{str(is_truncated).lower()}</IsTruncated>{token}{''.join(listed)}</ListBucketResult>"
        )
        return Response(200, body.encode(), {"Content-Type": "application/xml"})


def _entry(name: str, stored: StoredObject | None) -> str:
    if stored is None:
        return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
    modified = stored.modified.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    return (
        f"<Contents><Key>{escape(name)}</Key><LastModified>{modified}Z</LastModified>"
        f"<ETag>{escape(stored.entity_tag)}</ETag><Size>{len(stored.content)}</Size></Contents>"
    )


@contextmanager
def running() -> Iterator[GoogleStorage]:
    """Runs a server until the block ends."""
    storage = GoogleStorage()
    with serving(storage.answer) as storage.service:
        yield storage
