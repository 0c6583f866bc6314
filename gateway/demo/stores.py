"""The stores of the demo: directories, or an object store that runs on this machine.

In: the directory with the tables. Out: the locations of the tables and the entries of `gateway.storages`. An
object store is an emulator of `PATH`, for as long as the demo runs, or one that runs already.
"""

from __future__ import annotations

import base64
import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway.config.checks import check_url
from gateway.config.errors import Invalid
from gateway.demo.processes import HOST, free_port, is_listening, started
from gateway.server.extras import check_azure_extra

LOCAL, S3, AZURE = "local", "s3", "azure"
STORES = (LOCAL, S3, AZURE)

BUCKET = "delta-gateway-demo"
REGION = "us-east-1"
CONNECT_SECONDS = 5
# Azurite's own account, whose key is public.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_MISSING = {
    S3: "the S3 server: install MinIO or versitygw so that `minio` or `versitygw` is on PATH, or give "
    "--store-endpoint of a server that runs, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    AZURE: "the Azure Blob server: `npm install --global azurite`, or give --store-endpoint of Azurite where "
    "it runs, such as http://127.0.0.1:10000",
}


@dataclass(frozen=True)
class Keys:
    """The keys of an emulator: an access key with its secret, or an account with its key."""

    name: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class StoredTables:
    """Where the tables are, and how the gateway reads them."""

    root: str
    storages: Sequence[Mapping[str, object]] = ()

    def location(self, table: str) -> str:
        """Return the location of a table."""
        return f"{self.root}/{table}"


@contextmanager
def stored(
    store: str, directory: Path, tables: Sequence[str], endpoint: str | None
) -> Iterator[StoredTables]:
    """Provide the tables of a directory in a store until the block ends. Raises OSError."""
    if store == LOCAL:
        if endpoint is not None:
            raise OSError("--store-endpoint needs --store s3 or --store azure")
        yield StoredTables(str(directory))
        return
    if store == AZURE:
        check_azure_extra("the demo on Azure")
    if endpoint is not None:
        yield _upload(store, directory, tables, endpoint.rstrip("/"), _keys_of_running(store))
        return
    keys = Keys("delta-gateway-demo", secrets.token_urlsafe(24)) if store == S3 else _new_account()
    with _emulator(store, keys) as started:
        yield _upload(store, directory, tables, started, keys)


