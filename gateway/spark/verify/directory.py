"""Compares the files of a table by directory access with those by URLs, as a recipient gets both.

In: a client of the table. Out: differences. The log is read with the temporary credentials alone. Like other
engines this takes the region and the address of a store with the API of S3 from `AWS_REGION` and
`AWS_ENDPOINT_URL`.
"""

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from gateway.client.pages import Query, ShareClient
from gateway.client.transport import HttpError, Transport
from gateway.config.locations import Location
from gateway.spark.native_logs import answered_files, s3_settings
from gateway.spark.read.directory import s3_keys
from gateway.spark.verify.answers import check_pinned
from gateway.spark.verify.errors import NotCompared
from gateway.times import epoch_ms

_FETCHED_FILES = 20
_PARQUET_ID_LENGTH = 32
_GOOGLE_FORM = "gcpOauthToken"

FileKey = tuple[str, int, tuple[int, int, int] | None]
"""The id, the size, and offset, size and cardinality of the deletion vector."""


def compare_directory(
    client: ShareClient,
    version: int | None,
    *,
    has_history: bool,
    environment: Mapping[str, str] = os.environ,
) -> list[str]:
    """Describe the differences between the files of both ways at a version. Raises NotCompared."""
    try:
        credentials = client.temporary_credentials()
    except HttpError as error:
        return [f"the server gives no temporary credentials: {error}"]
    parameters = {"version": version} if has_history else {}
    by_url: set[FileKey] = set()
    scheme = "delta"
    for page in client.pages(Query(parameters)):
        check_pinned(client, page.version, version, has_history=has_history)
        for file in page.files:
            vector = file.deletion_vector
            place = (vector.offset, vector.size_bytes, vector.cardinality) if vector else None
            by_url.add((file.id, file.size_bytes, place))
            scheme = "parquet" if len(file.id) == _PARQUET_ID_LENGTH else "delta"
    directory = _Directory(credentials, environment)
    try:
        lines = list(directory.files(version, scheme))
    except directory.log_error as error:
        return [f"the directory's log cannot be read by the credentials: {error}"]
    by_directory = {_key(line) for line in lines}
    differences = (
        (by_url - by_directory, "have URLs and are not in the directory's log"),
        (by_directory - by_url, "are in the directory's log and have no URL"),
    )
    lines_of_files = [f"{len(files)} files {text}" for files, text in differences if files]
    return lines_of_files + directory.unreadable(lines)


class _Directory:
    """The directory of a table, with credentials that read it."""

    def __init__(self, credentials: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        from gateway import _native  # noqa: PLC0415 - a verification without directories does without it

        self._native: Any = _native
        self.log_error: type[Exception] = _native.LogError
        self._location = location = Location.parse(str(credentials["location"]))
        keys = s3_keys(credentials)
        if keys is not None:
            options: dict[str, Any] = {
                **s3_settings(environment),
                "access_key_id": keys["accessKeyId"],
                "secret_access_key": keys["secretAccessKey"],
                "session_token": keys["sessionToken"],
            }
            self._storage = self._native.Storage.s3(location.bucket, **options)
            self._signer = self._native.Signer.s3(location.bucket, **options)
        elif _GOOGLE_FORM in credentials:
            self._storage = self._native.Storage.gcs(location.bucket)
            self._storage.replace_bearer_token(credentials[_GOOGLE_FORM]["oauthToken"])
            self._signer = None
        else:
            raise NotCompared("this program reads no store by a shared access signature")

    def files(self, version: int | None, scheme: str) -> Iterator[dict[str, Any]]:
        """Iterate over the files of a version."""
        native = self._native
        snapshot = native.Table(self._storage, self._location.key).snapshot(version=version)
        # Without a key that signs, the base URL of the files does not exist.
        signer = self._signer or native.Signer.local("http://directory/", key=bytes(32))
        options = native.AnswerOptions(
            native.Signers(self._location.url, signer),
            response_format="delta",
            file_id_scheme=scheme,
            now_ms=epoch_ms(),
            lifetime_seconds=900,
        )
        return answered_files(snapshot.files(options))

    def unreadable(self, files: list[dict[str, Any]]) -> list[str]:
        """Read the first byte of some files by the credentials, and describe those that cannot be read."""
        if self._signer is None:
            return []
        transport = Transport()
        lines = []
        for file in islice(files, _FETCHED_FILES):
            try:
                transport.fetch_range(file["deltaSingleAction"]["add"]["path"], 0, 1)
            except HttpError as error:
                lines.append(f"the file {file['id']} cannot be read by the credentials: {error.status}")
        transport.close()
        return lines


def _key(file: Mapping[str, Any]) -> FileKey:
    add = file["deltaSingleAction"]["add"]
    vector = add.get("deletionVector")
    place = (vector.get("offset") or 0, vector["sizeInBytes"], vector["cardinality"]) if vector else None
    return (file["id"], add["size"], place)
