"""Opens the URL of a data file, as clients do: by a range of bytes.

In: files of answers. Out: findings about the store. Only the host of a URL is in them.
"""

from __future__ import annotations

import time

from gateway.doctor import store_errors
from gateway.doctor.connection_errors import STORE
from gateway.doctor.findings import Findings, Owner, Problem
from gateway.doctor.table import SharedFile
from gateway.doctor.transport import Transport
from gateway.doctor.urls import is_loopback, parse_url

STEP = "file"
PARQUET_MAGIC = b"PAR1"
MIN_URL_SECONDS = 15 * 60
"""Spark clients take URLs with a shorter life for expired."""


def open_file(file: SharedFile, transport: Transport, findings: Findings, *, server_host: str | None) -> None:
    """Read the first bytes of a file by its URL. Raises Problem."""
    parts = parse_url(file.url)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Problem(
            "the server answers with a location instead of a URL",
            Owner.PROVIDER,
            "let the server sign URLs of the table's store",
        )
    if is_loopback(parts.hostname) and not is_loopback(server_host):
        raise Problem(
            f"the URL of a file points to {parts.hostname}, which is this machine",
            Owner.PROVIDER,
            "configure the server's public URL, or the public endpoint of the store",
        )
    headers = {"Range": f"bytes=0-{len(PARQUET_MAGIC) - 1}", "Accept-Encoding": "identity"}
    answer = transport.send(STORE, "GET", file.url, headers=headers, max_bytes=64 * 1024)
    if answer.status not in {200, 206}:
        raise store_errors.explain(answer, parts.hostname)
    if not answer.body.startswith(PARQUET_MAGIC):
        raise Problem(
            f"{parts.hostname} answers with bytes that are not a Parquet file",
            Owner.NETWORK,
            f"look for a proxy or a virus scanner that changes downloads from {parts.hostname}",
        )
    if answer.status == 200:  # noqa: PLR2004 - OK
        does = "ignores ranges of bytes, so clients fetch whole files"
        if "content-range" in answer.headers:
            # As rclone does.
            does = "sends ranges with the status of whole files, so clients may refuse them"
        findings.warn(
            STEP,
            Problem(
                f"{parts.hostname} {does}",
                Owner.PROVIDER,
                "look at what is in front of the store; a proxy of the recipient can be the cause, too",
            ),
        )
    else:
        findings.ok(STEP, f"{parts.hostname} answers with the first bytes of a file")
    _check_life(file, findings)


def _check_life(file: SharedFile, findings: Findings) -> None:
    if file.expires_ms is None:
        return
    left_seconds = file.expires_ms / 1000 - time.time()
    if left_seconds <= MIN_URL_SECONDS:
        findings.warn(
            STEP,
            Problem(
                f"URLs live for {max(0, left_seconds) / 60:.0f} minutes: Spark clients take them for expired",
                Owner.PROVIDER,
                "sign URLs for an hour; if they do, the clock of the recipient's machine is ahead",
            ),
        )