def _keys_of_running(store: str) -> Keys:
    """Return the keys of a server that runs already: of the environment, or of Azurite's own account."""
    if store == AZURE:
        return Keys(AZURITE_ACCOUNT, AZURITE_KEY)
    try:
        return Keys(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    except KeyError as missing:
        raise OSError(f"--store-endpoint of an S3 server needs the variable {missing.args[0]}") from None


def _new_account() -> Keys:
    return Keys("demo", base64.b64encode(secrets.token_bytes(64)).decode())


@contextmanager
def _emulator(store: str, keys: Keys) -> Iterator[str]:
    """Run the store's first program of PATH until the block ends; yield its URL."""
    with tempfile.TemporaryDirectory(prefix="delta-gateway-store-", ignore_cleanup_errors=True) as place:
        files, log = Path(place, "files"), Path(place, "log")
        files.mkdir()
        port = free_port()
        command, variables = _command(store, files, port, keys)
        with (
            log.open("wb") as output,
            # Ctrl-C of a terminal ends the gateway first, which may read to the last.
            started(command, output, environment=os.environ | variables, new_session=True) as process,
        ):
            if not is_listening(port, process):
                raise OSError(f"{Path(command[0]).name} did not start: {log.read_text()[-2000:]}")
            yield f"http://{HOST}:{port}"


def _command(store: str, files: Path, port: int, keys: Keys) -> tuple[list[str], dict[str, str]]:
    """Return the command of an emulator and its variables, where the keys are."""
    address = f"{HOST}:{port}"
    if store == AZURE and (program := shutil.which("azurite-blob")):
        options = ["--blobHost", HOST, "--blobPort", str(port), "--location", str(files)]
        options += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        return [program, *options], {"AZURITE_ACCOUNTS": f"{keys.name}:{keys.secret}"}
    if store == S3 and (program := shutil.which("versitygw")):
        options = ["--port", address, "--region", REGION, "--quiet", "--keep-alive"]
        variables = {"ROOT_ACCESS_KEY": keys.name, "ROOT_SECRET_KEY": keys.secret}
        return [program, *options, "posix", str(files)], variables
    if store == S3 and (program := shutil.which("minio")):
        options = ["server", "--quiet", "--address", address, "--console-address", f"{HOST}:0", str(files)]
        variables = {"MINIO_ROOT_USER": keys.name, "MINIO_ROOT_PASSWORD": keys.secret}
        return [program, *options], {**variables, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
    raise OSError(f"--store {store} needs {_MISSING[store]}")


def _upload(store: str, directory: Path, tables: Sequence[str], endpoint: str, keys: Keys) -> StoredTables:
    """Put the files of the tables into a store. Raises OSError when it cannot."""
    files = [path for table in tables for path in (directory / table).rglob("*") if path.is_file()]
    # In the order in which they were written: versions have the age of their files.
    files.sort(key=lambda path: path.stat().st_mtime)
    contents = [(path.relative_to(directory).as_posix(), path) for path in files]
    upload = _upload_to_azure if store == AZURE else _upload_to_s3
    host = _check_reachable(endpoint)
    try:
        return upload(contents, endpoint, keys)
    except Exception as error:
        # The libraries of both providers have exceptions of their own.
        raise OSError(f"the store at {host} refuses the tables: {error}") from error


def _check_reachable(endpoint: str) -> str:
    """Return the host and port of a URL. Raises OSError where nothing listens; the libraries retry long."""
    try:
        check_url("endpoint", endpoint)
    except Invalid as reason:
        raise OSError(f"--store-endpoint: {reason}") from None
    parts = urlsplit(endpoint)
    try:
        address = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        socket.create_connection(address, timeout=CONNECT_SECONDS).close()
    except OSError as error:
        reason_text = error.strerror or "no answer"
        raise OSError(f"the store at {parts.netloc} cannot be reached: {reason_text}") from None
    return parts.netloc


def _upload_to_s3(contents: Sequence[tuple[str, Path]], endpoint: str, keys: Keys) -> StoredTables:
    import botocore.session  # noqa: PLC0415 - slow to import
    from botocore.config import Config  # noqa: PLC0415

    client: Any = botocore.session.get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=keys.name,
        aws_secret_access_key=keys.secret,
        config=Config(
            s3={"addressing_style": "path"},
            connect_timeout=CONNECT_SECONDS,
            retries={"total_max_attempts": 1},
        ),
    )
    try:
        if BUCKET not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
            client.create_bucket(Bucket=BUCKET)
        for key, path in contents:
            client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
    finally:
        client.close()
    storage = {
        "prefix": f"s3://{BUCKET}/",
        "endpoint": endpoint,
        "region": REGION,
        "pathStyle": True,
        "accessKeyId": keys.name,
        "secretAccessKey": keys.secret,
    }
    return StoredTables(f"s3://{BUCKET}", [storage])


def _upload_to_azure(contents: Sequence[tuple[str, Path]], endpoint: str, keys: Keys) -> StoredTables:
    from azure.storage.blob import BlobServiceClient  # noqa: PLC0415 - an extra, and slow to import

    # It logs each request.
    logging.getLogger("azure").setLevel(logging.WARNING)
    # The account is the first segment of a path at Azurite.
    account = f"{endpoint}/{keys.name}"
    with (
        BlobServiceClient(
            account, credential=keys.secret, retry_total=0, connection_timeout=CONNECT_SECONDS
        ) as client,
        client.get_container_client(BUCKET) as container,
    ):
        if not container.exists():
            container.create_container()
        for key, path in contents:
            container.upload_blob(key, path.read_bytes(), overwrite=True)
    prefix = f"abfss://{BUCKET}@{keys.name}.dfs.core.windows.net"
    return StoredTables(prefix, [{"prefix": f"{prefix}/", "endpoint": account, "accountKey": keys.secret}])
